/**
 * Shared words by which an engine's thread wakes and stops a side thread, and lets it call the engine until
 * that closes.
 */

/** Rises with every task; the side thread sleeps on it. */
export const RINGS = 0;
/** `OPEN`; `CALLING` while the side thread calls the engine; `SHUT` once it must not call any more. */
const GATE = 1;
/** 1 when the side thread has ended. */
const ENDED = 2;
/** 1 when the side thread must end. */
const STOPPED = 3;
const WORDS = 4;

const OPEN = 0;
const CALLING = 1;
const SHUT = 2;

/** Maximum wait for the side thread's end, and between two looks at the gate. */
const END_MS_MAX = 5000;

export type SideWords = Int32Array<SharedArrayBuffer>;

export function makeSideWords(): SideWords {
  return new Int32Array(new SharedArrayBuffer(WORDS * Int32Array.BYTES_PER_ELEMENT));
}

/** Wakes the side thread. */
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

/**
 * Calls the engine, unless it is closing. Returns false if it is, or if the call fails; the engine's own
 * thread notices the failure too.
 */
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

/**
 * Ends the side thread, for which it waits up to END_MS_MAX. Then waits until the thread is in no call of the
 * engine, and forbids further ones.
 */
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
