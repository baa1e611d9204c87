/**
 * A job whose answers nobody can foresee, in little memory: exponential lengths with a mean of 400 tokens behind prompts of 200. Answers that
 * turn out longer than the job's have been cost preemptions, and a reserve of memory would avoid them. Here the feed gives parts of what
 * it would give: what it leaves is the reserve, so that the best one there could be is among the rows.
 */

import { SeededRandom } from "../../base/random.ts";
import { openProfile } from "../../scheduler/cost/profiles.ts";
import { JobFeed } from "../../scheduler/job/feed.ts";
import { orderOf } from "../../scheduler/job/groups.ts";
import { oneLevel } from "../../scheduler/job/one-level.ts";
import { ours } from "../../scheduler/policies.ts";
import { simulate } from "../../simulation/simulator.ts";
import { jobWorkload } from "../../simulation/workloads/job.ts";
import { type KnownJob, known } from "./batchllm-systems.ts";
import { allAnswered, type Bench, mean } from "./bench.ts";
import { rangeOf, row, shown } from "./table.ts";

const PAGES = 2500;
const ANSWER_TOKENS = 400;
const ANSWER_TOKENS_MAX = 8 * ANSWER_TOKENS;
/** Parts of what a job's sequences are given otherwise. */
const SHARES = [1, 0.85, 0.7, 0.5];

interface Run {
  readonly perSecond: number;
  readonly preemptions: number;
  readonly promptTokens: number;
}

/** Claim: a reserve for answers that turn out longer gains nothing. */
export function reserves(bench: Bench): void {
  const runs = new Map<number, Run[]>(SHARES.map((share) => [share, []]));
  for (const seed of bench.seeds) {
    const shape = {
      prompts: bench.isQuick ? 300 : 800,
      sharers: { exactly: 4 },
      instructionTokens: 0,
      prefixTokens: 100,
      ownTokens: 100,
      outputTokens: ANSWER_TOKENS,
      varies: true,
    };
    const job = known(shape, seed);
    const random = new SeededRandom(seed).child("answers");
    const prompts = job.prompts.map((prompt) => ({ ...prompt, outputTokens: answerTokens(random) }));
    for (const share of SHARES) runs.get(share)!.push(run(bench, { ...job, prompts }, share, seed));
  }
  const all = runs.get(1)!;
  for (const share of SHARES.slice(1)) {
    const ratios = runs.get(share)!.map(({ perSecond }, index) => perSecond / all[index]!.perSecond);
    const what = `throughput with ${Math.round(100 * (1 - share))} % in reserve, of that without`;
    bench.row(row("a job with answers of any length", what, ratios, "×"));
  }
  const lines = [...runs].map(([share, list]) => [
    `${Math.round(100 * (1 - share))} %`,
    shown(rangeOf(list.map(({ perSecond }) => perSecond)), ""),
    String(Math.round(mean(list.map(({ preemptions }) => preemptions)))),
    String(Math.round(mean(list.map(({ promptTokens }) => promptTokens)))),
  ]);
  const head = ["Reserve", "prompts per second", "preemptions", "prompt tokens computed"];
  bench.table("Answers of exponential lengths in little memory, by reserve", head, lines);
}

function answerTokens(random: SeededRandom): number {
  const drawn = -ANSWER_TOKENS * Math.log(1 - random.uint32() / 2 ** 32);
  return Math.min(ANSWER_TOKENS_MAX, Math.max(8, Math.round(drawn)));
}

function run(bench: Bench, { prompts, table, tree }: KnownJob, share: number, seed: number): Run {
  const { profile, spec } = openProfile("a100", { spec: { pages: PAGES } });
  const order = orderOf(tree, oneLevel(tree), () => 1);
  const items = [...order.prompts].map((prompt, place) => ({
    newTokens: table.from[prompt + 1]! - table.from[prompt]! - order.sharedTokens[place]!,
    tokensMax: ANSWER_TOKENS_MAX,
  }));
  const room = {
    tokens: share * PAGES * spec.pageTokens,
    sequences: spec.stepChunksMax,
    stepTokens: spec.stepTokensMax,
  };
  const report = allAnswered(
    simulate({
      workload: jobWorkload(prompts, order.prompts, new JobFeed(items, room)),
      policy: ours(),
      devices: [{ profile, spec, sharesReads: true }],
      noise: bench.noise,
      seed,
    }),
  );
  const [engine] = report.engines;
  bench.note(`reserve ${Math.round(100 * (1 - share))} %, seed ${seed}: ${engine!.preemptions} preemptions`);
  return {
    perSecond: report.calls.length / (report.durationMs / 1000),
    preemptions: engine!.preemptions,
    promptTokens: engine!.promptTokensComputed,
  };
}
