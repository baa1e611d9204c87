/** Policies as values: every row runs, and none of them changes the tokens of a sequence. */

import { expect, test } from "bun:test";
import { policies, policyNames, policyOf, sarathi, withChanges } from "../simulation/baselines/policies.ts";
import { staticBudget } from "../simulation/baselines/static-budget.ts";
import { firstCome } from "../simulation/baselines/vllm.ts";
import { deviceSpec, sequenceSpec, tokensFrom } from "../simulation/factories.ts";
import { EngineHarness, tokensAlone } from "../tests/support/engine-harness.ts";
import { optionsOf } from "./engine/engine-options.ts";
import { ours } from "./policies.ts";

test("every policy gives every sequence its tokens", () => {
  const specs = [0, 0, 300, 600].map((first, i) =>
    sequenceSpec(tokensFrom(first, 150 + 20 * i), 12, {
      service: { objective: i === 3 ? "throughput" : "latency", tenant: String(i % 2) },
    }),
  );
  const alone = specs.map((spec) => tokensAlone(spec).tokens);
  for (const { queue, batch, admission, cache } of policies.values()) {
    const harness = new EngineHarness({
      spec: { pages: 48, stepTokensMax: 512 },
      engine: { queue, batch, admission, cache: cache ?? null },
      isStallFree: batch.kind === "time" || batch.isStallFree,
    });
    for (const spec of specs) harness.submit(spec);
    harness.finish();
    expect(harness.outcomes.map(({ tokens }) => tokens)).toEqual(alone);
  }
});

test("names are those of the values, and an unknown one is refused with those that there are", () => {
  expect(policyNames.map((name) => policyOf(name).name)).toEqual([...policyNames]);
  expect(() => policyOf("vlm")).toThrow("There is no policy vlm; there are vllm, vllm-chunked, orca, sglang");
});

test("budgets and slots are cut down to what a device can do", () => {
  const spec = deviceSpec({ stepTokensMax: 400, stepChunksMax: 20 });
  const { batch, admission } = optionsOf(policyOf("orca"), spec, 1);
  expect([batch, admission.sequencesMax]).toEqual([staticBudget(400), 16]);
  expect(optionsOf(ours(100), spec, 1).admission.sequencesMax).toBe(20);
  expect(optionsOf(sarathi(256), spec, 1).batch).toEqual(staticBudget(256));
});

test("a changed copy has its own name and leaves the original as it was", () => {
  const changed = withChanges(policyOf("preble"), "first come", { queue: firstCome });
  expect([changed.name, changed.queue]).toEqual(["first come", firstCome]);
  expect(policyOf("preble").queue).not.toBe(firstCome);
});
