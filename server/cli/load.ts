/**
 * Load generator for OpenAI-compatible servers: seeded conversations of a dataset. Sends them as Poisson
 * arrivals (open loop), or from a number of clients that each wait for their response (closed loop).
 */

import { SeededRandom } from "../../base/random.ts";
import { conversationsOf, type DatasetName, makeWords, type PromptScale } from "./bench/dataset.ts";
import {
  type Goodput,
  goodputOf,
  type Outcome,
  type Percentiles,
  percentiles,
  perTokenMs,
  type Target as TimeTarget,
} from "./bench/figures.ts";
import { type ChatMessage, type StreamEvent, streamChat, type Target, type Usage } from "./client.ts";

export interface LoadPlan {
  readonly model: string;
  readonly requests: number;
  readonly arrivals:
    | { readonly kind: "poisson"; readonly perSecond: number }
    | { readonly kind: "closed"; readonly clients: number };
  /** Prompt length with the chat template, as the server counts it. Accurate to a few tokens. */
  readonly promptTokens: number;
  /** Leading part of promptTokens that all requests share. */
  readonly sharedPrefixTokens: number;
  readonly outputTokens: number;
  /** Asks the server to continue after an end-of-text token, so that every completion has outputTokens. */
  readonly ignoreEos: boolean;
  readonly seed: number;
  /** Absent: all prompts and completions have the lengths above. */
  readonly dataset?: DatasetName;
  /** Requests per conversation, for the dataset `conversations`; absent: 1. */
  readonly turns?: number;
  /** Latency target; absent: the report has no goodput. */
  readonly target?: TimeTarget;
}

/** Record of one request. Times are milliseconds since the run began. */
export interface RequestRecord {
  readonly index: number;
  /** Time at which it was due and sent: Poisson arrivals do not wait for one another. */
  readonly sentMs: number;
  readonly endMs: number;
  /** Time to first token, reasoning included: from sending to the first text; null if there was none. */
  readonly ttftMs: number | null;
  /** Inter-token latencies: gaps between consecutive pieces of text. */
  readonly gapsMs: readonly number[];
  readonly usage: Usage | null;
  readonly error: string | null;
}

export interface LoadReport {
  readonly plan: LoadPlan;
  readonly seconds: number;
  readonly completed: number;
  readonly failed: number;
  /** Requests in flight when the run was stopped. */
  readonly unanswered: number;
  /** Number of failures by error message. */
  readonly errors: Readonly<Record<string, number>>;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly outputTokensPerSecond: number;
  /** Cached prompt tokens / prompt tokens, 0 … 1. */
  readonly cachedShare: number;
  readonly ttftMs: Percentiles | null;
  /** Inter-token latency, as text arrives. */
  readonly tbtMs: Percentiles | null;
  /**
   * Time per output token of each request: from first text to end, divided by the tokens after the first.
   * Unlike gaps, it does not depend on how many tokens arrive in one read.
   */
  readonly perTokenMs: Percentiles | null;
  readonly endToEndMs: Percentiles | null;
  /** Null for a plan without a target. */
  readonly goodput: Goodput | null;
}

/** A finished run. */
export interface LoadRun {
  readonly report: LoadReport;
  readonly records: readonly RequestRecord[];
}

/** Runs a plan like `runLoadRecorded`, for its report alone. */
export async function runLoad(
  target: Target,
  plan: LoadPlan,
  onProgress: (ended: number) => void,
  signal: AbortSignal,
): Promise<LoadReport> {
  return (await runLoadRecorded(target, plan, onProgress, signal)).report;
}

/**
 * Runs the plan to its end, or until `signal` aborts; requests still in flight then have no record.
 * `onProgress` receives the number of requests that ended.
 */
export async function runLoadRecorded(
  target: Target,
  plan: LoadPlan,
  onProgress: (ended: number) => void,
  signal: AbortSignal,
): Promise<LoadRun> {
  const scale = await measureScale(target, plan, signal).catch((error: unknown) => {
    if (signal.aborted) return null;
    throw error;
  });
  if (scale === null) return { report: summarise(plan, [], 0), records: [] };
  const { requests, seed, dataset: name = "fixed", turns = 1, ...sizes } = plan;
  const conversations = conversationsOf({ name, turns, ...sizes }, requests, seed, scale);
  const originMs = performance.now();
  const records: RequestRecord[] = [];
  let unanswered = 0;
  const send = async (index: number): Promise<void> => {
    const messages: ChatMessage[] = [];
    for (const [turn, { text, outputTokens }] of conversations[index]!.entries()) {
      messages.push({ role: "user", content: text });
      const place = index * turns + turn;
      const body = requestBody(plan, messages, outputTokens, place);
      const { record, answer } = await sendOne(target, body, place, originMs, signal);
      if (record.error !== null && signal.aborted) {
        unanswered += 1;
        return;
      }
      records.push(record);
      onProgress(records.length);
      // A failed request is left out of the conversation.
      if (record.error === null) messages.push({ role: "assistant", content: answer });
      else messages.pop();
    }
  };

  if (plan.arrivals.kind === "poisson") {
    const perSecond = (plan.arrivals.perSecond * conversations.length) / requests;
    await openLoop(perSecond, conversations.length, seed, originMs, send, signal);
  } else {
    await closedLoop(plan.arrivals.clients, conversations.length, send, signal);
  }
  const seconds = (performance.now() - originMs) / 1000;
  return { report: summarise(plan, records, seconds, unanswered), records };
}

