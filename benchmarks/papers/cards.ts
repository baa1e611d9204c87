/**
 * BatchLLM's two cases, and prompts that share little, on the cards that people have, each with the memory that a model of 8B leaves it: an RTX 4090 holds 41,000 tokens of keys and
 * values, an A6000 199,000. What a cache finds by recency depends on how much it holds; on an A100 with 400,000 tokens it finds nearly all of case 2.
 */

import { openProfile, type ProfileName } from "../../scheduler/cost/profiles.ts";
import { simulate } from "../../simulation/simulator.ts";
import { case1, case2, micro } from "./batchllm.ts";
import {
  asServed,
  type KnownJob,
  known,
  published,
  type System,
  served,
  vllm,
  vllmInSmallSteps,
  vllmWholePrompts,
} from "./batchllm-systems.ts";
import { allAnswered, type Bench, ratios } from "./bench.ts";
import { rangeOf, row, shown } from "./table.ts";

const cards: readonly (readonly [string, ProfileName])[] = [
  ["RTX 4090", "rtx4090"],
  ["A6000", "a6000"],
];

/** An RTX 4090 holds 17 of these prompts, and a step that only continues answers takes nearly what reading the weights takes. */
const littleShared = micro(200, 2000, 4, 960);

/** Claim: a job is done 1.3 times as fast as by vLLM with its cache, with chunks, and as released when the paper was written: without them. One
 *  that shares little is done no slower than in the small steps that were vLLM's default. */
export function onCards(bench: Bench): void {
  for (const [card, profile] of cards) {
    for (const [name, shape] of [
      ["case 1", case1],
      ["case 2", case2],
      ["200/2000, degree 4", littleShared],
    ] as const) {
      const systems = [vllm, vllmInSmallSteps, vllmWholePrompts, published, served];
      const rates = new Map<System, number[]>(systems.map((system) => [system, []]));
      for (const seed of bench.seeds) {
        const job = known(bench.isQuick ? { ...shape, prompts: 300 } : shape, seed);
        for (const system of systems) {
          const perSecond = rateOf(system, job, profile, seed);
          rates.get(system)!.push(perSecond);
          bench.note(`${name}, ${card}, seed ${seed}: ${system.name}: ${perSecond.toFixed(2)}/s`);
        }
      }
      const claim = `BatchLLM, ${name}, ${card}`;
      const over = (other: System): number[] => ratios(rates.get(served)!, rates.get(other)!);
      const least = shape === littleShared ? 1 : 1.3;
      bench.row(row(claim, "throughput, over vllm with its cache", over(vllm), "×", { least }));
      bench.row(row(claim, "the same, in steps of 512", over(vllmInSmallSteps), "×", { least }));
      bench.row(row(claim, "the same, without chunks", over(vllmWholePrompts), "×", { least }));
      bench.row(row(claim, "throughput, over batchllm as published", over(published), "×", { least: 1 }));
      bench.table(
        `${name}, ${card}`,
        ["System", "prompts per second"],
        [...rates].map(([{ name }, list]) => [name, shown(rangeOf(list), "")]),
      );
    }
  }
}

function rateOf(system: System, job: KnownJob, name: ProfileName, seed: number): number {
  const { profile, spec } = openProfile(name);
  const { policy, sharesReads } = system;
  const workload = system === served ? asServed(job, 1, spec.pages) : system.workload(job, 1);
  const devices = [{ profile, spec, sharesReads }];
  const report = allAnswered(simulate({ workload, policy, devices, seed }));
  return report.calls.length / (report.durationMs / 1000);
}
