/**
 * Mooncake's conversation trace on four A100, each with 1.64 M tokens of pages: what share of the prompts' tokens is
 * found in a cache, beside the ideal: one cache with the pages of all four that holds prompts alone and has computed each
 * before the next arrives. Least recently used in both.
 */

import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { readTrace } from "../../server/cli/simulate/traces.ts";
import { policyOf } from "../../simulation/baselines/policies.ts";
import { simulate } from "../../simulation/simulator.ts";
import {
  BLOCK_TOKENS,
  type BlockCall,
  conversations,
  conversationWorkload,
  parseMooncake,
} from "../../simulation/workloads/conversation.ts";
import { allAnswered, type Bench, devices, seconds } from "./bench.ts";
import { row } from "./table.ts";

const DEVICES = 4;
const PAGES = 102_400;
const PAGE_TOKENS = 16;

/** Share of prompt tokens that a cache of `blocksMax` blocks finds, calls one by one. Of a call's blocks the first are
 *  used last, so that a prefix outlives what follows it. */
export function idealHitRate(calls: readonly BlockCall[], blocksMax: number): number {
  const cache = new Set<number>(); // in order of use, oldest first
  let prompt = 0;
  let found = 0;
  for (const { promptTokens, blocks } of calls) {
    prompt += promptTokens;
    const missing = blocks.findIndex((block) => !cache.has(block));
    found += Math.min(promptTokens, (missing === -1 ? blocks.length : missing) * BLOCK_TOKENS);
    for (let i = blocks.length - 1; i >= 0; i--) {
      cache.delete(blocks[i]!);
      cache.add(blocks[i]!);
    }
    for (const block of cache) {
      if (cache.size <= blocksMax) break;
      cache.delete(block);
    }
  }
  return found / prompt;
}

/** Claim: four caches find almost what one big one would. */
export function hitRate(bench: Bench): void {
  const text = readTrace(bench.traces, "mooncake");
  const all = text === null ? conversations({ callsPerSecond: 3.4, calls: 12_031 }, 1) : parseMooncake(text);
  const calls = bench.isQuick ? all.slice(0, 2500) : all;
  const blocks = (DEVICES * PAGES * PAGE_TOKENS) / BLOCK_TOKENS;
  const ideal = idealHitRate(calls, blocks);
  const lines: string[][] = [];
  const policies: readonly Policy[] = [policyOf("sglang-chunked"), policyOf("preble"), ours()];
  for (const timeScale of bench.isQuick ? [1] : [1, 2]) {
    for (const policy of policies) {
      // The trace decides all but the tokens that are drawn: one seed is enough.
      const report = allAnswered(
        simulate({
          workload: conversationWorkload(calls, { calls: calls.length, timeScale }),
          policy,
          devices: devices("a100", DEVICES, { spec: { pages: PAGES, contextMax: 131_072 } }),
          noise: bench.noise,
          seed: bench.seeds[0]!,
        }),
      );
      const share = report.hitRate / ideal;
      const scaled = timeScale === 1 ? "" : `, ${timeScale} times slower`;
      bench.note(`conversation${scaled}: ${policy.name}: ${(100 * report.hitRate).toFixed(1)} %`);
      lines.push([
        `${policy.name}${scaled}`,
        `${(100 * report.hitRate).toFixed(1)} %`,
        `${(100 * share).toFixed(0)} %`,
        seconds(report.ttft.mean),
        seconds(report.ttft.p99),
      ]);
      const bound = policy.name === "ours" && timeScale === 1 ? { least: 80 } : null;
      if (timeScale === 1) {
        bench.row(
          row("Mooncake, 4 devices", `${policy.name}: hits, of the ideal's`, [100 * share], " %", bound),
        );
      }
    }
  }
  const one = idealHitRate(calls, blocks / DEVICES);
  const endless = idealHitRate(calls, Number.POSITIVE_INFINITY);
  bench.table(
    `Conversation trace: ideal of one cache ${(100 * ideal).toFixed(1)} %, of one device's size ${(100 * one).toFixed(1)} %, endless ${(100 * endless).toFixed(1)} %`,
    ["Policy", "prompt tokens found", "of the ideal", "TTFT mean", "TTFT p99"],
    lines,
  );
}
