import type { SequenceSpec } from "../core.ts";

/** The part of a sequence that tells whose it is. */
export type Keyed = Pick<SequenceSpec, "adapter" | "cacheSalt" | "service">;

/** Most keys of which anything is kept, the latest used. */
const KEYS_MAX = 1024;

/**
 * Values by tenant, salt and adapter. What drafts learn from the sequences of one key influences neither the
 * drafts of another nor how many of them are checked: else clients could learn of others' texts by the time that theirs take.
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
