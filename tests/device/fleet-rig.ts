/** Fleet of engines on native devices that runs on this thread, under a hand-moved clock. */

import type { TokenId } from "../../base/token.ts";
import type { NativeDevice } from "../../gpu/native/device.ts";
import type { EngineId } from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { OnlineCostModel } from "../../scheduler/cost/online.ts";
import type { Device } from "../../scheduler/device.ts";
import { settingsOf } from "../../scheduler/engine/engine-options.ts";
import type { EngineLink, SequenceListener, Unplaced } from "../../scheduler/fleet/fleet.ts";
import { EngineHost } from "../../scheduler/host/engine-host.ts";
import type { EngineLoad, EngineMessage, EngineReport } from "../../scheduler/messages.ts";
import { ours } from "../../scheduler/policies.ts";
import { engineRecorder, RecordedFleet } from "../../scheduler/recording/recorder.ts";
import type { RecordingEntry, RecordingHead } from "../../scheduler/recording/recording.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { type Replayed, replay } from "../../simulation/recording/replay.ts";

const queueMax = 64;
const roundsMax = 10_000;

/** Home of one engine after another. */
interface Place {
  readonly id: EngineId;
  readonly host: EngineHost;
  readonly link: EngineLink;
  /** Messages that the engine has not received. */
  readonly inbox: EngineMessage[];
  /** Reports that the fleet has not received. */
  readonly reports: EngineReport[];
  device: NativeDevice;
  epoch: number;
}

/** Fleet under the policy that serves, and the recording of its run. */
export class FleetRig {
  readonly #open: () => NativeDevice;
  readonly #clock = new ManualClock();
  readonly #places: readonly Place[];
  readonly #fleet: RecordedFleet;
  readonly #entries: (RecordingHead | RecordingEntry)[] = [];
  /** Drawn tokens by sequence. */
  readonly tokens: TokenId[][] = [];

  /** Each of the `engines` engines has a device that `open` opens. */
  constructor(engines: number, open: () => NativeDevice) {
    this.#open = open;
    const write = (entry: RecordingHead | RecordingEntry): void => void this.#entries.push(entry);
    this.#places = Array.from({ length: engines }, (_, index) => {
      const id = index as EngineId;
      const inbox: EngineMessage[] = [];
      return {
        ...{ id, inbox, reports: [], device: open(), epoch: 0 },
        host: new EngineHost(engineRecorder(id, this.#clock, write)),
        link: { send: (message) => void inbox.push(message) },
      };
    });
    const members = this.#places.map(({ link, device }) => ({ link, spec: device.spec }));
    const options = {
      ...{ policy: ours(), costs: this.#places.map(newCosts), clock: this.#clock },
      ...{ queueMax, publicTexts: [], onPlacement: () => {}, learns: false },
    };
    this.#fleet = new RecordedFleet(members, options, write);
    for (const place of this.#places) this.#begin(place);
  }

  /** Submits a task group. */
  submit(specs: readonly Unplaced[]): void {
    const listeners = specs.map((): SequenceListener => {
      const tokens: TokenId[] = [];
      this.tokens.push(tokens);
      return {
        onStarted: () => {},
        onToken: (token) => void tokens.push(token),
        onFinish: (finish) => {
          if (finish.kind !== "length") throw new Error(`a sequence ended with ${JSON.stringify(finish)}`);
        },
      };
    });
    this.#fleet.submitTaskGroup(specs, listeners);
  }

  /** Runs turns until all sequences have ended, or `isOver`. A step is in flight then, if there is work. */
  run(isOver: () => boolean = () => false): void {
    for (let round = 0; this.#fleet.active > 0; round += 1) {
      if (round > roundsMax) throw new Error("the fleet makes no progress");
      this.#clock.advance(1);
      for (const place of this.#places) place.host.turn();
      if (isOver()) return;
      for (const place of this.#places) {
        if (place.device.inFlight) {
          place.device.wait();
          place.device.deliver();
        }
        for (const report of place.reports.splice(0)) this.#fleet.report(place.id, report);
      }
    }
  }

  /** Loses an engine with its step and everything in transit to and from it, and replaces it. */
  lose(engine: number): void {
    const place = this.#places[engine]!;
    if (!place.device.inFlight) throw new Error(`engine ${engine} has nothing to lose`);
    place.device.close();
    place.host.close();
    place.inbox.length = 0;
    place.reports.length = 0;
    this.#fleet.lost(place.id, "a test closed it", true);
    place.device = this.#open();
    place.epoch += 1;
    const costs = this.#begin(place);
    this.#fleet.updateCosts(place.id, costs);
    this.#fleet.replaced(place.id, place.link, place.device.spec, place.epoch);
  }

  loads(): readonly EngineLoad[] {
    return this.#fleet.loads();
  }

  /** Closes the devices, and replays the recording. */
  close(): Replayed {
    for (const { device } of this.#places) device.close();
    const [head, ...entries] = this.#entries;
    return replay(head as RecordingHead, entries as RecordingEntry[]);
  }

  #begin({ host, device, inbox, reports, epoch }: Place): OnlineCostModel {
    const costs = newCosts();
    const link = {
      next: () => inbox.shift() ?? null,
      report: (report: EngineReport) => void reports.push(report),
    };
    const settings = { ...settingsOf(ours(), this.#places.length), queueMax, integrity: "always" as const };
    host.open({ link, device: timed(device), clock: this.#clock }, { epoch, settings, costs });
    return costs;
  }
}

function newCosts(): OnlineCostModel {
  return new OnlineCostModel(linearCost(1, 0.1));
}

/** Makes every step take a millisecond, so that decisions do not depend on the machine. */
function timed(device: Device): Device {
  return {
    spec: device.spec,
    start: (step, done) =>
      device.start(step, (result) => done(result.kind === "done" ? { ...result, deviceMs: 1 } : result)),
    close: () => device.close(),
  };
}
