import type { Mask } from "./vocabulary.ts";

/**
 * Pool of unused mask buffers. Masks are large and are made often, so garbage collection of them would delay
 * steps.
 */
export class MaskMemory {
  readonly #words: number;
  readonly #free: Mask[] = [];

  /** Pools masks for a vocabulary of `tokens` tokens. */
  constructor(tokens: number) {
    this.#words = Math.ceil(tokens / 32);
  }

  /** Size of one mask. */
  get bytes(): number {
    return 4 * this.#words;
  }

  /** Mask without a token. */
  none(): Mask {
    return this.#free.pop()?.fill(0) ?? new Uint32Array(this.#words);
  }

  copyOf(mask: Mask): Mask {
    const copy = this.#free.pop() ?? new Uint32Array(this.#words);
    copy.set(mask);
    return copy;
  }

  /** Takes back masks that nobody reads any more. */
  giveBack(...masks: readonly Mask[]): void {
    this.#free.push(...masks);
  }
}

/**
 * Makes the entry the newest of at most `most`. Evicts and returns the value that was remembered the longest
 * ago.
 */
export function remember<Key, Value>(
  entries: Map<Key, Value>,
  key: Key,
  value: Value,
  most: number,
): Value | undefined {
  entries.delete(key);
  let gone: Value | undefined;
  if (entries.size >= most) {
    const [oldest, of] = entries.entries().next().value!;
    entries.delete(oldest);
    gone = of;
  }
  entries.set(key, value);
  return gone;
}
