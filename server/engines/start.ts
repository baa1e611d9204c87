import type { NativeModel } from "../../gpu/native/open.ts";
import { openLibrary } from "../../gpu/native.ts";
import type { EngineId, SequenceId } from "../../scheduler/core.ts";
import { BelievedCosts } from "../../scheduler/cost/believed.ts";
import { OnlineCostModel, type OnlineState } from "../../scheduler/cost/online.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { Placement } from "../../scheduler/dispatch/placement.ts";
import { engineDefaults, settingsOf } from "../../scheduler/engine-options.ts";
import { Fleet } from "../../scheduler/fleet.ts";
import { FLIGHT_VERSION } from "../../scheduler/flight.ts";
import type { EngineReport } from "../../scheduler/messages.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { FlightWriter } from "../recording/file.ts";
import { RecordedFleet } from "../recording/recorder.ts";
import type {
  DeviceSetup,
  EngineSetup,
  LoadProgress,
  PlainEngineOptions,
  RehearsedLoss,
} from "./protocol.ts";
import { EngineSupervisor } from "./supervisor.ts";
import { EngineThread } from "./thread.ts";

/** The fleet in production: one thread per engine, linked by messages; a lost engine is replaced. */

export interface EnginesConfig {
  /** URL of worker.ts, made where the build's root is, so that it also works inside the executable. */
  readonly workerUrl: string;
  readonly engines: number;
  readonly device: DeviceSetup;
  readonly policy: Policy;
  /** Of each engine, besides what the policy says. */
  readonly options: PlainEngineOptions;
  /** File of the flight recording; null: none. */
  readonly record: string | null;
  readonly rehearsedLoss?: RehearsedLoss;
}

export interface EnginesEvents {
  onProgress(progress: LoadProgress): void;
  /** After the fleet took it. */
  onReport?(engine: EngineId, report: EngineReport): void;
  onPlacement?(sequence: SequenceId, placement: Placement): void;
  /** The engine failed while it ran, or could not be started again; what ran there is placed elsewhere right after.
   *  `isComing`: it will be started again. */
  onLost?(engine: EngineId, reason: string, isComing: boolean): void;
  /** The engine is there again; right after, the fleet uses it. */
  onReplaced?(engine: EngineId): void;
  /** None is left and none is coming: the server can only be restarted. */
  onAllLost?(reason: string): void;
}

export interface RunningEngines {
  readonly fleet: Fleet;
  /** By engine. */
  readonly specs: readonly DeviceSpec[];
  /** By engine: share of its predicted time by which 19 of 20 steps exceed it at most. */
  readonly predictionErrors: () => readonly number[];
  /** What became of packed weights on disk; null when there was nothing to say. */
  readonly packedNote: string | null;
  /** Stops every engine after the step it is in; sequences that still run are dropped. Idempotent. */
  close(): Promise<void>;
}

const realClock = { nowMs: () => performance.now() };

/**
 * Starts the engines and resolves when all are ready. The first loads the model and shares it with the
 * others. Rejects with the reason when one cannot start; nothing keeps running then.
 */
export async function startEngines(config: EnginesConfig, events: EnginesEvents): Promise<RunningEngines> {
  const { policy, device, workerUrl } = config;
  const setup: EngineSetup = {
    device,
    options: { ...settingsOf(policy, config.engines), ...config.options },
    rehearsedLoss: config.rehearsedLoss ?? null,
    isRecorded: config.record !== null,
  };
  let fleet: Fleet | null = null;
  const flight = config.record === null ? null : new FlightWriter(config.record);
  /** What happened before the fleet was there. */
  const early: ((fleet: Fleet) => void)[] = [];
  const withFleet = (act: (fleet: Fleet) => void): void => {
    if (fleet === null) early.push(act);
    else act(fleet);
  };
  /** Loaded once; an engine that is lost leaves it to the others. GPUs have copies: once they do, it is given back, and
   *  an engine that takes a lost one's place loads one of its own. */
  let model: NativeModel | null = null;
  const giveBack = (loaded: NativeModel | null): void => {
    if (device.kind !== "gpu" || loaded === null) return;
    openLibrary(device.library).modelRelease(loaded.handle);
  };
  const gone = new Set<EngineId>();
  /** By engine. */
  const costs: BelievedCosts[] = [];
  const believe = (engine: EngineId, state: OnlineState): void => {
    flight?.write({ kind: "costs", atMs: performance.now(), engine, state });
    costs[engine]!.take(OnlineCostModel.from(state));
  };

  const supervise = (index: number): EngineSupervisor => {
    const engine = index as EngineId;
    const open = (epoch: number, onLost: (reason: string) => void): EngineThread =>
      new EngineThread(workerUrl, setup, engine, epoch, device.kind === "gpu" && epoch > 0 ? null : model, {
        onProgress: (progress) => events.onProgress(progress),
        onReport: (report) =>
          withFleet((fleet) => {
            fleet.report(engine, report);
            events.onReport?.(engine, report);
          }),
        onCosts: (state) => withFleet(() => believe(engine, state)),
        onFlight: (entries) =>
          withFleet(() => {
            for (const entry of entries) flight?.write(entry);
          }),
        onLost,
      });
    return new EngineSupervisor(open, {
      onLost: (reason, isComing) =>
        withFleet((fleet) => {
          if (!isComing) gone.add(engine);
          events.onLost?.(engine, reason, isComing);
          if (gone.size === config.engines) events.onAllLost?.(reason); // first, so that who fails now can be told why
          fleet.lost(engine, reason, isComing);
        }),
      onReplaced: (thread, { spec, costs, model: loaded }, epoch) =>
        withFleet((fleet) => {
          giveBack(loaded);
          events.onReplaced?.(engine);
          believe(engine, costs);
          fleet.replaced(engine, thread, spec, epoch);
        }),
    });
  };
  const supervisors = Array.from({ length: config.engines }, (_, index) => supervise(index));

  const close = async (): Promise<void> => {
    const [owner, ...others] = supervisors; // the first owns the model and goes last
    await Promise.all(others.map((supervisor) => supervisor.stop()));
    await owner?.stop();
    flight?.close();
  };

  try {
    const first = await supervisors[0]!.start();
    model = first.ready.model;
    const others = await Promise.all(supervisors.slice(1).map((supervisor) => supervisor.start()));
    const started = [first, ...others];
    const packedNote = model?.packedNote ?? null;
    giveBack(model);
    const specs = started.map(({ ready }) => ready.spec);
    const members = started.map(({ thread, ready }) => ({ link: thread, spec: ready.spec }));
    costs.push(...started.map(({ ready }) => new BelievedCosts(OnlineCostModel.from(ready.costs))));
    const options = {
      policy,
      costs,
      queueMax: config.options.queueMax ?? engineDefaults.queueMax,
      onPlacement: (sequence: SequenceId, placement: Placement) => events.onPlacement?.(sequence, placement),
    };
    if (flight === null) fleet = new Fleet(members, { ...options, clock: realClock });
    else {
      flight.write({ kind: "head", version: FLIGHT_VERSION, policy, queueMax: options.queueMax, specs });
      fleet = new RecordedFleet(members, options, (entry) => flight.write(entry));
      started.forEach(({ ready }, engine) => {
        believe(engine as EngineId, ready.costs);
      });
    }
    for (const act of early) act(fleet);
    const predictionErrors = (): number[] => costs.map((believed) => believed.margin);
    return { fleet, specs, predictionErrors, packedNote, close };
  } catch (error) {
    await close();
    throw error;
  }
}
