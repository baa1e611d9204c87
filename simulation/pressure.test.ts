/** Memory pressure: calls about three documents, on an engine with room for one document and its answers. */

import { describe, expect, test } from "bun:test";
import { SeededRandom } from "../base/random.ts";
import { chatService } from "../scheduler/core.ts";
import { openProfile } from "../scheduler/cost/profiles.ts";
import { ours } from "../scheduler/policies.ts";
import { simulate } from "./simulator.ts";
import type { Workload } from "./workload.ts";
import { exponentialGapMs, nameOf, promptOf, workloadOf } from "./workloads/parts.ts";

const DOCUMENT = 16_000;

function questions(perSecond: number, tenants: number): Workload {
  const random = new SeededRandom(3);
  let atMs = 0;
  const arrivals = Array.from({ length: 200 }, (_, index) => {
    atMs += exponentialGapMs(random, 1000 / perSecond);
    const document = random.below(3);
    return {
      atMs,
      promptTokens: promptOf([
        { name: nameOf(1, document), tokens: DOCUMENT },
        { name: nameOf(2, index), tokens: 100 },
      ]),
      outputTokens: 200,
      tokensMax: 200,
      cacheSalt: "",
      service: { ...chatService, tenant: `tenant ${index % tenants}` },
      kind: "question",
    };
  });
  return workloadOf("questions", arrivals);
}

const { profile, spec } = openProfile("a6000", { spec: { pages: 1643 } });

describe.each([1, 3])("of %d tenants", (tenants) => {
  test("a document is read many times before it is given up, and nobody starves", () => {
    const workload = questions(0.63, tenants);
    const devices = [{ profile, spec }];
    const report = simulate({ workload, policy: ours(), devices, seed: 1, checks: true });
    expect(report.isComplete).toBe(true);
    expect(report.hitRate).toBeGreaterThan(0.8);
    expect(report.queueing.max).toBeLessThan(60_000 * (1 + tenants));
    expect(report.engines[0]!.preemptions).toBeLessThan(10);
  });
});
