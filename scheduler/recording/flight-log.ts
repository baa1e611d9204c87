import type { Clock } from "../clock.ts";
import {
  assert,
  type EngineId,
  type SequenceId,
  type SequenceSpec,
  type Step,
  type StepResult,
} from "../core.ts";
import type { EngineCosts } from "../cost/cost-model.ts";
import { OnlineCostModel } from "../cost/online.ts";
import type { Placement } from "../fleet/placement.ts";
import type { EngineMessage, EngineReport } from "../messages.ts";
import type { SlotObserver } from "../sim/engine-slot.ts";
import { type FlightEntry, planHash } from "./flight.ts";

/** Writes down a simulated run as the flight recorder writes down a real one. */
export class FlightLog implements SlotObserver {
  readonly #clock: Pick<Clock, "nowMs">;
  readonly #write: (entry: FlightEntry) => void;
  readonly #placements = new Map<SequenceId, Placement>();

  constructor(clock: Pick<Clock, "nowMs">, write: (entry: FlightEntry) => void) {
    this.#clock = clock;
    this.#write = write;
  }

  get #atMs(): number {
    return this.#clock.nowMs();
  }

  /** A fleet has placed a sequence. */
  placed(sequence: SequenceId, placement: Placement): void {
    this.#placements.set(sequence, placement);
  }

  /** A sequence was submitted and placed. */
  called(sequence: SequenceSpec): void {
    const placement = this.#placements.get(sequence.id);
    this.#placements.delete(sequence.id);
    this.#write({
      kind: "call",
      atMs: this.#atMs,
      sequence,
      engine: placement?.engine ?? null,
      reason: placement?.reason ?? "only",
    });
  }

  lost(engine: EngineId, reason: string, isComing: boolean): void {
    this.#write({ kind: "lost", atMs: this.#atMs, engine, reason, isComing });
  }

  replaced(engine: EngineId, epoch: number): void {
    this.#write({ kind: "replaced", atMs: this.#atMs, engine, epoch });
  }

  /** The fleet believes something else of an engine's costs now. */
  believed(engine: EngineId, costs: EngineCosts): void {
    assert(costs instanceof OnlineCostModel, "a record holds beliefs that are data");
    this.#write({ kind: "costs", atMs: this.#atMs, engine, state: costs.state() });
  }

  onOpen(engine: EngineId, _epoch: number, costs: EngineCosts): void {
    this.believed(engine, costs);
  }

  onMessage(engine: EngineId, message: EngineMessage): void {
    this.#write({ kind: "message", atMs: this.#atMs, engine, message });
  }

  onRun(engine: EngineId): void {
    this.#write({ kind: "run", atMs: this.#atMs, engine });
  }

  onStep(): void {}

  onResult(engine: EngineId, step: Step, result: StepResult): void {
    const isDone = result.kind === "done";
    this.#write({
      kind: "step",
      atMs: this.#atMs,
      engine,
      result: result.kind,
      deviceMs: isDone ? result.deviceMs : 0,
      sampled: isDone ? result.sampled : [],
      plan: planHash(step),
    });
  }

  onReport(engine: EngineId, epoch: number, { number }: EngineReport): void {
    this.#write({ kind: "reported", atMs: this.#atMs, engine, epoch, report: number });
  }
}
