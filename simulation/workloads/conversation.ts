/**
 * Conversations whose turns begin with the whole conversation so far (Mooncake, FAST'25: conversation trace).
 * The trace hashes blocks of 512 prompt tokens with everything before them.
 */

import { SeededRandom } from "../../base/random.ts";
import { chatService } from "../../scheduler/core.ts";
import type { Workload } from "../workload.ts";
import { type Distribution, drawFrom, exponentialGapMs, nameOf, promptOf, workloadOf } from "./parts.ts";

/** Tokens of a block of the trace. */
export const BLOCK_TOKENS = 512;

/** Call of the trace: its prompt is its blocks; the last one may be shorter. */
export interface BlockCall {
  readonly atMs: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly blocks: readonly number[];
}

/** Parses JSON lines with timestamp (ms), input_length, output_length and hash_ids. */
export function parseMooncake(jsonLines: string): readonly BlockCall[] {
  const calls: BlockCall[] = [];
  for (const line of jsonLines.split("\n")) {
    if (line.trim() === "") continue;
    const row = JSON.parse(line) as {
      timestamp: number;
      input_length: number;
      output_length: number;
      hash_ids: number[];
    };
    calls.push({
      atMs: row.timestamp,
      promptTokens: row.input_length,
      outputTokens: Math.max(1, row.output_length),
      blocks: row.hash_ids,
    });
  }
  return calls;
}

const openingDistribution: Distribution = [
  [0, 900],
  [0.3, 2300],
  [0.6, 6900],
  [0.9, 20_000],
  [1, 60_000],
];
const outputDistribution: Distribution = [
  [0, 3],
  [0.25, 156],
  [0.5, 350],
  [0.9, 600],
  [1, 2000],
];

/**
 * Draws conversations like the trace's, with about as much sharing. They open by a Poisson process, and every
 * prompt starts with one common block. A third of the calls has another turn half a minute or more later,
 * with a few more blocks.
 */
export function conversations(
  options: { readonly callsPerSecond: number; readonly calls: number },
  seed: number,
): readonly BlockCall[] {
  const random = new SeededRandom(seed).child("conversations");
  const calls: BlockCall[] = [];
  let blocks = 1;
  let openedMs = 0;
  const newBlocks = (count: number): number[] => Array.from({ length: count }, () => blocks++);
  const TURNS_MEAN = 2;
  for (let made = 0; made < options.calls; ) {
    openedMs += exponentialGapMs(random, (1000 * TURNS_MEAN) / options.callsPerSecond);
    let promptTokens = drawFrom(openingDistribution, random);
    let prompt = [0, ...newBlocks(Math.ceil(promptTokens / BLOCK_TOKENS) - 1)];
    for (let atMs = openedMs; made < options.calls; atMs += 30_000 + exponentialGapMs(random, 60_000)) {
      const outputTokens = drawFrom(outputDistribution, random);
      calls.push({ atMs, promptTokens, outputTokens, blocks: prompt });
      made += 1;
      if (random.below(TURNS_MEAN) === 0) break;
      const whole = Math.floor(promptTokens / BLOCK_TOKENS);
      promptTokens += outputTokens + drawFrom(outputDistribution, random);
      prompt = [...prompt.slice(0, whole), ...newBlocks(Math.ceil(promptTokens / BLOCK_TOKENS) - whole)];
    }
  }
  return calls.sort((a, b) => a.atMs - b.atMs);
}

/** Makes a workload of the calls, `timeScale` times as far apart, at most `calls` of them. */
export function conversationWorkload(
  rows: readonly BlockCall[],
  options: { readonly calls: number; readonly timeScale: number },
): Workload {
  const arrivals = rows.slice(0, options.calls).map((call) => ({
    atMs: call.atMs * options.timeScale,
    promptTokens: promptOf(
      call.blocks.map((block, index) => ({
        name: nameOf(block),
        tokens: Math.min(BLOCK_TOKENS, call.promptTokens - index * BLOCK_TOKENS),
      })),
    ),
    outputTokens: call.outputTokens,
    tokensMax: Math.max(2048, call.outputTokens),
    cacheSalt: "",
    service: chatService,
    kind: "conversation",
  }));
  return workloadOf("conversation", arrivals);
}
