import type { Bunting } from "./client.ts";
import { type FailedValue, ValueError } from "./errors.ts";
import type { Cell, Settled } from "./graph.ts";
import { type Wanted, want } from "./run.ts";

/** How a value is awaited: `latency`, `throughput`, or targets such as `ttft:200` and `tbt:50`, in milliseconds. */
export type Criteria =
  | "latency"
  | "throughput"
  | `ttft:${number}`
  | `tbt:${number}`
  | `ttft:${number},tbt:${number}`;

export interface GetOptions {
  /** Default: the one of `configure`. */
  readonly client?: Bunting;
  /** Gives up waiting; a program that nobody waits for any more is ended. */
  readonly signal?: AbortSignal;
}

/** A value, or why there is none. */
export type Result<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: FailedValue };

/**
 * A value that the server computes when it, or something made of it, is asked for: once, however many ask. Nothing is sent before
 * that. What is asked for in one go (`Promise.all([a.get(), b.get()])`) is one program.
 */
export class Value<T> {
  /** @internal */
  readonly cell: Cell;
  /** @internal */
  readonly read: (value: string | readonly string[]) => T;

  /** @internal */
  constructor(cell: Cell, read: (value: string | readonly string[]) => T) {
    this.cell = cell;
    this.read = read;
  }

  /** The value. Rejects with ValueError when it failed, with ServerError when the server refused. */
  async get(criteria: Criteria = "latency", options: GetOptions = {}): Promise<T> {
    const settled = await this.#want(criteria, options, null);
    if ("failure" in settled) throw new ValueError(settled.failure);
    return this.read(settled.value);
  }

  /** The value or its failure, as a value; rejects only with ServerError. */
  async result(criteria: Criteria = "latency", options: GetOptions = {}): Promise<Result<T>> {
    const settled = await this.#want(criteria, options, null);
    if ("failure" in settled) return { ok: false, error: settled.failure };
    return { ok: true, value: this.read(settled.value) };
  }

  /** The text as it is drawn; of a value with transforms, all of it when it is there. */
  async *stream(
    criteria: Criteria = "latency",
    options: GetOptions = {},
  ): AsyncGenerator<string, void, void> {
    const pieces: string[] = [];
    let wake = (): void => {};
    let isOver = false;
    const leaving = new AbortController();
    const leave = (): void => leaving.abort(options.signal?.reason);
    options.signal?.addEventListener("abort", leave, { once: true });
    const settled = this.#want(criteria, { ...options, signal: leaving.signal }, (piece) => {
      pieces.push(piece);
      wake();
    });
    const over = settled.then(
      () => {},
      () => {},
    );
    void over.then(() => {
      isOver = true;
      wake();
    });
    try {
      for (;;) {
        const piece = pieces.shift();
        if (piece !== undefined) yield piece;
        else if (isOver) break;
        else
          await new Promise<void>((resolve) => {
            wake = resolve;
            if (isOver || pieces.length > 0) resolve();
          });
      }
      const end = await settled;
      if ("failure" in end) throw new ValueError(end.failure);
    } finally {
      options.signal?.removeEventListener("abort", leave);
      leaving.abort(); // a caller that breaks out of the loop does not wait any more
    }
  }

  #want(criteria: Criteria, { client, signal }: GetOptions, onText: Wanted["onText"]): Promise<Settled> {
    return want({ cell: this.cell, criteria, signal, onText }, client);
  }
}

/** A value that is known already. */
export function value(text: string): Value<string>;
export function value(texts: readonly string[]): Value<string[]>;
export function value(known: string | readonly string[]): Value<string> | Value<string[]> {
  const cell: Cell = { label: "value", producer: null, settled: { value: known }, running: null };
  return new Value(cell, (wire) => wire) as Value<string> | Value<string[]>;
}
