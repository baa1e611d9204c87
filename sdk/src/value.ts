import type { Bunting } from "./client.ts";
import { type FailedValue, ValueError } from "./errors.ts";
import type { Cell, Settled } from "./graph.ts";
import { type Wanted, want } from "./run.ts";

/**
 * Latency criteria of a value: `latency`, `throughput`, or targets such as `ttft:200` and `tbt:50`, in
 * milliseconds.
 */
export type Criteria =
  | "latency"
  | "throughput"
  | `ttft:${number}`
  | `tbt:${number}`
  | `ttft:${number},tbt:${number}`;

export interface GetOptions {
  /** Default: the client set by `configure`. */
  readonly client?: Bunting;
  /** Stops waiting on abort; a program without waiters is ended. */
  readonly signal?: AbortSignal;
}

/** A value, or the reason of its failure. */
export type Result<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: FailedValue };

/**
 * Value that the server computes once, when it or a value derived from it is first requested. Nothing is sent
 * before that. Values requested together (`Promise.all([a.get(), b.get()])`) form one program.
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

  /** Returns the value. Rejects with ValueError if it failed, with ServerError if the server refused. */
  async get(criteria: Criteria = "latency", options: GetOptions = {}): Promise<T> {
    const settled = await this.#want(criteria, options, null);
    if ("failure" in settled) throw new ValueError(settled.failure);
    return this.read(settled.value);
  }

  /** Returns the value or its failure; rejects only with ServerError. */
  async result(criteria: Criteria = "latency", options: GetOptions = {}): Promise<Result<T>> {
    const settled = await this.#want(criteria, options, null);
    if ("failure" in settled) return { ok: false, error: settled.failure };
    return { ok: true, value: this.read(settled.value) };
  }

  /** Yields the text as it is generated; a value with transforms comes as a whole. */
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
      leaving.abort(); // a caller that breaks out of the loop stops waiting
    }
  }

  #want(criteria: Criteria, { client, signal }: GetOptions, onText: Wanted["onText"]): Promise<Settled> {
    return want({ cell: this.cell, criteria, signal, onText }, client);
  }
}

/** Value that is already known. */
export function value(text: string): Value<string>;
export function value(texts: readonly string[]): Value<string[]>;
export function value(known: string | readonly string[]): Value<string> | Value<string[]> {
  const cell: Cell = { label: "value", producer: null, settled: { value: known }, running: null };
  return new Value(cell, (wire) => wire) as Value<string> | Value<string[]>;
}