async function openLoop(
  perSecond: number,
  count: number,
  seed: number,
  originMs: number,
  send: (index: number) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const random = new SeededRandom(seed).child("arrivals");
  const sent: Promise<void>[] = [];
  const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  let dueMs = originMs;
  for (let index = 0; index < count && !signal.aborted; index++) {
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
  body: Readonly<Record<string, unknown>>,
  index: number,
  originMs: number,
  signal: AbortSignal,
): Promise<{ readonly record: RequestRecord; readonly answer: string }> {
  const sentMs = performance.now() - originMs;
  const gapsMs: number[] = [];
  let answer = "";
  let ttftMs: number | null = null;
  let lastMs = sentMs;
  let usage: Usage | null = null;
  let error: string | null = null;
  try {
    for await (const event of streamChat(target, body, signal)) {
      if (event.kind === "usage") usage = event.usage;
      if (event.kind !== "text" && event.kind !== "thought") continue;
      if (event.kind === "text") answer += event.text;
      const nowMs = performance.now() - originMs;
      if (ttftMs === null) ttftMs = nowMs - sentMs;
      else gapsMs.push(nowMs - lastMs);
      lastMs = nowMs;
    }
  } catch (thrown) {
    error = thrown instanceof Error ? thrown.message : String(thrown);
  }
  const endMs = performance.now() - originMs;
  return { record: { index, sentMs, endMs, ttftMs, gapsMs, usage, error }, answer };
}

function requestBody(
  plan: LoadPlan,
  messages: readonly ChatMessage[],
  outputTokens: number,
  index: number,
): Record<string, unknown> {
  return {
    model: plan.model,
    messages: [...messages],
    max_tokens: outputTokens,
    seed: (plan.seed + index) % 2 ** 31,
    ...(plan.ignoreEos ? { ignore_eos: true } : {}),
  };
}

/** Measures tokens per word from the usage of two prompts with known word counts. */
async function measureScale(target: Target, plan: LoadPlan, signal: AbortSignal): Promise<PromptScale> {
  const random = new SeededRandom(plan.seed).child("measuring");
  const few = 16;
  const many = 80;
  const tokensOf = async (words: number): Promise<number> => {
    const content = makeWords(words, random).join(" ");
    const body = requestBody(plan, [{ role: "user", content }], 1, 0);
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

/** Summarises the records of a run that took `seconds`. `unanswered`: requests that have no record. */
export function summarise(
  plan: LoadPlan,
  records: readonly RequestRecord[],
  seconds: number,
  unanswered = 0,
): LoadReport {
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
    unanswered,
    errors,
    promptTokens,
    outputTokens,
    outputTokensPerSecond: seconds > 0 ? outputTokens / seconds : 0,
    cachedShare: promptTokens > 0 ? sum((usage) => usage.cachedTokens) / promptTokens : 0,
    ttftMs: percentiles(good.flatMap(({ ttftMs }) => ttftMs ?? [])),
    tbtMs: percentiles(good.flatMap(({ gapsMs }) => gapsMs)),
    perTokenMs: percentiles(good.flatMap((record) => perTokenMs(outcomeOf(record)) ?? [])),
    endToEndMs: percentiles(good.map(({ sentMs, endMs }) => endMs - sentMs)),
    goodput: plan.target === undefined ? null : goodputIn(plan.target, plan, records, seconds, unanswered),
  };
}

/** Goodput over the time in which requests were sent; unanswered requests are not good. */
function goodputIn(
  target: TimeTarget,
  { arrivals }: LoadPlan,
  records: readonly RequestRecord[],
  seconds: number,
  unanswered: number,
): Goodput {
  const cut: Outcome = { sentMs: 0, endMs: 0, ttftMs: null, tokens: 0, isAnswered: false };
  const outcomes = [...records.map(outcomeOf), ...Array<Outcome>(unanswered).fill(cut)];
  const sending =
    arrivals.kind === "poisson" ? Math.min(seconds, outcomes.length / arrivals.perSecond) : seconds;
  return goodputOf(outcomes, target, sending);
}

export function outcomeOf({ sentMs, endMs, ttftMs, usage, error }: RequestRecord): Outcome {
  return { sentMs, endMs, ttftMs, tokens: usage?.completionTokens ?? 0, isAnswered: error === null };
}
