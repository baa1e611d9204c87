import type { Clock } from "../clock.ts";
import { assert, type EngineId, type Step, type StepResult } from "../core.ts";
import type { EngineCosts } from "../cost/cost-model.ts";
import { unknownCost } from "../cost/linear.ts";
import type { Device, DeviceSpec } from "../device.ts";
import type { EngineSettings } from "../engine/engine-options.ts";
import type { EngineLink } from "../fleet/fleet.ts";
import type { EngineMessage, EngineReport } from "../messages.ts";
import { Seat } from "../seat/seat.ts";
import { type EntryOf, planHash } from "./flight.ts";

/** A clock that stands where an entry stands. */
export class EntryClock implements Clock {
  now = 0;

  nowMs(): number {
    return this.now;
  }

  after(): never {
    assert(false, "what is replayed sets no timers");
  }
}

/** A device that answers from the record. */
class RecordedDevice implements Device {
  readonly spec: DeviceSpec;
  step: Step | null = null;
  #done: ((result: StepResult) => void) | null = null;

  constructor(spec: DeviceSpec) {
    this.spec = spec;
  }

  start(step: Step, done: (result: StepResult) => void): void {
    this.step = step;
    this.#done = done;
  }

  answer({ result, sampled, deviceMs }: EntryOf<"step">): void {
    const done = this.#done!;
    this.step = null;
    this.#done = null;
    const reason = "The device said so when this was recorded.";
    if (result === "done") done({ kind: "done", sampled, deviceMs });
    else done({ kind: result, reason });
  }

  close(): void {}
}

/** A seat whose turns, messages and results are those of a recording. */
export class ReplayedSeat implements EngineLink {
  readonly #seat: Seat;
  readonly #spec: DeviceSpec;
  readonly #settings: EngineSettings;
  readonly #clock = new EntryClock();
  #device: RecordedDevice;
  /** Which life of the place begins next, and what that engine will think of its costs. */
  #next: { readonly epoch: number; readonly costs: EngineCosts } = { epoch: 0, costs: unknownCost };
  /** Sent by the fleet, not yet received; received by the engine in the recording; and reports that the fleet has not. */
  #sent: EngineMessage[] = [];
  #inbox: EngineMessage[] = [];
  #reports: EngineReport[] = [];
  /** Broke down, and the recording has not come to its loss yet. */
  isDown = false;

  constructor(engine: EngineId, spec: DeviceSpec, settings: EngineSettings) {
    this.#seat = new Seat(engine);
    this.#spec = spec;
    this.#settings = settings;
    this.#device = new RecordedDevice(spec);
  }

  /** Hash of the step in flight; null when there is none. */
  get plan(): number | null {
    return this.#device.step === null ? null : planHash(this.#device.step);
  }

  send(message: EngineMessage): void {
    this.#sent.push(message);
  }

  nextReport(): EngineReport | null {
    return this.#reports.shift() ?? null;
  }

  /** The next message that the fleet has sent. */
  nextSent(): EngineMessage | null {
    return this.#sent.shift() ?? null;
  }

  /** An engine that begins here thinks this of its costs. */
  believes(costs: EngineCosts): void {
    this.#next = { ...this.#next, costs };
  }

  /** An engine that begins here is in this life of the place. */
  replaced(epoch: number): void {
    this.#next = { ...this.#next, epoch };
  }

  message({ message, atMs }: EntryOf<"message">): void {
    this.#at(atMs);
    this.#inbox.push(message);
    this.#seat.receive();
  }

  run({ atMs }: EntryOf<"run">): void {
    this.#at(atMs);
    this.#seat.turn();
  }

  answer(entry: EntryOf<"step">): void {
    this.#at(entry.atMs);
    this.#device.answer(entry);
  }

  lose(): void {
    this.#seat.close();
    this.#device = new RecordedDevice(this.#spec);
    this.#sent = [];
    this.#inbox = [];
    this.#reports = [];
    this.isDown = false;
  }

  /** An engine's life begins with the first that the recording says of it. */
  #at(atMs: number): void {
    this.#clock.now = atMs;
    if (this.#seat.engine !== null) return;
    const link = {
      next: () => this.#inbox.shift() ?? null,
      report: (report: EngineReport) => void this.#reports.push(report),
    };
    const ports = { link, device: this.#device, clock: this.#clock };
    this.#seat.open(ports, { ...this.#next, settings: this.#settings });
  }
}
