/**
 * Load generator for OpenAI-compatible servers: seeded prompts of a given length with a shared prefix. Sends
 * them as Poisson arrivals (open loop), or from a number of clients that each wait for their answer (closed
 * loop).
 */

import { SeededRandom } from "../../base/random.ts";
import { type StreamEvent, streamChat, type Target, type Usage } from "./client.ts";

export interface LoadPlan {
  readonly model: string;
  readonly requests: number;
  readonly arrivals:
    | { readonly kind: "poisson"; readonly perSecond: number }
    | { readonly kind: "closed"; readonly clients: number };
  /** Prompt length, template included, as the server counts it. Approximate to a few tokens. */
  readonly promptTokens: number;
  /** Leading part of promptTokens that all requests share. */
  readonly sharedPrefixTokens: number;
  readonly outputTokens: number;
  /** Ask the server to continue after an end-of-text token, so that every answer has outputTokens. */
  readonly ignoreEos: boolean;
  readonly seed: number;
}

/** Record of one request. Times are milliseconds since the run began. */
export interface RequestRecord {
  readonly index: number;
  /** Time at which it was due and sent: arrivals do not wait for one another. */
  readonly sentMs: number;
  readonly endMs: number;
  /** Time from sending to the first text, thoughts included; null if there was none. */
  readonly ttftMs: number | null;
  /** Gaps between consecutive pieces of text. */
  readonly gapsMs: readonly number[];
  readonly usage: Usage | null;
  readonly error: string | null;
}

export interface Percentiles {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}

export interface LoadReport {
  readonly plan: LoadPlan;
  readonly seconds: number;
  readonly completed: number;
  readonly failed: number;
  /** Number of occurrences by error message. */
  readonly errors: Readonly<Record<string, number>>;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly outputTokensPerSecond: number;
  /** Cached prompt tokens / prompt tokens, 0 … 1. */
  readonly cachedShare: number;
  readonly ttftMs: Percentiles | null;
  /** Time between tokens, as text arrives. */
  readonly tbtMs: Percentiles | null;
  /**
   * Time per output token of each request: from first text to end, divided by the tokens after the first.
   * Unlike gaps, it does not depend on how many tokens arrive in one read.
   */
  readonly perTokenMs: Percentiles | null;
  readonly endToEndMs: Percentiles | null;
}

/** Server's token count of a prompt of `words` words: tokens = overhead + perWord × words. */
interface PromptScale {
  readonly overhead: number;
  readonly perWord: number;
}

/**
 * Runs the plan to its end, or until `signal` aborts; requests unanswered by then are not counted.
 * `onProgress` receives the number of requests that ended.
 */
export async function runLoad(
  target: Target,
  plan: LoadPlan,
  onProgress: (ended: number) => void,
  signal: AbortSignal,
): Promise<LoadReport> {
  const scale = await measureScale(target, plan, signal).catch((error: unknown) => {
    if (signal.aborted) return null;
    throw error;
  });
  if (scale === null) return summarise(plan, [], 0);
  const prompts = makePrompts(plan, scale);
  const originMs = performance.now();
  const records: RequestRecord[] = [];
  const send = async (index: number): Promise<void> => {
    const record = await sendOne(target, plan, prompts[index]!, index, originMs, signal);
    if (record.error !== null && signal.aborted) return;
    records.push(record);
    onProgress(records.length);
  };

  if (plan.arrivals.kind === "poisson") {
    await openLoop(plan.arrivals.perSecond, plan, originMs, send, signal);
  } else {
    await closedLoop(plan.arrivals.clients, plan.requests, send, signal);
  }
  return summarise(plan, records, (performance.now() - originMs) / 1000);
}

async function openLoop(
  perSecond: number,
  plan: LoadPlan,
  originMs: number,
  send: (index: number) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const random = new SeededRandom(plan.seed).child("arrivals");
  const sent: Promise<void>[] = [];
  const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  let dueMs = originMs;
  for (let index = 0; index < plan.requests && !signal.aborted; index++) {
    const waitMs = dueMs - performance.now();
    if (waitMs > 1) await Promise.race([Bun.sleep(waitMs), aborted]);
    if (signal.aborted) break;
    sent.push(send(index));
    dueMs += (-Math.log(1 - random.unit()) * 1000) / perSecond;
  }
  await Promise.all(sent);
}

async function closedLoop(
  clients: number,
  requests: number,
  send: (index: number) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  let next = 0;
  const client = async (): Promise<void> => {
    while (next < requests && !signal.aborted) await send(next++);
  };
  await Promise.all(Array.from({ length: Math.min(clients, requests) }, client));
}

