/**
 * Advisory file locks, the same that huggingface_hub takes. The system releases them when a process ends,
 * even if it is killed.
 */

import { dlopen } from "bun:ffi";
import { closeSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";

/** LOCK_EX of flock(2), the same on Linux and macOS. */
const LOCK_EX = 2;
const LOCK_NB = 4;
/** Interval of attempts: no event tells when a lock is released. */
const RETRY_MS = 100;

type Flock = (descriptor: number, operation: number) => number;
let flock: Flock | null | undefined;

/**
 * Runs the work while this process holds the lock. A system without such locks runs it anyway, at the cost of
 * a second download at most: concurrent writers of a file write the same bytes at the same offsets.
 */
export async function withLock<Value>(
  path: string,
  signal: AbortSignal,
  work: () => Promise<Value>,
): Promise<Value> {
  mkdirSync(dirname(path), { recursive: true });
  const descriptor = openSync(path, "a", 0o664);
  try {
    while (!take(descriptor)) {
      signal.throwIfAborted();
      await Bun.sleep(RETRY_MS);
    }
    return await work();
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Takes the lock without waiting. Returns the descriptor that holds it until it is closed; null if another
 * process has it. A system without such locks always grants it.
 */
export function tryLock(path: string): number | null {
  const descriptor = openSync(path, "a", 0o600);
  if (take(descriptor)) return descriptor;
  closeSync(descriptor);
  return null;
}

function take(descriptor: number): boolean {
  flock ??= openFlock();
  return flock === null || flock(descriptor, LOCK_EX | LOCK_NB) === 0;
}

function openFlock(): Flock | null {
  const arch = process.arch === "arm64" ? "aarch64" : "x86_64";
  for (const library of ["libc.so.6", `libc.musl-${arch}.so.1`, "libSystem.B.dylib"]) {
    try {
      return dlopen(library, { flock: { args: ["i32", "i32"], returns: "i32" } }).symbols.flock;
    } catch {
      // the C library has another name on this system
    }
  }
  return null;
}
