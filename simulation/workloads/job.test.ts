import { describe, expect, test } from "bun:test";
import { BatchAdmission } from "../../scheduler/batch/batch-admission.ts";
import { orderOf } from "../../scheduler/batch/groups.ts";
import { oneLevel } from "../../scheduler/batch/one-level.ts";
import { PrefixTree, promptTable } from "../../scheduler/batch/prefix-tree.ts";
import { openProfile } from "../../scheduler/cost/profiles.ts";
import { ours } from "../../scheduler/policies.ts";
import { simulate } from "../simulator.ts";
import { chatLengths, chatWorkload } from "./chat.ts";
import { type JobShape, jobPrompts, jobWorkload } from "./job.ts";
import { merged } from "./merge.ts";
import { promptOf } from "./parts.ts";

const shape: JobShape = {
  prompts: 150,
  sharers: { geometric: 4 },
  instructionTokens: 60,
  prefixTokens: 1040,
  ownTokens: 400,
  outputTokens: 64,
  varies: true,
};

const { profile, spec } = openProfile("a6000");

/** Makes a job as served: in order, through batch admission. */
function fedJob(engines = 1, prompts = jobPrompts(shape, 1)) {
  const table = promptTable(prompts.map(({ parts }) => promptOf(parts)()));
  const tree = new PrefixTree(table);
  const order = orderOf(tree, oneLevel(tree), () => shape.outputTokens);
  const items = [...order.prompts].map((prompt, place) => ({
    newTokens: table.from[prompt + 1]! - table.from[prompt]! - order.sharedTokens[place]!,
    tokensMax: 1000,
  }));
  const room = {
    tokens: engines * spec.pages * spec.pageTokens,
    sequences: engines * spec.stepChunksMax,
    stepTokens: engines * spec.stepTokensMax,
  };
  return { tree, workload: jobWorkload(prompts, order.prompts, new BatchAdmission(items, room)) };
}

describe("a job", () => {
  test("computes each token of its prefix tree once", () => {
    const { tree, workload } = fedJob();
    const { calls, engines } = simulate({ workload, policy: ours(), devices: [{ profile, spec }], seed: 1 });
    const prompts = calls.reduce((sum, { promptTokens }) => sum + promptTokens, 0);
    // The last token of a prompt is computed even if cached. Alone in its step, it counts as a decode.
    const once = prompts - tree.savedAtMost;
    expect(engines[0]!.promptTokensComputed).toBeWithin(once - calls.length, once + calls.length + 1);
    expect(calls.every(({ finish }) => finish === "stop")).toBe(true);
  });

  test("is shared by engines in groups: few prefixes are computed on two, and all engines have as much to do", () => {
    const sharers = { exactly: 8 };
    const engines = 4;
    const { tree, workload } = fedJob(engines, jobPrompts({ ...shape, sharers, prompts: 640 }, 1));
    const devices = Array.from({ length: engines }, () => ({ profile, spec }));
    const report = simulate({ workload, policy: ours(), devices, seed: 1 });
    const prompts = report.calls.reduce((sum, { promptTokens }) => sum + promptTokens, 0);
    const computed = report.engines.map(({ promptTokensComputed }) => promptTokensComputed);
    const total = computed.reduce((sum, tokens) => sum + tokens, 0);
    expect(total).toBeLessThan(1.05 * (prompts - tree.savedAtMost));
    for (const { busyMs } of report.engines) expect(busyMs).toBeGreaterThan(0.9 * report.durationMs);
  });

  test("is hardly noticed by chats without a target", () => {
    const chats = () => chatWorkload(chatLengths(4096, 1), { seed: 1, callsPerSecond: 0.25, calls: 30 });
    const setup = { policy: ours(), devices: [{ profile, spec }], seed: 1, watched: "chat" };
    const alone = simulate({ ...setup, workload: chats() });
    const both = merged("both", [{ workload: chats() }, { workload: fedJob().workload }]);
    const beside = simulate({ ...setup, workload: both, limitMs: alone.durationMs });
    expect(beside.ttft.p50).toBeLessThan(1.1 * alone.ttft.p50);
    expect(beside.ttft.p99).toBeLessThan(1.1 * alone.ttft.p99);
    expect(beside.tbt.p50).toBeLessThan(1.1 * alone.tbt.p50);
    expect(beside.tbt.p99).toBeLessThan(1.1 * alone.tbt.p99);
  });
});
