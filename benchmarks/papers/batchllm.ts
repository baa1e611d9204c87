/**
 * BatchLLM's results (arXiv:2412.03594 §6) on an A100 with pages for 400,000 tokens: a job whose prompts share prefixes, all there from the
 * start. What others do is beside it: vLLM and SGLang in the order of arrival, and BatchLLM as published, with the groups of its
 * Algorithm 1 in its own order. Attention reads a shared prefix once for all decodes of a group in BatchLLM and ours, as their kernels do,
 * and once for each in the others.
 *
 * The paper's averages (7 sharers, 1,100 + 400 tokens) would save 63 % of the tokens, and it says that 56 % can be saved. A geometric number of
 * sharers with a mean of 4 saves 55 %, and seen from a prompt there are 7 on average; so it is drawn here, and likewise 6.2 for 11.36.
 */

import { PARTS, type StepShape } from "../../scheduler/cost/cost-model.ts";
import { openProfile } from "../../scheduler/cost/profiles.ts";
import { orderOf } from "../../scheduler/job/groups.ts";
import { oneLevel } from "../../scheduler/job/one-level.ts";
import { PrefixTree } from "../../scheduler/job/prefix-tree.ts";
import { algorithm1 } from "../../simulation/baselines/batchllm.ts";
import type { SimulationReport } from "../../simulation/report.ts";
import { simulate } from "../../simulation/simulator.ts";
import type { JobShape } from "../../simulation/workloads/job.ts";
import {
  grouped,
  type KnownJob,
  known,
  none,
  PAGES,
  published,
  type System,
  served,
  servedApart,
  servedAtOnce,
  servedByCount,
  sglang,
  vllm,
  vllms,
} from "./batchllm-systems.ts";
import { allAnswered, type Bench, devices, mean } from "./bench.ts";
import { rangeOf, row, shown } from "./table.ts";
import { traceTables } from "./trees.ts";

export const case1: JobShape = {
  prompts: 3000,
  sharers: { geometric: 4 },
  instructionTokens: 60,
  prefixTokens: 1040,
  ownTokens: 400,
  outputTokens: 96,
  varies: true,
};
export const case2: JobShape = {
  ...case1,
  prompts: 1000,
  sharers: { geometric: 6.2 },
  prefixTokens: 710,
  ownTokens: 978,
};

/** The paper does not say how many prompts its micro-benchmarks have. The more there are, the less of their prefixes is still cached. */
const MICRO_PROMPTS = [960, 3000];

/** What a chat that comes waits for at most: so long are ours' steps without chats. */
const STEP_MS = 400;

interface Run {
  /** Of prompt tokens, those that were not computed. */
  readonly saved: number;
  readonly perSecond: number;
  readonly steps: number;
  readonly preemptions: number;
  readonly tokensPerStep: number;
}

/** By seed: shares of the tokens that can be saved, with one level of prefixes and with all; prompts per second, in steps of any size and
 *  of `STEP_MS`. */
type Limits = Record<"exact" | "atMost" | "perSecond" | "inSteps", number[]>;

function run(bench: Bench, system: System, job: KnownJob, seed: number): Run {
  const models = devices("a100", 1, { spec: { pages: PAGES } });
  const { sharesReads } = system;
  const report = allAnswered(
    simulate({
      workload: system.workload(job, 1),
      policy: system.policy,
      devices: models.map((model) => ({ ...model, sharesReads })),
      noise: bench.noise,
      seed,
    }),
  );
  const [engine] = report.engines as [SimulationReport["engines"][number]];
  const prompts = report.calls.reduce((sum, { promptTokens }) => sum + promptTokens, 0);
  return {
    saved: 1 - engine.promptTokensComputed / prompts,
    perSecond: report.calls.length / (report.durationMs / 1000),
    steps: engine.steps,
    preemptions: engine.preemptions,
    tokensPerStep: (engine.promptTokensComputed + engine.tokensGenerated) / engine.steps,
  };
}

/**
 * Prompts per second that no schedule exceeds on this device's cost model: it knows all prompts and answers, has any memory, and may put any
 * tokens side by side. Every token of the prefix tree is computed once, in steps of the size with the best rate of all; a prompt's new
 * tokens are one chunk; every answer token but the first is a decode, which reads what is new in its own prompt and what it has drawn, and
 * shares all other reads with the decodes of its group. `stepMs`: no step's tokens take longer.
 */
