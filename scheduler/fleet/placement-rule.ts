import type { KvEvents } from "../cache/kv-event-log.ts";
import type { EngineId, PrefixHint, SequenceId, SequenceSpec, Service } from "../core.ts";
import type { CostModel } from "../cost/cost-model.ts";
import type { DeviceSpec } from "../device.ts";
import type { EngineLoad } from "../messages.ts";
import type { Placement } from "./placement.ts";
import type { PrefixIndex } from "./prefix-index.ts";

/** An engine that a rule may choose. */
export interface PlaceableEngine {
  readonly spec: DeviceSpec;
  readonly costs: CostModel;
}

/**
 * Port: the choice among several engines. One object serves one dispatcher, which reports to it only
 * sequences that it has placed and that have not ended. A rule implements the events that it needs. The same
 * calls in the same order give the same placements.
 */
export interface PlacementRule {
  /** Chooses among the `live` engines, which are ascending and not empty. */
  place(spec: SequenceSpec, live: readonly EngineId[], nowMs: number): Placement;
  /** Places sequences that belong together, in the order given; by default each by itself. */
  placeTaskGroup?(
    specs: readonly SequenceSpec[],
    live: readonly EngineId[],
    nowMs: number,
  ): readonly Placement[];
  /** Waiting sequences that their engines should return. Each is named once; by default none. */
  surplus?(
    specOf: (id: SequenceId) => SequenceSpec,
    live: readonly EngineId[],
    nowMs: number,
  ): readonly SequenceId[];
  /** Places a sequence again that its engine has returned; by default like a new one. */
  placeAgain?(spec: SequenceSpec, live: readonly EngineId[], nowMs: number): Placement;

  /** Chooses the engine that keeps the cached part of a prefix hint; by default any. */
  expect?(hint: PrefixHint, live: readonly EngineId[], nowMs: number): EngineId;
  /** Records that a placed prefix hint is longer. */
  extended?(hint: PrefixHint, nowMs: number): void;
  /** Records that a prefix hint is removed. */
  forgot?(id: SequenceId): void;

  /** Records that a sequence was admitted, with `cachedTokens` of its prompt cached. */
  started?(id: SequenceId, cachedTokens: number, nowMs: number): void;
  /** Records a token. KV events of the same report come first. */
  drew?(id: SequenceId): void;
  /** Changes the service of a sequence. */
  raised?(id: SequenceId, service: Service): void;
  /**
   * Records that a sequence has ended, was returned, or has lost its engine. `isWhole`: its answer is
   * complete.
   */
  ended?(id: SequenceId, isWhole: boolean): void;

  /** Records an engine's load. */
  reported?(engine: EngineId, load: EngineLoad): void;
  /** Records an engine's KV events. False: some were missed, and it must send its whole cache. */
  noticed?(engine: EngineId, kvEvents: KvEvents): boolean;
  /** Records that an engine is lost, after all its sequences have ended. */
  lost?(engine: EngineId): void;
  /** Records that an engine is back, empty, in incarnation `epoch`. */
  joined?(engine: EngineId, spec: DeviceSpec, epoch: number, nowMs: number): void;

  /** Predicted milliseconds of unfinished work on an engine. For checks. */
  workMs?(engine: EngineId): number;
  /** The prefix index of rules that have one. For checks and statistics. */
  readonly index?: PrefixIndex;
}
