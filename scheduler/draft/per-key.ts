import type { SequenceSpec } from "../core.ts";

/** Fields of a sequence that identify its owner. */
export type Keyed = Pick<SequenceSpec, "adapter" | "cacheSalt" | "service">;

/** Keys kept at most; the least recently used is dropped. */
const KEYS_MAX = 1024;

/**
 * Values by tenant, cache salt and adapter. Texts and acceptance rates of one key influence neither the drafts of
 * another nor how many of them are verified. Otherwise clients could infer others' texts from their own latency
 * (a timing side channel).
 */
export class PerKey<Value> {
  readonly #values = new Map<string, Value>();
  readonly #make: () => Value;

  constructor(make: () => Value) {
    this.#make = make;
  }

  /** The values, the least recently used first. */
  get all(): IterableIterator<readonly [string, Value]> {
    return this.#values.entries();
  }

  /** The value of a sequence's key, which becomes the latest used. */
  of({ adapter, cacheSalt, service }: Keyed): Value {
    const key = JSON.stringify([adapter, cacheSalt, service.tenant]);
    const value = this.#values.get(key) ?? this.#make();
    this.#values.delete(key);
    this.#values.set(key, value);
    if (this.#values.size > KEYS_MAX) this.drop(this.#values.keys().next().value!);
    return value;
  }

  drop(key: string): void {
    this.#values.delete(key);
  }
}
