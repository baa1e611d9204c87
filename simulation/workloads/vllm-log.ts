/**
 * Log of a real engine, call by call (LLMServingSim's measurements of vLLM): the requests, and the times that
 * a client saw.
 */

import { chatService } from "../../scheduler/core.ts";
import type { Workload } from "../workload.ts";
import { workloadOf } from "./parts.ts";

/** Call of the log. Times are milliseconds since the first call was queued. */
export interface LoggedCall {
  readonly queuedMs: number;
  readonly scheduledMs: number;
  readonly firstTokenMs: number;
  readonly lastTokenMs: number;
  readonly promptTokens: Int32Array;
  readonly outputTokens: number;
}

/**
 * Parses JSON lines of the run (queued_ts, scheduled_ts, first_token_ts, last_token_ts in seconds,
 * output_toks) and of the requests (input_tok_ids). Both list the same calls, line by line.
 */
export function parseVllmLog(runLines: string, askedLines: string): readonly LoggedCall[] {
  const asked = linesOf<{ input_tok_ids: number[] }>(askedLines);
  const run = linesOf<{
    queued_ts: number;
    scheduled_ts: number;
    first_token_ts: number;
    last_token_ts: number;
    output_toks: number;
  }>(runLines);
  const startS = run[0]?.queued_ts ?? 0;
  const sinceStartMs = (timeS: number): number => (timeS - startS) * 1000;
  return run.slice(0, asked.length).map((row, index) => ({
    queuedMs: sinceStartMs(row.queued_ts),
    scheduledMs: sinceStartMs(row.scheduled_ts),
    firstTokenMs: sinceStartMs(row.first_token_ts),
    lastTokenMs: sinceStartMs(row.last_token_ts),
    promptTokens: Int32Array.from(asked[index]!.input_tok_ids),
    outputTokens: row.output_toks,
  }));
}

function linesOf<Row>(jsonLines: string): Row[] {
  return jsonLines
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => JSON.parse(line) as Row);
}

/** Vocabulary size: Llama 3's, plus one token that ends answers. */
const VOCABULARY = 128_257;

/** Makes a workload of the logged calls with their times and answer lengths; `most` limits their number. */
export function vllmLogWorkload(calls: readonly LoggedCall[], most = calls.length): Workload {
  const arrivals = calls.slice(0, most).map((call) => ({
    atMs: call.queuedMs,
    promptTokens: () => call.promptTokens,
    outputTokens: call.outputTokens,
    tokensMax: call.outputTokens,
    cacheSalt: "",
    service: chatService,
    kind: "log",
  }));
  return workloadOf("vllm-log", arrivals, undefined, VOCABULARY);
}
