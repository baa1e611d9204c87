/** The flight recorder: writes down what fleet and engines are told and what they decide (scheduler/recording/flight.ts). */

import type { EngineId, SequenceId, SequenceSpec, Step, StepResult } from "../../scheduler/core.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { Engine } from "../../scheduler/engine/engine.ts";
import {
  type EngineLink,
  Fleet,
  type FleetOptions,
  type SequenceListener,
  type Unplaced,
} from "../../scheduler/fleet/fleet.ts";
import type { Placement } from "../../scheduler/fleet/placement.ts";
import type { EngineMessage, EngineReport } from "../../scheduler/messages.ts";
import { type FlightEntry, planHash } from "../../scheduler/recording/flight.ts";
import { LoopClock } from "../engines/loop-clock.ts";

/**
 * A fleet that writes down what it is told. Each call is a turn of its clock; what a listener does in answer to one is
 * part of that turn, and written after it.
 */
export class RecordedFleet extends Fleet {
  readonly #clock: LoopClock;
  readonly #write: (entry: FlightEntry) => void;
  readonly #placed: Map<SequenceId, Placement>;
  /** By engine. */
  readonly #epochs: number[];
  /** A call is on the stack: those from within it belong to its turn. */
  #isInTurn = false;

  constructor(
    engines: readonly { readonly link: EngineLink; readonly spec: DeviceSpec }[],
    options: Omit<FleetOptions, "clock">,
    write: (entry: FlightEntry) => void,
  ) {
    const clock = new LoopClock();
    const placed = new Map<SequenceId, Placement>();
    const onPlacement = (sequence: SequenceId, placement: Placement): void => {
      placed.set(sequence, placement);
      options.onPlacement(sequence, placement);
    };
    super(engines, { ...options, clock, onPlacement });
    this.#clock = clock;
    this.#write = write;
    this.#placed = placed;
    this.#epochs = engines.map(() => 0);
  }

  override submit(spec: Unplaced, listener: SequenceListener): SequenceId {
    const id = this.#turn(() => super.submit(spec, listener));
    this.#noteCall({ ...spec, id, drawnTokens: [] });
    return id;
  }

  override submitGang(specs: readonly Unplaced[], listeners: readonly SequenceListener[]): SequenceId[] {
    const ids = this.#turn(() => super.submitGang(specs, listeners));
    ids.forEach((id, i) => {
      this.#noteCall({ ...specs[i]!, id, drawnTokens: [] });
    });
    return ids;
  }

  override abort(sequence: SequenceId): void {
    this.#turn((atMs) => {
      this.#write({ kind: "abort", atMs, sequence });
      super.abort(sequence);
    });
  }

  override pause(sequence: SequenceId): void {
    this.#turn((atMs) => {
      this.#write({ kind: "pause", atMs, sequence });
      super.pause(sequence);
    });
  }

  override resume(sequence: SequenceId): void {
    this.#turn((atMs) => {
      this.#write({ kind: "resume", atMs, sequence });
      super.resume(sequence);
    });
  }

  override report(engine: EngineId, report: EngineReport): void {
    const epoch = this.#epochs[engine]!;
    this.#turn((atMs) => {
      this.#write({ kind: "reported", atMs, engine, epoch, report: report.number });
      super.report(engine, report);
    });
    this.#placed.clear(); // of sequences that were moved
  }

  override lost(engine: EngineId, reason: string, isComing = false): void {
    this.#turn((atMs) => {
      this.#write({ kind: "lost", atMs, engine, reason, isComing });
      super.lost(engine, reason, isComing);
    });
    this.#placed.clear(); // what is placed again is decided again in a replay, and not compared
  }

  override replaced(engine: EngineId, link: EngineLink, spec: DeviceSpec, epoch: number): void {
    this.#epochs[engine] = epoch;
    this.#turn((atMs) => {
      this.#write({ kind: "replaced", atMs, engine, epoch });
      super.replaced(engine, link, spec, epoch);
    });
    this.#placed.clear();
  }

  #turn<Result>(act: (atMs: number) => Result): Result {
    if (this.#isInTurn) return act(this.#clock.nowMs());
    this.#clock.turn();
    this.#isInTurn = true;
    try {
      return act(this.#clock.nowMs());
    } finally {
      this.#isInTurn = false;
    }
  }

  /** After it was placed, with where. */
  #noteCall(sequence: SequenceSpec): void {
    const placement = this.#placed.get(sequence.id);
    this.#placed.delete(sequence.id);
    this.#write({
      kind: "call",
      atMs: this.#clock.nowMs(),
      sequence,
      engine: placement?.engine ?? null,
      reason: placement?.reason ?? "only",
    });
  }
}

/** What an engine's thread writes down. Entries are handed on before the report that they led to, and before the thread
 *  sleeps. */
export class EngineRecorder {
  readonly #engine: EngineId;
  readonly #clock: LoopClock;
  readonly #hand: (entries: readonly FlightEntry[]) => void;
  #entries: FlightEntry[] = [];

  constructor(engine: EngineId, clock: LoopClock, hand: (entries: readonly FlightEntry[]) => void) {
    this.#engine = engine;
    this.#clock = clock;
    this.#hand = hand;
  }

  /** The engine, recorded. */
  watch(engine: Engine): Pick<Engine, "receive" | "run"> {
    return {
      receive: (message: EngineMessage) => {
        this.#note({ kind: "message", atMs: this.#clock.nowMs(), engine: this.#engine, message });
        engine.receive(message);
      },
      run: () => {
        this.#note({ kind: "run", atMs: this.#clock.nowMs(), engine: this.#engine });
        engine.run();
        this.flush();
      },
    };
  }

  /** To be told a step's result before the engine is. */
  answered(step: Step, result: StepResult): void {
    const isDone = result.kind === "done";
    this.#note({
      kind: "step",
      atMs: this.#clock.nowMs(),
      engine: this.#engine,
      result: result.kind,
      deviceMs: isDone ? result.deviceMs : 0,
      sampled: isDone ? result.sampled : [],
      plan: planHash(step),
    });
  }

  flush(): void {
    if (this.#entries.length > 0) this.#hand(this.#entries);
    this.#entries = [];
  }

  #note(entry: FlightEntry): void {
    this.#entries.push(entry);
  }
}
