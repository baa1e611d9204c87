/**
 * Words that an engine's thread shares with a thread beside it: they wake it, tell it to end, and let it call
 * the engine until that closes.
 */

/** Rises with every task; the thread sleeps on it. */
export const RINGS = 0;
/** `OPEN`, or `CALLING` while the thread calls the engine, or `SHUT` when it must not any more. */
const GATE = 1;
/** 1 when the thread has ended. */
const ENDED = 2;
/** 1 when the thread must end. */
const STOPPED = 3;
const WORDS = 4;

const OPEN = 0;
const CALLING = 1;
const SHUT = 2;

/** Longest wait for the thread's end, and for a call. */
const END_MS_MAX = 5000;

export type SideWords = Int32Array<SharedArrayBuffer>;

export function makeSideWords(): SideWords {
  return new Int32Array(new SharedArrayBuffer(WORDS * Int32Array.BYTES_PER_ELEMENT));
}

/** Wakes the thread. */
export function ring(words: SideWords): void {
  Atomics.add(words, RINGS, 1);
  Atomics.notify(words, RINGS);
}

/** Wakes the engine's thread. */
export function ringBell(doorbell: SharedArrayBuffer): void {
  const bell = new Int32Array(doorbell);
  Atomics.add(bell, 0, 1);
  Atomics.notify(bell, 0);
}

export function isStopped(words: SideWords): boolean {
  return Atomics.load(words, STOPPED) === 1;
}

/** Records that the thread has ended. */
export function ended(words: SideWords): void {
  Atomics.store(words, ENDED, 1);
  Atomics.notify(words, ENDED);
}

/** Calls the engine, whose failure its own thread finds out about. Returns false after one, or if it closes. */
export function callEngine(words: SideWords, call: () => void): boolean {
  if (Atomics.compareExchange(words, GATE, OPEN, CALLING) !== OPEN) return false;
  try {
    call();
    return true;
  } catch {
    return false; // a lost device
  } finally {
    Atomics.store(words, GATE, OPEN);
    Atomics.notify(words, GATE);
  }
}

/** Ends the thread, after what it finishes soon. From then on it does not call the engine. */
export function stop(words: SideWords): void {
  Atomics.store(words, STOPPED, 1);
  ring(words);
  Atomics.wait(words, ENDED, 0, END_MS_MAX);
  for (;;) {
    const gate = Atomics.compareExchange(words, GATE, OPEN, SHUT);
    if (gate === OPEN || gate === SHUT) return;
    Atomics.wait(words, GATE, gate, END_MS_MAX);
  }
}
