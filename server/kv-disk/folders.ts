/** Folders of stored pages: a root, in it one for each model, and in that one for each engine. */
import { createHmac } from "node:crypto";
import {
  closeSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { tryLock } from "../hub/lock.ts";
import type { KvDiskSetup } from "./protocol.ts";

const NOTE = "model.json";
const LOCK = "lock";

/** Stored pages of a model. */
export interface StoredModel {
  readonly folder: string;
  /** Name under which the model was served. */
  readonly name: string;
  readonly bytes: number;
  /** Time of the last use, in ms since 1970. */
  readonly usedMs: number;
}

/** Folder of an engine's pages. */
export function engineFolder(setup: Pick<KvDiskSetup, "root" | "identity">, engine: number): string {
  return join(modelFolder(setup), `engine-${engine}`);
}

function modelFolder({ root, identity }: Pick<KvDiskSetup, "root" | "identity">): string {
  return join(root, identity.slice(0, 32));
}

/** Records in the folder which model its pages belong to. */
export function noteModel(setup: KvDiskSetup): void {
  const folder = modelFolder(setup);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeFileSync(join(folder, NOTE), `${JSON.stringify({ name: setup.model })}\n`, { mode: 0o600 });
}

/** Models with stored pages, most recently used first. */
export function listStored(root: string): StoredModel[] {
  if (!existsSync(root)) return [];
  return readdirSync(root)
    .map((name) => join(root, name))
    .filter((folder) => existsSync(join(folder, NOTE)))
    .map((folder) => ({ folder, name: nameOf(folder), ...sizeOf(folder) }))
    .sort((a, b) => b.usedMs - a.usedMs);
}

/** Removes a model's pages; false if a server has them open. */
export function removeStored({ folder }: Pick<StoredModel, "folder">): boolean {
  const locks: number[] = [];
  try {
    for (const engine of enginesOf(folder)) {
      const lock = tryLock(join(engine, LOCK));
      if (lock === null) return false;
      locks.push(lock);
    }
    rmSync(folder, { recursive: true, force: true });
    return true;
  } finally {
    for (const lock of locks) closeSync(lock);
  }
}

/**
 * Removes the least recently used pages of other models until those take at most half of `bytesMax`. Returns
 * the bytes that are left for this model.
 */
export function shareOf(setup: Pick<KvDiskSetup, "root" | "identity" | "bytesMax">): number {
  const own = modelFolder(setup);
  let others = listStored(setup.root).filter(({ folder }) => folder !== own);
  const bytesOf = (): number => others.reduce((sum, { bytes }) => sum + bytes, 0);
  for (const other of [...others].reverse()) {
    if (bytesOf() <= setup.bytesMax / 2) break;
    if (removeStored(other)) others = others.filter((one) => one !== other);
  }
  return setup.bytesMax - Math.min(bytesOf(), setup.bytesMax / 2);
}

/** Derives the secret for one use of the key; null without a key. */
export function secretFor(key: Uint8Array | null, use: "ids" | "pages"): Uint8Array | null {
  return key === null ? null : createHmac("sha256", key).update(`bunting kv ${use}`).digest();
}

function nameOf(folder: string): string {
  try {
    const { name } = JSON.parse(readFileSync(join(folder, NOTE), "utf8"));
    return typeof name === "string" ? name : "?";
  } catch {
    return "?";
  }
}

function sizeOf(folder: string): { readonly bytes: number; readonly usedMs: number } {
  let bytes = 0;
  let usedMs = statSync(join(folder, NOTE)).mtimeMs;
  for (const engine of enginesOf(folder)) {
    for (const name of readdirSync(engine)) {
      const stats = statSync(join(engine, name), { throwIfNoEntry: false });
      bytes += stats?.size ?? 0;
      usedMs = Math.max(usedMs, stats?.mtimeMs ?? 0);
    }
  }
  return { bytes, usedMs };
}

function enginesOf(folder: string): string[] {
  return readdirSync(folder)
    .filter((name) => name.startsWith("engine-"))
    .map((name) => join(folder, name));
}
