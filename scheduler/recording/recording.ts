import type { TokenId } from "../../base/token.ts";
import type { TierCosts } from "../cache/lower-tier.ts";
import type {
  EngineId,
  PrefixHint,
  Sampled,
  SequenceId,
  SequenceSpec,
  Service,
  Step,
  StepResult,
} from "../core.ts";
import type { OnlineState } from "../cost/online.ts";
import type { DeviceSpec } from "../device.ts";
import type { PlacementReason } from "../fleet/placement.ts";
import type { EngineMessage } from "../messages.ts";
import type { ServedPolicy } from "../policy.ts";

/**
 * Version of the recording format and of the scheduler's rules. Raise it when you change either: under other
 * rules a replay of an old recording would diverge. A test pins the decisions of this version.
 */
export const RECORDING_VERSION = 61;

/**
 * Head of a recording. Entries follow in the order in which they happened on their thread. They hold all
 * inputs of the fleet and of each engine, so that the same code repeats the same decisions. They also hold
 * the decisions (as hashes), so that a replay finds the first divergence.
 */
export interface RecordingHead {
  readonly kind: "head";
  readonly version: typeof RECORDING_VERSION;
  readonly policy: ServedPolicy;
  /** Device specs by engine. */
  readonly specs: readonly DeviceSpec[];
  /** Waiting sequences per engine at most. */
  readonly queueMax: number;
  /** Public texts in tokens. */
  readonly publicTexts: readonly (readonly TokenId[])[];
}

/**
 * Input or decision. `atMs` is the clock of its turn: a thread reads its clock once per turn, so that a
 * replay reads the same.
 */
export type RecordingEntry =
  /** Fleet: a client's sequence and its placement. Neighbours submitted together are placed together. */
  | {
      readonly kind: "call";
      readonly atMs: number;
      readonly sequence: SequenceSpec;
      /** First sequence of those submitted together. */
      readonly first: SequenceId;
      readonly engine: EngineId | null;
      readonly reason: PlacementReason;
    }
  | {
      readonly kind: "abort" | "pause" | "resume" | "release";
      readonly atMs: number;
      readonly sequence: SequenceId;
    }
  /** Fleet: a sequence's service was raised. */
  | {
      readonly kind: "raise";
      readonly atMs: number;
      readonly sequence: SequenceId;
      readonly service: Service;
    }
  /** Fleet: a prefix hint was announced, extended or ended. */
  | { readonly kind: "expect"; readonly atMs: number; readonly hint: PrefixHint }
  | {
      readonly kind: "extend";
      readonly atMs: number;
      readonly hint: SequenceId;
      readonly tokens: ArrayLike<TokenId>;
    }
  | {
      readonly kind: "forget";
      readonly atMs: number;
      readonly hint: SequenceId;
      readonly givesUp: boolean;
    }
  /** Fleet: an engine's report number `report` (0, 1, 2 … per epoch) arrived. */
  | {
      readonly kind: "reported";
      readonly atMs: number;
      readonly engine: EngineId;
      readonly epoch: number;
      readonly report: number;
    }
  /** Fleet: an engine was lost; `isComing`: another will replace it. */
  | {
      readonly kind: "lost";
      readonly atMs: number;
      readonly engine: EngineId;
      readonly reason: string;
      readonly isComing: boolean;
    }
  | { readonly kind: "replaced"; readonly atMs: number; readonly engine: EngineId; readonly epoch: number }
  /**
   * Cost model of an engine from now on: the engine's own (first entry of its life), or the fleet's view of
   * it.
   */
  | {
      readonly kind: "costs";
      readonly atMs: number;
      readonly engine: EngineId;
      readonly state: OnlineState;
    }
  /** Engine: received a message in this turn. */
  | {
      readonly kind: "message";
      readonly atMs: number;
      readonly engine: EngineId;
      readonly message: EngineMessage;
    }
  /** Engine: `run` was called after the messages of this turn. */
  | { readonly kind: "run"; readonly atMs: number; readonly engine: EngineId }
  /** Engine: its device finished the step in flight; `plan` is the hash of that step's chunks and pages. */
  | {
      readonly kind: "step";
      readonly atMs: number;
      readonly engine: EngineId;
      readonly result: StepResult["kind"];
      readonly deviceMs: number;
      readonly draftsMs?: number;
      readonly sampled: readonly Sampled[];
      readonly plan: number;
    }
  /** Engine: it has a lower tier, with these costs from now on. */
  | {
      readonly kind: "tierCosts";
      readonly atMs: number;
      readonly engine: EngineId;
      readonly costs: TierCosts;
    }
  /** Engine: its tier answered a lookup, a price or a store. The next one of the engine answers the next call. */
  | { readonly kind: "tierAnswer"; readonly atMs: number; readonly engine: EngineId; readonly answer: number }
  /** Engine: a load of its tier ended; `load` is its number, 0, 1, 2 … in the engine's life. */
  | {
      readonly kind: "loaded";
      readonly atMs: number;
      readonly engine: EngineId;
      readonly load: number;
      readonly right: number;
      readonly fromHost: number;
    };

/** Entries of one kind. */
export type EntryOf<Kind extends RecordingEntry["kind"]> = Extract<RecordingEntry, { readonly kind: Kind }>;

/** First difference between a replay's decisions and the recording; null: none. */
export type Divergence = {
  readonly entry: number;
  readonly atMs: number;
  readonly recorded: string;
  readonly replayed: string;
} | null;

/** 32-bit hash of a step: its sequences, their adapters, tokens, pages, state slots and draft requests. */
export function planHash({ number, moves, chunks }: Step): number {
  let hash = mix(0x2545f491, number);
  for (const { from, to, count } of moves) hash = mix(mix(mix(hash, from), to), count);
  for (const { sequence, start, tokens, pages, samples, state, drafts, unread, adapter } of chunks) {
    hash = mix(mix(mix(hash, sequence), start), tokens.length);
    if (adapter !== 0) hash = mix(mix(hash, adapter), adapter / 2 ** 32);
    for (let i = 0; i < tokens.length; i++) hash = mix(hash, tokens[i]!);
    for (let i = 0; i < pages.length; i++) hash = mix(hash, pages[i]!);
    for (const row of samples) {
      hash = mix(mix(hash, row.afterIndex), row.wants === "hidden" ? -1 : row.position);
    }
    if (drafts !== undefined) hash = mix(hash, drafts);
    if (unread !== undefined) hash = mix(hash, unread?.length ?? -1);
    if (state === undefined) continue;
    hash = mix(mix(hash, state.slot), state.from ?? -1);
    for (const { count, slot } of state.saves) hash = mix(mix(hash, count), slot);
  }
  return hash >>> 0;
}

function mix(hash: number, value: number): number {
  const x = Math.imul(hash ^ value, 0x21f0aaad);
  return x ^ (x >>> 15);
}
