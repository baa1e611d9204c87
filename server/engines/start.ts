import type { TokenId } from "../../base/token.ts";
import type { NativeModel } from "../../gpu/native/open.ts";
import type { Vocabulary } from "../../grammar/mask/vocabulary.ts";
import type { CacheSnapshot, SnapshotRequest } from "../../scheduler/cache/cache-snapshot.ts";
import type { HostCounts } from "../../scheduler/cache/host-tier.ts";
import type { EngineId, SequenceId } from "../../scheduler/core.ts";
import { OnlineCostModel, type PriorState } from "../../scheduler/cost/online.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import { engineDefaults, settingsOf } from "../../scheduler/engine/engine-options.ts";
import { Fleet } from "../../scheduler/fleet/fleet.ts";
import type { Placement } from "../../scheduler/fleet/placement.ts";
import type { EngineReport } from "../../scheduler/messages.ts";
import type { ServedPolicy } from "../../scheduler/policy.ts";
import { RecordedFleet } from "../../scheduler/recording/recorder.ts";
import type { StoreCounts } from "../kv-disk/store-counts.ts";
import { RecordingWriter } from "../recording/file.ts";
import { LoopClock } from "./loop-clock.ts";
import type {
  DeviceSetup,
  EngineSetup,
  LoadProgress,
  PlainEngineOptions,
  RehearsedLoss,
  StartTimes,
} from "./protocol.ts";
import { EngineSupervisor, type Started } from "./supervisor.ts";
import { EngineThread, type ThreadNews } from "./thread.ts";

/** The production fleet: one thread per engine, linked by messages; a supervisor replaces a lost engine. */

export interface EnginesConfig {
  /** URL of worker.ts, resolved at the root of the build so that it also works inside the executable. */
  readonly workerUrl: string;
  readonly engines: number;
  readonly device: DeviceSetup;
  readonly policy: ServedPolicy;
  /** Engine options that override the policy's. */
  readonly options: PlainEngineOptions;
  /** Facts of the model's text, which may resolve while the weights load; absent: none. */
  readonly facts?: Promise<TextFacts>;
  /** Path of the recording; null: none. */
  readonly record: string | null;
  readonly rehearsedLoss?: RehearsedLoss;
}

/** Facts of a model's text that its engines need. */
export interface TextFacts {
  /** Token texts; null: no sequence is constrained. */
  readonly vocabulary: Vocabulary | null;
  /** Public prefixes in tokens, for the fleet. */
  readonly publicTexts: readonly (readonly TokenId[])[];
}

/** Engine events, delivered once all engines are ready. */
export interface EnginesEvents {
  /** Called after the fleet has processed the report. */
  onReport?(engine: EngineId, report: EngineReport): void;
  onPlacement?(sequence: SequenceId, placement: Placement): void;
  /** Counts of the engine's KV pages on disk since the last call. */
  onDisk?(engine: EngineId, counts: Readonly<StoreCounts>): void;
  /** Counts of the engine's KV pages in host memory since the last call. */
  onHost?(engine: EngineId, counts: Readonly<HostCounts>): void;
  /** Snapshot of the engine's prefix cache, after `inspect` with the same owner. */
  onCache?(engine: EngineId, snapshot: CacheSnapshot, owner: SnapshotRequest["owner"]): void;
  /**
   * The engine failed while it ran, or could not be restarted. The fleet moves its sequences elsewhere right
   * after. `isComing`: a restart follows.
   */
  onLost?(engine: EngineId, reason: string, isComing: boolean): void;
  /** The engine is running again; the fleet uses it right after. */
  onReplaced?(engine: EngineId): void;
  /** All engines are lost and none will restart: the server must be restarted. */
  onAllLost?(reason: string): void;
}

export interface RunningEngines {
  readonly fleet: Fleet;
  /** Device spec of each engine. */
  readonly specs: readonly DeviceSpec[];
  /** Outcome of reading or saving packed weights; null if neither was tried. */
  readonly packedNote: string | null;
  /** Parts of the first engine's start. */
  readonly startTimes: StartTimes;
  /** Asks every engine for a snapshot of its prefix cache (`onCache`). */
  inspect(request: SnapshotRequest): void;
  /** Stops every engine after its current step and drops running sequences. Idempotent. */
  close(): Promise<void>;
}

/**
 * Starts the engines and resolves when all are ready. The first engine loads the model and shares it. If one
 * cannot start, or `facts` rejects, all stop and the promise rejects with the reason. Calls `observe` once,
 * before it delivers any event.
 */
export async function startEngines(
  config: EnginesConfig,
  onProgress: (progress: LoadProgress) => void,
  observe: (engines: RunningEngines) => EnginesEvents,
): Promise<RunningEngines> {
  const engines = new Engines(config, onProgress);
  try {
    return await engines.start(observe);
  } catch (error) {
    await engines.close();
    throw error;
  }
}

interface Running {
  readonly fleet: Fleet;
  readonly events: EnginesEvents;
}

const realClock = { nowMs: () => performance.now() };

/** Engines of a server and their shared parts: model, fleet, recording. */
class Engines {
  readonly #config: EnginesConfig;
  readonly #facts: Promise<TextFacts>;
  readonly #onProgress: (progress: LoadProgress) => void;
  readonly #setup: EngineSetup;
  readonly #recording: RecordingWriter | null;
  readonly #supervisors: readonly EngineSupervisor[];
  readonly #gone = new Set<EngineId>();
  /**
   * Model that the first engine loads and all share, even after that engine is lost. GPU engines have copies,
   * which each reads from the model's files.
   */
  #model: NativeModel | null = null;
  /**
   * Step costs of the first engine. Engines of the same kind share them. Their costs then differ by load
   * only, not by the noise of measurements made beside other engines' work.
   */
  #costs: PriorState | null = null;
  /** null until all engines have started. */
  #running: Running | null = null;
  /** Events from before the fleet existed. */
  readonly #early: (() => void)[] = [];

