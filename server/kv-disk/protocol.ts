import type { EngineHandle } from "../../gpu/native.ts";
import type { StoredId } from "./page-ids.ts";
import type { StoreCounts } from "./store-counts.ts";

/** Settings of the KV tier on disk, for all engines of a model. */
export interface KvDiskSetup {
  /** URL of worker.ts. */
  readonly workerUrl: string;
  /** Folder of all models. */
  readonly root: string;
  /** Model's name, for people. */
  readonly model: string;
  /** Identity of model, formats and kernels (plan.ts): 64 hexadecimal digits. */
  readonly identity: string;
  /** Maximum bytes of this model's pages; each engine has an equal share. */
  readonly bytesMax: number;
  readonly engines: number;
  readonly pageBytes: number;
  /** Bytes of a recurrent state; 0 if the model has none. */
  readonly stateBytes: number;
  readonly pageTokens: number;
  /** 32 bytes that encrypt the pages; null: they are not encrypted. */
  readonly key: Uint8Array | null;
}

/** Maximum bytes of pages that wait to be written, and the pages that are allowed in any case. */
const WAITING_BYTES_MAX = 32 * 2 ** 20;
const WAITING_PAGES_MIN = 4;

/** Number of pages of an engine that may wait to be written. */
export function waitingPages(pageBytes: number): number {
  return Math.max(WAITING_PAGES_MIN, Math.floor(WAITING_BYTES_MAX / pageBytes));
}

/** First message to the thread of a store. */
export interface DiskStart {
  readonly setup: KvDiskSetup;
  readonly engine: number;
  /** Port of `DiskTask`s and of their replies. */
  readonly port: MessagePort;
  /** Words shared with side-thread.ts. */
  readonly words: SharedArrayBuffer;
  /** Pages that wait to be written, in a ring of slots. */
  readonly slots: SharedArrayBuffer;
  /** The engine's doorbell, rung for each reply. */
  readonly doorbell: SharedArrayBuffer;
}

/** Number of pieces, each of up to a page's size, in which a state is stored. */
export function statePages({ pageBytes, stateBytes }: Pick<KvDiskSetup, "pageBytes" | "stateBytes">): number {
  return Math.ceil(stateBytes / pageBytes);
}

/** Byte range of a piece within its state. */
export function pieceAt(
  { pageBytes, stateBytes }: Pick<KvDiskSetup, "pageBytes" | "stateBytes">,
  piece: number,
): readonly [from: number, end: number] {
  return [piece * pageBytes, Math.min((piece + 1) * pageBytes, stateBytes)];
}

export type DiskTask =
  /** Sent once: library and handle of the engine whose pages are written. */
  | { readonly kind: "attach"; readonly library: string; readonly engine: EngineHandle }
  /**
   * Stores pages or pieces in consecutive slots, which follow those of the task before. `used`: pages to mark
   * as used.
   */
  | { readonly kind: "store"; readonly ids: readonly StoredId[]; readonly used: readonly StoredId[] }
  /** Stores a page or piece from a place in the engine's host memory. */
  | { readonly kind: "storePlace"; readonly id: StoredId; readonly place: number }
  | {
      readonly kind: "load";
      readonly job: number;
      readonly ids: readonly StoredId[];
      /** Meaning of `pages`: pages of the device, or places in host memory. */
      readonly to: "pages" | "places";
      readonly pages: Int32Array;
      /** State slot, and the ids of its pieces; null: none. */
      readonly state: { readonly slot: number; readonly ids: readonly StoredId[] } | null;
    };

export type DiskAnswer =
  | { readonly kind: "opened"; readonly ids: readonly StoredId[]; readonly isReadOnly: boolean }
  /** The store cannot be used. */
  | { readonly kind: "failed" }
  /** A page or piece was written, or given up if not `isStored`; its slot or place is free. */
  | { readonly kind: "stored"; readonly id: StoredId; readonly isStored: boolean }
  /** `right`: as in `LowerTier.load`. */
  | { readonly kind: "loaded"; readonly job: number; readonly right: number; readonly tookMs: number }
  /** Counts since the last such answer. */
  | { readonly kind: "counted"; readonly counts: Readonly<StoreCounts> }
  /** Pages that the store has dropped. */
  | { readonly kind: "gone"; readonly ids: readonly StoredId[] };
