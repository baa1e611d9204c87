import type { KvEvents } from "../cache/kv-event.ts";
import type { EngineId, PrefixHint, SequenceId, SequenceSpec, Service } from "../core.ts";
import type { CostModel } from "../cost/cost-model.ts";
import type { DeviceSpec } from "../device.ts";
import type { EngineLoad } from "../messages.ts";
import type { Placement } from "./placement.ts";
import type { PrefixIndex } from "./prefix-index.ts";

/** An engine as a rule first sees it. */
export interface PlaceableEngine {
  readonly spec: DeviceSpec;
  readonly costs: CostModel;
}

/**
 * Port: how an engine is chosen, where there are several. One object serves one dispatcher, which tells it only of
 * sequences that it has placed and that have not ended. A rule implements the events that it needs. The same calls in
 * the same order give the same placements.
 */
export interface PlacementRule {
  /** Chooses among `there`, ascending and not empty. */
  place(spec: SequenceSpec, there: readonly EngineId[], nowMs: number): Placement;
  /** Places sequences that belong together, in the order given; by default each by itself. */
  placeTaskGroup?(
    specs: readonly SequenceSpec[],
    there: readonly EngineId[],
    nowMs: number,
  ): readonly Placement[];
  /** Waiting sequences that their engines should give back. Each is told once; by default none. */
  surplus?(
    specOf: (id: SequenceId) => SequenceSpec,
    there: readonly EngineId[],
    nowMs: number,
  ): readonly SequenceId[];
  /** Places a sequence anew that its engine has given back; by default as a new one. */
  placeAgain?(spec: SequenceSpec, there: readonly EngineId[], nowMs: number): Placement;

  /** Chooses the engine that keeps what is cached of a prefix hint. By default any. */
  expect?(hint: PrefixHint, there: readonly EngineId[], nowMs: number): EngineId;
  /** A prefix hint that was placed has become longer. */
  extended?(hint: PrefixHint, nowMs: number): void;
  /** A prefix hint is none any more. */
  forgot?(id: SequenceId): void;

  /** The sequence was admitted by its engine, with that much of its prompt cached. */
  started?(id: SequenceId, cachedTokens: number, nowMs: number): void;
  /** The sequence drew a token. The notices of the same report come first. */
  drew?(id: SequenceId): void;
  /** The sequence is served like this from now on. */
  raised?(id: SequenceId, service: Service): void;
  /** The sequence ended, was given back, or its engine is lost. `isWhole`: its answer was as long as it wanted. */
  ended?(id: SequenceId, isWhole: boolean): void;

  /** An engine reported its load. */
  reported?(engine: EngineId, load: EngineLoad): void;
  /** An engine told what its cache took in and let go. False: it is to tell everything that it has. */
  noticed?(engine: EngineId, kvEvents: KvEvents): boolean;
  /** The engine is gone, after all its sequences have ended. */
  lost?(engine: EngineId): void;
  /** The engine is back, empty, in its life number `epoch`. */
  joined?(engine: EngineId, spec: DeviceSpec, epoch: number, nowMs: number): void;

  /** Predicted milliseconds of work that were placed on the engine and are not done. For checks. */
  workMs?(engine: EngineId): number;
  /** Where prefixes are, for rules that keep them there. For checks and statistics. */
  readonly index?: PrefixIndex;
}