function boundPerSecond({ prompts, table, tree }: KnownJob, stepMs: number): number {
  const { profile, spec } = openProfile("a100");
  const parts = new Float64Array(PARTS);
  const partsOf = (shape: StepShape): Float64Array => {
    profile.partsMs(shape, parts);
    return parts;
  };
  let tokenMs = Number.POSITIVE_INFINITY;
  for (let tokens = 1; tokens <= spec.stepTokensMax; tokens++) {
    const [fixedMs, linearMs] = partsOf({ prompts: [], decodes: tokens, decodeContext: 0 });
    const tookMs = fixedMs! + linearMs!;
    if (tookMs <= stepMs) tokenMs = Math.min(tokenMs, tookMs / tokens);
  }
  const noContext = { prompts: [], decodes: 1, decodeContext: 0 };
  const decodeMs = partsOf(noContext)[2]!;
  const readMs = (partsOf({ ...noContext, decodeContext: 1e6 })[4]! - partsOf(noContext)[4]!) / 1e6;
  const order = orderOf(tree, oneLevel(tree), () => 1);
  let ms = 0;
  order.prompts.forEach((prompt, place) => {
    const context = order.sharedTokens[place]!;
    const tokens = Math.max(1, table.from[prompt + 1]! - table.from[prompt]! - context);
    const decodes = prompts[prompt]!.outputTokens - 1;
    const [, , sequenceMs, attentionMs] = partsOf({
      prompts: [{ tokens, context }],
      decodes: 0,
      decodeContext: 0,
    });
    ms += (tokens + decodes) * tokenMs + sequenceMs! + attentionMs!;
    ms += decodes * (decodeMs + (tokens + decodes / 2) * readMs);
  });
  return (1000 * prompts.length) / ms;
}

/** Claim: prefixes that are known beforehand save more than a cache finds, and whole jobs are done sooner. */
export function offlineJobs(bench: Bench): void {
  const { seeds, isQuick } = bench;
  const micro = [
    [2000, 200],
    [1000, 1000],
    [200, 2000],
  ] as const;
  const shapes: readonly (readonly [string, JobShape])[] = [
    ["case 1", isQuick ? { ...case1, prompts: 800 } : case1],
    ["case 2", case2],
    ...(isQuick ? [320] : MICRO_PROMPTS).flatMap((prompts) =>
      micro.flatMap(([prefixTokens, ownTokens]) =>
        [4, 16].map((degree): readonly [string, JobShape] => [
          `${prefixTokens}/${ownTokens}, degree ${degree}, ${prompts} prompts`,
          {
            ...case1,
            prompts,
            sharers: { exactly: degree },
            instructionTokens: 0,
            prefixTokens,
            ownTokens,
            varies: false,
          },
        ]),
      ),
    ),
  ];
  for (const [name, shape] of shapes) {
    const isCase = name.startsWith("case");
    const systems = [
      ...(isCase ? [none] : []),
      vllm,
      ...(isCase ? vllms : []),
      sglang,
      ...(isCase ? [grouped] : []),
      published,
      ...(isCase ? [servedByCount] : []),
      servedApart,
      servedAtOnce,
      served,
    ];
    const runs = new Map<System, Run[]>(systems.map((system) => [system, []]));
    const limits: Limits = { exact: [], atMost: [], perSecond: [], inSteps: [] };
    for (const seed of seeds) {
      const job = known(shape, seed);
      const tokens = job.table.from[job.prompts.length]!;
      limits.exact.push(oneLevel(job.tree).savedTokens / tokens);
      limits.atMost.push(job.tree.savedAtMost / tokens);
      limits.perSecond.push(boundPerSecond(job, Number.POSITIVE_INFINITY));
      limits.inSteps.push(boundPerSecond(job, STEP_MS));
      for (const system of systems) {
        const one = run(bench, system, job, seed);
        runs.get(system)!.push(one);
        bench.note(
          `${name}, seed ${seed}: ${system.name}: ${one.perSecond.toFixed(2)}/s, saves ${percent(one.saved)}`,
        );
      }
    }
    tell(bench, name, runs, limits);
  }
}