  constructor(config: EnginesConfig, onProgress: (progress: LoadProgress) => void) {
    const { policy, device, engines, record } = config;
    this.#config = config;
    this.#facts = config.facts ?? Promise.resolve({ vocabulary: null, publicTexts: [] });
    this.#onProgress = onProgress;
    this.#setup = {
      device,
      options: { ...settingsOf(policy, engines), ...config.options },
      rehearsedLoss: config.rehearsedLoss ?? null,
      isRecorded: record !== null,
    };
    this.#recording = record === null ? null : new RecordingWriter(record);
    this.#supervisors = Array.from({ length: engines }, (_, index) => this.#supervise(index as EngineId));
  }

  async start(observe: (engines: RunningEngines) => EnginesEvents): Promise<RunningEngines> {
    const [owner, ...others] = this.#supervisors;
    const [first, { publicTexts }] = await Promise.all([owner!.start(), this.#facts]);
    this.#model = first.ready.model;
    this.#costs = first.ready.costs.prior;
    const started = [first, ...(await Promise.all(others.map((supervisor) => supervisor.start())))];
    const fleet = this.#fleetOf(started, publicTexts);
    const running: RunningEngines = {
      fleet,
      specs: started.map(({ ready }) => ready.spec),
      packedNote: this.#model?.packedNote ?? null,
      startTimes: first.ready.times,
      inspect: (request) => {
        for (const supervisor of this.#supervisors) supervisor.inspect(request);
      },
      close: () => this.close(),
    };
    this.#running = { fleet, events: observe(running) };
    for (const act of this.#early.splice(0)) act();
    return running;
  }

  async close(): Promise<void> {
    const [owner, ...others] = this.#supervisors; // the first owns the model and stops last
    await Promise.all(others.map((supervisor) => supervisor.stop()));
    await owner?.stop();
    this.#recording?.close();
  }

  #supervise(engine: EngineId): EngineSupervisor {
    const open = (epoch: number): EngineThread => {
      const start = { engine, epoch, setup: this.#setup, model: this.#model, costs: this.#costs };
      const vocabulary = this.#facts.then((known) => known.vocabulary);
      return new EngineThread(this.#config.workerUrl, start, vocabulary, (news) => {
        if (news.kind === "progress") this.#onProgress(news.progress);
        else this.#once((running) => this.#take(engine, news, running));
      });
    };
    return new EngineSupervisor(open, {
      onLost: (reason, isComing) => this.#once(() => this.#lost(engine, reason, isComing)),
      onReplaced: (started, epoch) => this.#once(() => this.#replaced(engine, started, epoch)),
    });
  }

  #take(engine: EngineId, news: ThreadNews, { fleet, events }: Running): void {
    if (news.kind === "disk") events.onDisk?.(engine, news.counts);
    if (news.kind === "host") events.onHost?.(engine, news.counts);
    if (news.kind === "cache") events.onCache?.(engine, news.snapshot, news.owner);
    if (news.kind === "recorded") for (const entry of news.entries) this.#recording?.write(entry);
    if (news.kind !== "report") return;
    const { report, costs } = news;
    fleet.report(engine, report, costs === null ? null : OnlineCostModel.from(costs));
    events.onReport?.(engine, report);
  }

  /** Runs `act` when the fleet exists, in order. */
  #once(act: (running: Running) => void): void {
    if (this.#running === null) this.#early.push(() => act(this.#running!));
    else act(this.#running);
  }

  #lost(engine: EngineId, reason: string, isComing: boolean): void {
    const { fleet, events } = this.#running!;
    if (!isComing) this.#gone.add(engine);
    events.onLost?.(engine, reason, isComing);
    // Called first, so that requests which fail now get the reason.
    if (this.#gone.size === this.#config.engines) events.onAllLost?.(reason);
    fleet.lost(engine, reason, isComing);
  }

  #replaced(engine: EngineId, { thread, ready }: Started, epoch: number): void {
    const { spec, costs } = ready;
    const { fleet, events } = this.#running!;
    events.onReplaced?.(engine);
    fleet.updateCosts(engine, OnlineCostModel.from(costs));
    fleet.replaced(engine, thread, spec, epoch);
  }

  #fleetOf(started: readonly Started[], publicTexts: TextFacts["publicTexts"]): Fleet {
    const { policy, options } = this.#config;
    const members = started.map(({ thread, ready }) => ({ link: thread, spec: ready.spec }));
    const fleetOptions = {
      policy,
      costs: started.map(({ ready }) => OnlineCostModel.from(ready.costs)),
      queueMax: options.queueMax ?? engineDefaults.queueMax,
      learns: true,
      publicTexts,
      onPlacement: (sequence: SequenceId, placement: Placement) =>
        this.#running?.events.onPlacement?.(sequence, placement),
    };
    const recording = this.#recording;
    return recording === null
      ? new Fleet(members, { ...fleetOptions, clock: realClock })
      : new RecordedFleet(members, { ...fleetOptions, clock: new LoopClock() }, (entry) =>
          recording.write(entry),
        );
  }
}