async function sendOne(
  target: Target,
  plan: LoadPlan,
  prompt: string,
  index: number,
  originMs: number,
  signal: AbortSignal,
): Promise<RequestRecord> {
  const sentMs = performance.now() - originMs;
  const gapsMs: number[] = [];
  let ttftMs: number | null = null;
  let lastMs = sentMs;
  let usage: Usage | null = null;
  let error: string | null = null;
  try {
    for await (const event of streamChat(
      target,
      requestBody(plan, prompt, plan.outputTokens, index),
      signal,
    )) {
      if (event.kind === "usage") usage = event.usage;
      if (event.kind !== "text" && event.kind !== "thought") continue;
      const nowMs = performance.now() - originMs;
      if (ttftMs === null) ttftMs = nowMs - sentMs;
      else gapsMs.push(nowMs - lastMs);
      lastMs = nowMs;
    }
  } catch (thrown) {
    error = thrown instanceof Error ? thrown.message : String(thrown);
  }
  return { index, sentMs, endMs: performance.now() - originMs, ttftMs, gapsMs, usage, error };
}

function requestBody(
  plan: LoadPlan,
  prompt: string,
  outputTokens: number,
  index: number,
): Record<string, unknown> {
  return {
    model: plan.model,
    messages: [{ role: "user", content: prompt }],
    max_tokens: outputTokens,
    seed: (plan.seed + index) % 2 ** 31,
    ...(plan.ignoreEos ? { ignore_eos: true } : {}),
  };
}

// Common short words: about one token each in every vocabulary.
const WORDS =
  "the of and to in is was for on that with as it by at from are this be or have an which one had not but what all were when we there can more if no out so up said about than into them only some could time these two may then do first any my now such like our over man me even most made after also did many".split(
    " ",
  );

/** Measures tokens per word from the usage of two prompts with known word counts. */
async function measureScale(target: Target, plan: LoadPlan, signal: AbortSignal): Promise<PromptScale> {
  const random = new SeededRandom(plan.seed).child("measuring");
  const few = 16;
  const many = 80;
  const tokensOf = async (words: number): Promise<number> => {
    const body = requestBody(plan, makeWords(words, random).join(" "), 1, 0);
    let usage: Usage | null = null;
    for await (const event of streamChat(target, body, signal) as AsyncIterable<StreamEvent>) {
      if (event.kind === "usage") usage = event.usage;
    }
    if (usage === null)
      throw new Error("the server sends no usage in streams, so that prompts cannot be measured");
    return usage.promptTokens;
  };
  const fewTokens = await tokensOf(few);
  const manyTokens = await tokensOf(many);
  const perWord = Math.max(0.1, (manyTokens - fewTokens) / (many - few));
  return { perWord, overhead: Math.max(0, fewTokens - perWord * few) };
}

/** Prompts, one per request: the shared words, then words of its own. */
export function makePrompts(plan: LoadPlan, scale: PromptScale): string[] {
  const words = Math.max(1, Math.round((plan.promptTokens - scale.overhead) / scale.perWord));
  const sharedWords = Math.min(words - 1, Math.round(plan.sharedPrefixTokens / scale.perWord));
  const random = new SeededRandom(plan.seed).child("prompts");
  const shared = makeWords(Math.max(0, sharedWords), random.child("shared"));
  return Array.from({ length: plan.requests }, (_, index) => {
    const own = makeWords(words - shared.length, random.child(`request ${index}`));
    return [...shared, ...own].join(" ");
  });
}

function makeWords(count: number, random: SeededRandom): string[] {
  return Array.from({ length: count }, () => WORDS[random.below(WORDS.length)]!);
}

/** Summarises the records of a run that took `seconds`. */
export function summarise(plan: LoadPlan, records: readonly RequestRecord[], seconds: number): LoadReport {
  const good = records.filter((record) => record.error === null);
  const errors: Record<string, number> = {};
  for (const { error } of records) if (error !== null) errors[error] = (errors[error] ?? 0) + 1;
  const sum = (of: (usage: Usage) => number): number =>
    good.reduce((total, { usage }) => total + (usage === null ? 0 : of(usage)), 0);
  const promptTokens = sum((usage) => usage.promptTokens);
  const outputTokens = sum((usage) => usage.completionTokens);
  return {
    plan,
    seconds,
    completed: good.length,
    failed: records.length - good.length,
    errors,
    promptTokens,
    outputTokens,
    outputTokensPerSecond: seconds > 0 ? outputTokens / seconds : 0,
    cachedShare: promptTokens > 0 ? sum((usage) => usage.cachedTokens) / promptTokens : 0,
    ttftMs: percentiles(good.flatMap(({ ttftMs }) => (ttftMs === null ? [] : [ttftMs]))),
    tbtMs: percentiles(good.flatMap(({ gapsMs }) => gapsMs)),
    perTokenMs: percentiles(good.flatMap(perTokenMs)),
    endToEndMs: percentiles(good.map(({ sentMs, endMs }) => endMs - sentMs)),
  };
}

function perTokenMs({ sentMs, ttftMs, endMs, usage }: RequestRecord): number[] {
  if (ttftMs === null || usage === null || usage.completionTokens < 2) return [];
  return [(endMs - sentMs - ttftMs) / (usage.completionTokens - 1)];
}

/** Nearest-rank percentiles; null for no values. */
export function percentiles(values: readonly number[]): Percentiles | null {
  if (values.length === 0) return null;
  const sorted = Float64Array.from(values).sort();
  const at = (share: number): number => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)]!;
  return { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: sorted[sorted.length - 1]! };
}
