/** Pages whose contents follow from their ids, for tests of the store on disk; as a program, a writer to kill. */
import { PageStore, type StoreOptions } from "../../server/kv-disk/page-store.ts";

export const STORED_PAGE_BYTES = 700;
export const storedIdentity = "ab".repeat(32);

export function storedId(number: number): string {
  return new Bun.CryptoHasher("sha256").update(`page ${number}`).digest().toString("latin1");
}

/** Contents of the page with this id. */
export function storedPage(id: string): Uint8Array<ArrayBuffer> {
  const page = new Uint8Array(STORED_PAGE_BYTES);
  let state = Buffer.from(id, "latin1").readUInt32LE(0);
  for (let i = 0; i < page.length; i += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    page[i] = state >>> 24;
  }
  return page;
}

export function openStored(folder: string, changes: Partial<StoreOptions> = {}): PageStore {
  return new PageStore({
    folder,
    identity: storedIdentity,
    pageBytes: STORED_PAGE_BYTES,
    bytesMax: 2 ** 20,
    secret: null,
    ...changes,
  });
}

/** Reads all pages; throws if one is not as it was stored. Returns the number of those that were read. */
export function checkStored(store: PageStore): number {
  const page = new Uint8Array(STORED_PAGE_BYTES);
  let right = 0;
  for (const id of [...store.ids()]) {
    if (!store.get(id, page)) continue;
    if (Buffer.compare(page, storedPage(id)) !== 0) throw new Error("a page has other contents than stored");
    right += 1;
  }
  return right;
}

/** Writes pages until it is killed: `bun stored-pages.ts <folder> <first number> <secret in hex or "">`. */
function writeForever(folder: string, first: number, secret: string): never {
  const key = secret === "" ? null : Buffer.from(secret, "hex");
  const store = openStored(folder, { secret: key, bytesMax: 2 ** 16 });
  for (let number = first; ; number += 1) {
    store.put(storedId(number), storedPage(storedId(number)));
    if (number === first) console.log("writes");
  }
}

if (import.meta.main) writeForever(process.argv[2]!, Number(process.argv[3]), process.argv[4] ?? "");
