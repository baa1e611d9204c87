import { assert } from "../../base/assert.ts";
import type { Pooling } from "../../base/token.ts";
import type { HiddenRow } from "../core.ts";

/**
 * Pools the hidden states of a sequence's tokens. Each is added once, by rising position, so that the result
 * does not depend on the chunks, and a preemption loses nothing.
 */
export class Pool {
  readonly #pooling: Pooling;
  /** Number of tokens of the sequence. */
  readonly #length: number;
  #sum: Float64Array | null = null;
  #added = 0;

  constructor(pooling: Pooling, length: number) {
    this.#pooling = pooling;
    this.#length = length;
  }

  /**
   * Position of the first token whose hidden state is still needed; the prefix cache may have the tokens before
   * it.
   */
  get next(): number {
    return this.#pooling === "last" ? this.#length - 1 : this.#added;
  }

  /** The rows of tokens [start, end), which are computed next. */
  rows(start: number, end: number): HiddenRow[] {
    const until = this.#pooling === "first" ? Math.min(1, end) : end;
    const rows: HiddenRow[] = [];
    for (let position = Math.max(start, this.next); position < until; position++) {
      rows.push({ wants: "hidden", afterIndex: position - start });
    }
    return rows;
  }

  /** Adds the next hidden state. Returns the result with the last one, else null. */
  add(hidden: Float32Array): Float32Array | null {
    this.#sum ??= new Float64Array(hidden.length);
    const sum = this.#sum;
    assert(sum.length === hidden.length, "hidden states of a sequence have one length");
    for (let i = 0; i < sum.length; i++) sum[i]! += hidden[i]!;
    this.#added += 1;
    const wanted = this.#pooling === "mean" ? this.#length : 1;
    assert(this.#added <= wanted, "each hidden state is wanted once");
    return this.#added < wanted ? null : Float32Array.from(sum, (value) => value / wanted);
  }
}
