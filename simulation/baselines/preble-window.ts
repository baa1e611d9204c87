import type { SequenceId } from "../../scheduler/core.ts";
import type { PrebleNode } from "./preble-tree.ts";

/** Window H: three minutes (§3.2). */
export const WINDOW_MS = 180_000;

/** Request placed in the window. */
export interface PrebleRequest {
  readonly gpu: number;
  /** Tree node at the end of its path; null: its prompt has no whole page. */
  readonly end: PrebleNode | null;
  /** Prefill time of its uncached tokens, in whole microseconds so that sums are exact. */
  readonly prefillUs: number;
  readonly tokens: number;
  readonly placedMs: number;
}

/** Waiting time of a request in the window, until it began. */
export interface PrebleWait {
  readonly end: PrebleNode;
  /** True in the window's second half. */
  readonly isLate: boolean;
  readonly waitedMs: number;
}

interface Entry {
  readonly request: PrebleRequest;
  waitedMs: number | null;
}

/** Sums over one GPU's requests in the window. */
interface Totals {
  requests: number;
  prefillUs: number;
  tokens: number;
  /** Number of answers that ended in the window. */
  outputs: number;
  outputTokens: number;
}

/**
 * History H of Preble's global scheduler (arXiv:2407.00023 §3.2): requests placed and answers ended in the
 * last three minutes, with their sums per GPU.
 */
export class PrebleWindow {
  readonly #onExpired: (request: PrebleRequest) => void;
  readonly #totals: readonly Totals[];
  /** Entries, oldest first. */
  #entries: Entry[] = [];
  #outputs: { readonly gpu: number; readonly tokens: number; readonly atMs: number }[] = [];
  /** Requests that have not ended, with the tokens they have drawn. */
  readonly #open = new Map<SequenceId, { readonly entry: Entry; drawn: number }>();
  #nowMs = 0;

  /** `onExpired` receives each request that leaves the window. */
  constructor(gpus: number, onExpired: (request: PrebleRequest) => void) {
    this.#onExpired = onExpired;
    this.#totals = Array.from({ length: gpus }, () => {
      return { requests: 0, prefillUs: 0, tokens: 0, outputs: 0, outputTokens: 0 };
    });
  }

  advance(nowMs: number): void {
    this.#nowMs = nowMs;
    const beginMs = nowMs - WINDOW_MS;
    this.#entries = dropWhile(
      this.#entries,
      ({ request }) => request.placedMs <= beginMs,
      ({ request }) => {
        this.#count(request, -1);
        this.#onExpired(request);
      },
    );
    this.#outputs = dropWhile(
      this.#outputs,
      ({ atMs }) => atMs <= beginMs,
      ({ gpu, tokens }) => this.#countOutput(gpu, tokens, -1),
    );
  }

  placed(id: SequenceId, request: PrebleRequest): void {
    const entry = { request, waitedMs: null };
    this.#count(request, 1);
    this.#entries.push(entry);
    this.#open.set(id, { entry, drawn: 0 });
  }

  started(id: SequenceId, nowMs: number): void {
    this.#nowMs = nowMs;
    const { entry } = this.#open.get(id)!;
    entry.waitedMs ??= nowMs - entry.request.placedMs;
  }

  drew(id: SequenceId): void {
    this.#open.get(id)!.drawn += 1;
  }

  /** Records an end, dated by the last event with a time: at most a step ago. */
  ended(id: SequenceId): void {
    const { entry, drawn } = this.#open.get(id)!;
    this.#open.delete(id);
    const { gpu } = entry.request;
    this.#outputs.push({ gpu, tokens: drawn, atMs: this.#nowMs });
    this.#countOutput(gpu, drawn, 1);
  }

  requests(gpu: number): number {
    return this.#totals[gpu]!.requests;
  }

  prefillMs(gpu: number): number {
    return this.#totals[gpu]!.prefillUs / 1000;
  }

  /** Mean prompt length; 0 without requests. */
  promptTokens(gpu: number): number {
    const { tokens, requests } = this.#totals[gpu]!;
    return tokens / Math.max(1, requests);
  }

  /** Mean answer length of this GPU; of all GPUs if it has no answer, 0 if none has. */
  outputTokens(gpu: number): number {
    const own = this.#totals[gpu]!;
    if (own.outputs > 0) return own.outputTokens / own.outputs;
    let [outputs, outputTokens] = [0, 0];
    for (const totals of this.#totals) {
      outputs += totals.outputs;
      outputTokens += totals.outputTokens;
    }
    return outputTokens / Math.max(1, outputs);
  }

  /** Only requests that have begun. */
  *waits(nowMs: number): Generator<PrebleWait> {
    for (const { request, waitedMs } of this.#entries) {
      if (waitedMs === null || request.end === null) continue;
      yield { end: request.end, isLate: request.placedMs > nowMs - WINDOW_MS / 2, waitedMs };
    }
  }

  #count({ gpu, prefillUs, tokens }: PrebleRequest, sign: 1 | -1): void {
    const totals = this.#totals[gpu]!;
    totals.requests += sign;
    totals.prefillUs += sign * prefillUs;
    totals.tokens += sign * tokens;
  }

  #countOutput(gpu: number, tokens: number, sign: 1 | -1): void {
    this.#totals[gpu]!.outputs += sign;
    this.#totals[gpu]!.outputTokens += sign * tokens;
  }
}

/** Drops the leading elements that match, calls `onGone` for each, and returns the rest. */
function dropWhile<Item>(items: Item[], goes: (item: Item) => boolean, onGone: (item: Item) => void): Item[] {
  let gone = 0;
  while (gone < items.length && goes(items[gone]!)) {
    onGone(items[gone]!);
    gone += 1;
  }
  return gone === 0 ? items : items.slice(gone);
}
