import type { EngineHandle } from "../../gpu/native.ts";
import type { StoredId } from "./page-ids.ts";
import type { StoreCounts } from "./store-counts.ts";

/** Settings of the tier on disk for all engines of a model. */
export interface KvDiskSetup {
  /** URL of worker.ts. */
  readonly workerUrl: string;
  /** Folder of all models. */
  readonly root: string;
  /** Model's name, for people. */
  readonly model: string;
  /** Identity of the bits of a page: 64 hexadecimal digits. */
  readonly identity: string;
  /** Bytes of this model's pages at most; each engine has an equal share. */
  readonly bytesMax: number;
  readonly engines: number;
  readonly pageBytes: number;
  /** Size of a recurrent state; 0: the model has none. */
  readonly stateBytes: number;
  readonly pageTokens: number;
  /** 32 bytes that encrypt the pages; null: they are not encrypted. */
  readonly key: Uint8Array | null;
}

/** Bytes of pages on their way to the disk at most, but at least so many pages. */
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
  /** Port of `DiskTask`s and of the answers. */
  readonly port: MessagePort;
  /** Words of side-thread.ts. */
  readonly words: SharedArrayBuffer;
  /** Pages on their way to the disk, in a ring of slots. */
  readonly slots: SharedArrayBuffer;
  /** The engine's doorbell, rung for each answer. */
  readonly doorbell: SharedArrayBuffer;
}

/** Number of pieces of up to a page's size that a state is stored in. */
export function statePages({ pageBytes, stateBytes }: Pick<KvDiskSetup, "pageBytes" | "stateBytes">): number {
  return Math.ceil(stateBytes / pageBytes);
}

/** Bytes [from, end) of a state that are a piece of it. */
export function pieceAt(
  { pageBytes, stateBytes }: Pick<KvDiskSetup, "pageBytes" | "stateBytes">,
  piece: number,
): readonly [from: number, end: number] {
  return [piece * pageBytes, Math.min((piece + 1) * pageBytes, stateBytes)];
}

export type DiskTask =
  /** The engine whose pages are written. */
  | { readonly kind: "attach"; readonly library: string; readonly engine: EngineHandle }
  /** Pages or pieces in consecutive slots, the first one after those of the task before. */
  | { readonly kind: "store"; readonly ids: readonly StoredId[]; readonly used: readonly StoredId[] }
  /** A page or piece in a place of the engine's host memory. */
  | { readonly kind: "storePlace"; readonly id: StoredId; readonly place: number }
  | {
      readonly kind: "load";
      readonly job: number;
      readonly ids: readonly StoredId[];
      /** The kind of `pages`: pages of the device, or places in the host's memory. */
      readonly to: "pages" | "places";
      readonly pages: Int32Array;
      /** State slot, and the ids of its pieces; null: none. */
      readonly state: { readonly slot: number; readonly ids: readonly StoredId[] } | null;
    };

export type DiskAnswer =
  | { readonly kind: "opened"; readonly ids: readonly StoredId[]; readonly isReadOnly: boolean }
  /** The store cannot be used. */
  | { readonly kind: "failed" }
  /** A page or piece of a store task left its slot. */
  | { readonly kind: "stored"; readonly id: StoredId; readonly isStored: boolean }
  /** `right`: as in `LowerTier.load`. */
  | { readonly kind: "loaded"; readonly job: number; readonly right: number; readonly tookMs: number }
  /** Counts since the last such answer. */
  | { readonly kind: "counted"; readonly counts: Readonly<StoreCounts> }
  /** Pages that are no longer there. */
  | { readonly kind: "gone"; readonly ids: readonly StoredId[] };
