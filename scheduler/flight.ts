import type { EngineId, Sampled, SequenceId, SequenceSpec } from "./core.ts";
import type { DeviceSpec } from "./device.ts";
import type { PlacementReason } from "./dispatch/placement.ts";
import type { EngineMessage } from "./messages.ts";
import type { Policy } from "./policy.ts";

/**
 * The flight recorder's format: a head, then entries in the order in which they happened on their thread. The
 * inputs of the fleet and of each engine are all there, so the same code makes the same decisions again; the
 * decisions are there too (as hashes), so that a replay can tell where it first differs.
 */
export interface FlightHead {
  readonly kind: "head";
  readonly version: 1;
  readonly policy: Policy;
  /** By engine. */
  readonly specs: readonly DeviceSpec[];
}

/** One input or decision. `atMs` is the clock of the turn in which it happened: a thread reads its clock once per
 *  turn, so that a replay reads the same. */
export type FlightEntry =
  /** Fleet: a client's call, and where it was placed. Several neighbours of one turn with one gang are placed together. */
  | {
      readonly kind: "call";
      readonly atMs: number;
      readonly sequence: SequenceSpec;
      readonly engine: EngineId | null;
      readonly reason: PlacementReason;
    }
  | { readonly kind: "abort" | "pause" | "resume"; readonly atMs: number; readonly sequence: SequenceId }
  /** Fleet: an engine's report number `report` (0, 1, 2 … per epoch) arrived. */
  | {
      readonly kind: "reported";
      readonly atMs: number;
      readonly engine: EngineId;
      readonly epoch: number;
      readonly report: number;
    }
  | { readonly kind: "lost" | "replaced"; readonly atMs: number; readonly engine: EngineId }
  /** Engine: a message was received in this turn. */
  | {
      readonly kind: "message";
      readonly atMs: number;
      readonly engine: EngineId;
      readonly message: EngineMessage;
    }
  /** Engine: `run` was called after the messages of this turn. */
  | { readonly kind: "run"; readonly atMs: number; readonly engine: EngineId }
  /** Engine: its device answered the step in flight; `plan` is the hash of that step's chunks and pages. */
  | {
      readonly kind: "step";
      readonly atMs: number;
      readonly engine: EngineId;
      readonly result: "done" | "retry" | "lost";
      readonly deviceMs: number;
      readonly sampled: readonly Sampled[];
      readonly plan: number;
    };

/** Where a replay first decided otherwise than the recording; null when it never did. */
export type Divergence = {
  readonly entry: number;
  readonly atMs: number;
  readonly recorded: string;
  readonly replayed: string;
} | null;
