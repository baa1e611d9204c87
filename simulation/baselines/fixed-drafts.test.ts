/**
 * Drafts whose length follows from its price, compared with fixed lengths, on devices where a row costs
 * little or much.
 */

import { expect, test } from "bun:test";
import { SeededRandom } from "../../base/random.ts";
import { chatService } from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { deviceSpec } from "../factories.ts";
import { noises } from "../noise.ts";
import type { SimulationReport } from "../report.ts";
import { simulate } from "../simulator.ts";
import type { Arrival, Workload } from "../workload.ts";
import { nameOf, promptOf, VOCABULARY, workloadOf } from "../workloads/parts.ts";
import { type DraftCurve, drawnDrafts } from "./drawn-drafts.ts";
import { fixedDrafts } from "./fixed-drafts.ts";

const quotes: DraftCurve = { share: 0.8, first: 0.92, decay: 0.99 };
const chats: DraftCurve = { share: 0.25, first: 0.4, decay: 0.85 };
const SEED = 3;

/**
 * Calls with prompts and completions of about 100 tokens, in eight crowds. The `size` calls of a crowd arrive
 * at once.
 */
function crowds(size: number): Workload {
  const random = new SeededRandom(SEED);
  const arrivals = Array.from(
    { length: 8 * size },
    (_, index): Arrival => ({
      atMs: 60_000 * Math.floor(index / size),
      promptTokens: promptOf([{ name: nameOf(index), tokens: 100 }]),
      outputTokens: 60 + random.below(80),
      tokensMax: 200,
      cacheSalt: "",
      service: chatService,
      kind: "call",
    }),
  );
  return workloadOf("crowds", arrivals);
}

interface Load {
  readonly size: number;
  readonly curve: DraftCurve;
  /** Cost of a row as a share of a step of 20 ms. */
  readonly rowShare: number;
}

/** Report of a load with drafts of `count` tokens; null: as many as pay off; 0: none. */
function reportOf({ size, curve, rowShare }: Load, count: number | null): SimulationReport {
  const drafts = drawnDrafts(() => curve, SEED, VOCABULARY);
  const policy = ours();
  const changed: Policy =
    count === null
      ? { ...policy, drafts }
      : count === 0
        ? { ...policy, drafts: { kind: "off" } }
        : { ...policy, batch: fixedDrafts(policy.batch, count), drafts };
  return simulate({
    workload: crowds(size),
    policy: changed,
    devices: [{ profile: linearCost(20, 20 * rowShare), spec: deviceSpec({ pages: 4096 }) }],
    seed: SEED,
    noise: noises.mild,
    checks: true,
  });
}

const loads: readonly Load[] = [1, 4, 16].flatMap((size) =>
  [quotes, chats].flatMap((curve) => [0.005, 0.05, 0.2].map((rowShare) => ({ size, curve, rowShare }))),
);

test.each(loads)("as many as pay are about as good as the best fixed number: %j", (load) => {
  const latencyOf = (count: number | null): number => reportOf(load, count).latency.mean;
  const best = Math.min(...[0, 1, 2, 4, 8].map(latencyOf));
  expect(latencyOf(null) / best).toBeLessThan(1.08);
});

test("where a row costs nearly as much as a step there are no drafts, and all is as without", () => {
  const load: Load = { size: 4, curve: quotes, rowShare: 10 };
  const [own, without] = [reportOf(load, null), reportOf(load, 0)];
  expect(own.engines[0]!.steps).toBe(without.engines[0]!.steps);
  expect(own.latency.mean).toBe(without.latency.mean);
});

test("quotes on a device whose rows are nearly free take less than half the time", () => {
  const load: Load = { size: 1, curve: quotes, rowShare: 0.005 };
  expect(reportOf(load, null).latency.mean).toBeLessThan(0.5 * reportOf(load, 0).latency.mean);
});
