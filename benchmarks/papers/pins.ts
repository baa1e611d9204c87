/** What it costs that prefixes which others wait for are evicted last instead of being pinned (decisions/0019): a job's prompts in little memory,
 *  alone and beside chats, which take it. */

import { orderOf } from "../../scheduler/job/groups.ts";
import { oneLevel } from "../../scheduler/job/one-level.ts";
import { ours } from "../../scheduler/policies.ts";
import { simulate } from "../../simulation/simulator.ts";
import { chatLengths, chatWorkload } from "../../simulation/workloads/chat.ts";
import { merged } from "../../simulation/workloads/merge.ts";
import { case1 } from "./batchllm.ts";
import { asServed, known } from "./batchllm-systems.ts";
import { allAnswered, type Bench, devices } from "./bench.ts";
import { row } from "./table.ts";

/** Of 16 tokens: the second is room for eight of the job's prompts. */
const PAGES = [25_000, 800];
const CHATS_PER_SECOND = [0, 3];

/** Claim: what a sequence of a job waits to read is there when it begins. */
export function pins(bench: Bench): void {
  for (const pages of PAGES) {
    for (const callsPerSecond of CHATS_PER_SECOND) {
      const computed = bench.seeds.map((seed) => computedOfLeast(bench, pages, callsPerSecond, seed));
      const claim = `a job in memory for ${pages * 16} tokens, ${callsPerSecond} chats a second`;
      bench.row(
        row(claim, "prompt tokens not found at a beginning, of the least", computed, " %", { most: 101 }),
      );
    }
  }
}

function computedOfLeast(bench: Bench, pages: number, callsPerSecond: number, seed: number): number {
  const job = known({ ...case1, prompts: bench.isQuick ? 400 : 1500 }, seed);
  const work = asServed(job, 1, pages);
  const chats = { seed, callsPerSecond, calls: 100 * callsPerSecond };
  const report = allAnswered(
    simulate({
      workload:
        callsPerSecond === 0
          ? work
          : merged("chats and a job", [
              { workload: chatWorkload(chatLengths(4096, 1), chats) },
              { workload: work },
            ]),
      policy: ours(),
      devices: devices("a100", 1, { spec: { pages } }).map((model) => ({ ...model, sharesReads: true })),
      noise: bench.noise,
      seed,
    }),
  );
  const { prompts, sharedTokens } = orderOf(job.tree, oneLevel(job.tree), () => 1);
  const least = sharedTokens.reduce((sum, shared) => sum - shared, job.table.from[prompts.length]!);
  let computed = 0;
  for (const { kind, promptTokens, cachedTokens } of report.calls) {
    if (kind === "job") computed += promptTokens - cachedTokens;
  }
  bench.note(`${pages} pages, ${callsPerSecond} chats a second, seed ${seed}: ${computed} of ${least}`);
  return (100 * computed) / least;
}