function tell(bench: Bench, name: string, runs: ReadonlyMap<System, readonly Run[]>, limits: Limits): void {
  const claim = `BatchLLM, ${name}`;
  const of = (system: System): readonly Run[] => runs.get(system)!;
  const over = (a: System, b: System, read: (run: Run) => number): number[] =>
    of(a).map((one, index) => read(one) / read(of(b)[index]!));
  const saved = (one: Run): number => one.saved;
  const perSecond = (one: Run): number => one.perSecond;
  if (name === "case 1") {
    bench.row(row(claim, "tokens saved, over vllm's cache", over(served, vllm, saved), "×", { least: 1.2 }));
    const ofExact = of(served).map((one, index) => (100 * one.saved) / limits.exact[index]!);
    bench.row(row(claim, "tokens saved, of the one-level optimum", ofExact, " %", { least: 98 }));
    bench.row(
      row(claim, "by memory, over 256 sequences: throughput", over(published, grouped, perSecond), "×", {
        least: 1.05,
      }),
    );
    bench.row(
      row(
        claim,
        "by memory, over 256 sequences: steps",
        over(published, grouped, (one) => one.steps),
        "×",
        { most: 1 },
      ),
    );
    bench.row(
      row(
        claim,
        "ours by memory and time, over 256 sequences and 2,048 tokens: throughput",
        over(served, servedByCount, perSecond),
        "×",
        { least: 1.05 },
      ),
    );
    bench.row(
      row(
        claim,
        "ours by memory and time, over 256 sequences and 2,048 tokens: steps",
        over(served, servedByCount, (one) => one.steps),
        "×",
        { most: 1 },
      ),
    );
  }
  const least = name.startsWith("case") ? 1.3 : 1.1;
  bench.row(
    row(claim, "throughput, over vllm with its cache", over(served, vllm, perSecond), "×", { least }),
  );
  bench.row(
    row(
      claim,
      "by order alone, over vllm with its cache: throughput",
      over(servedApart, vllm, perSecond),
      "×",
    ),
  );
  const bound = limits.perSecond.map((one, index) => one / perSecond(of(vllm)[index]!));
  bench.row(row(claim, "the device's bound, over vllm with its cache", bound, "×"));
  const inSteps = limits.inSteps.map((one, index) => one / perSecond(of(vllm)[index]!));
  bench.row(
    row(claim, `the same, in steps of ${STEP_MS} ms at most, over vllm with its cache`, inSteps, "×"),
  );
  const had = limits.perSecond.map((one, index) => (100 * perSecond(of(served)[index]!)) / one);
  bench.row(row(claim, "throughput, of the device's bound", had, " %"));
  bench.row(row(claim, "throughput, over sglang", over(served, sglang, perSecond), "×"));
  bench.row(row(claim, "throughput, over all at once", over(served, servedAtOnce, perSecond), "×"));
  bench.row(
    row(claim, "throughput, over batchllm as published", over(served, published, perSecond), "×", {
      least: 1,
    }),
  );
  const lines = [...runs].map(([{ name }, list]) => [
    name,
    percent(mean(list.map(saved))),
    shown(rangeOf(list.map(perSecond)), ""),
    String(Math.round(mean(list.map((one) => one.steps)))),
    String(Math.round(mean(list.map((one) => one.tokensPerStep)))),
    String(Math.round(mean(list.map((one) => one.preemptions)))),
  ]);
  bench.table(
    `${name}: at most ${percent(mean(limits.exact))} saved with one level of prefixes, ${percent(mean(limits.atMost))} with all`,
    ["System", "tokens saved", "prompts per second", "steps", "tokens per step", "preemptions"],
    lines,
  );
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

/** Claim: on the prefix trees of real traces the exact choice saves what Algorithm 1 saves, or more. */
export function realTrees(bench: Bench): void {
  const lines: string[][] = [];
  for (const [name, table] of traceTables(bench.traces)) {
    const tree = new PrefixTree(table);
    const tokens = table.from[table.from.length - 1]!;
    const share = (saved: number): number => (100 * saved) / tokens;
    const greedy = share(savedBy(algorithm1(tree)));
    const exact = share(oneLevel(tree).savedTokens);
    const order = orderOf(tree, oneLevel(tree), () => 1);
    const ordered = share(order.sharedTokens.reduce((sum, shared) => sum + shared, 0));
    bench.row(
      row("real prefix trees", `${name}: exact, over Algorithm 1`, [exact / greedy], "×", { least: 1 }),
    );
    lines.push([
      name,
      ...[greedy, exact, ordered, share(tree.savedAtMost)].map((value) => `${value.toFixed(1)} %`),
    ]);
  }
  const head = ["Trace", "Algorithm 1", "one level, exact", "in order, all levels", "at most"];
  bench.table("Tokens saved on real prefix trees", head, lines);
}

function savedBy(groups: ReturnType<typeof algorithm1>): number {
  return groups.reduce((sum, { prefixTokens, members }) => sum + prefixTokens * (members.length - 1), 0);
}
