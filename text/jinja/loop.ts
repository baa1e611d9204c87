/** The variable `loop`. */
import { fail } from "./errors.ts";
import { isEqual } from "./operators.ts";
import type { Runtime } from "./runtime.ts";
import { type Arguments, Callable, iterate, or, sizeOf, Tuple, Undefined, type Value } from "./values.ts";

/** Iterates over an iterable and knows the previous and next items. It reads items lazily. */
export class Loop {
  /** The loop as the template sees it; callable if the loop is recursive. */
  readonly value: Callable;
  readonly #rt: Runtime;
  readonly #iterable: Value;
  readonly #iterator: Iterator<Value>;
  /** Items read ahead. */
  readonly #ahead: Value[] = [];
  readonly #depth0: number;
  #index0 = -1;
  #previous: Value | undefined;
  #current: Value | undefined;
  #lastChanged: Value | undefined;

  constructor(
    rt: Runtime,
    iterable: Value,
    depth0: number,
    recurse: ((iterable: Value, depth0: number) => Value) | null,
  ) {
    this.#rt = rt;
    this.#iterable = iterable;
    this.#iterator = iterate(iterable);
    this.#depth0 = depth0;
    const call = (_: Runtime, { positional }: Arguments): Value => {
      if (recurse === null)
        return fail("TypeError", "The loop must have the 'recursive' marker to be called recursively.");
      return recurse(
        or(positional[0], () => fail("TypeError", "a loop is called with an iterable")),
        depth0 + 1,
      );
    };
    this.value = new Callable("loop", call, "LoopContext", (name) => this.#attribute(name));
  }

  /** Advances; undefined after the last item. */
  next(): Value | undefined {
    this.#fill(1);
    const item = this.#ahead.shift();
    if (item === undefined) return undefined;
    this.#index0++;
    this.#previous = this.#current;
    this.#current = item;
    return item;
  }

  /** Reads ahead until `count` items wait, or there are no more. */
  #fill(count: number): void {
    while (this.#ahead.length < count) {
      const next = this.#iterator.next();
      if (next.done) return;
      this.#rt.budget.spend(1);
      this.#ahead.push(next.value);
    }
  }

  #length(): number {
    const size = typeof this.#iterable === "string" ? undefined : sizeOf(this.#iterable);
    if (size !== undefined) return size;
    this.#fill(Number.POSITIVE_INFINITY);
    return this.#index0 + 1 + this.#ahead.length;
  }

  #attribute(name: string): Value | undefined {
    const index = this.#index0 + 1;
    switch (name) {
      case "index":
        return BigInt(index);
      case "index0":
        return BigInt(this.#index0);
      case "length":
        return BigInt(this.#length());
      case "revindex":
        return BigInt(this.#length() - this.#index0);
      case "revindex0":
        return BigInt(this.#length() - index);
      case "first":
        return this.#index0 === 0;
      case "last":
        this.#fill(1);
        return this.#ahead.length === 0;
      case "depth":
        return BigInt(this.#depth0 + 1);
      case "depth0":
        return BigInt(this.#depth0);
      case "previtem":
        return this.#index0 === 0 ? new Undefined("there is no previous item") : this.#previous!;
      case "nextitem":
        this.#fill(1);
        return or(this.#ahead[0], () => new Undefined("there is no next item"));
      case "cycle":
        return new Callable("cycle", (_, { positional }) => {
          if (positional.length === 0) fail("TypeError", "no items for cycling given");
          return positional[this.#index0 % positional.length]!;
        });
      case "changed":
        return new Callable("changed", (rt, { positional }) => {
          const value = new Tuple(positional);
          if (this.#lastChanged !== undefined && isEqual(rt, this.#lastChanged, value)) return false;
          this.#lastChanged = value;
          return true;
        });
      default:
        return undefined;
    }
  }
}
