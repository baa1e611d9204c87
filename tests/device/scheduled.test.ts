/**
 * Scheduler on the CPU engine: every sequence gets the same tokens as alone. That holds for prefix cache
 * hits, chunked prompts, preemption and recomputation.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TokenId } from "../../base/token.ts";
import { closeNativeModel, openCpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import { openModelFolder } from "../../model/folder.ts";
import type { Sampling, SequenceId } from "../../scheduler/core.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import type { EngineLoad } from "../../scheduler/messages.ts";
import { fixedDrafts } from "../../simulation/baselines/fixed-drafts.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { sequenceSpec } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { writeFamily } from "../reference/families.ts";
import { type PromptName, type ReferenceModel, referenceModels } from "../reference/models.ts";
import { oracleDrafts } from "../support/oracle-drafts.ts";
import { cpuLibrary } from "./library.ts";

const library = cpuLibrary();
const promptNames: readonly PromptName[] = ["long", "branch", "short"];
const tokensMax = 32;

interface Wanted {
  readonly prompt: readonly TokenId[];
  readonly sampling: Partial<Sampling>;
  /** Steps to complete before the sequence is submitted. */
  readonly afterSteps: number;
}

interface Outcome {
  /** Tokens per sequence, in order of submission. */
  readonly tokens: readonly (readonly TokenId[])[];
  readonly load: EngineLoad;
}

/**
 * Runs an engine with `pages` pages, `states` state slots and a budget of `stepTokens` until every sequence
 * has its tokens. `answers`: the tokens of each, of which most are drafted and some are drafted wrongly.
 */
function schedule(
  model: Pick<ReferenceModel, "dir">,
  compute: "f32" | "bf16",
  pages: number,
  stepTokens: number,
  wanted: readonly Wanted[],
  states = 0,
  answers: readonly (readonly TokenId[])[] | null = null,
): Outcome {
  const options = { compute, isa: "auto", threads: 1, contextMax: null } as const;
  const loaded = openNativeModel(library, openModelFolder(model.dir), options, () => undefined);
  const limits = {
    threads: 2,
    pages,
    pageTokens: 16,
    stepTokensMax: 64,
    stepChunksMax: 16,
    topLogprobsMax: 0,
    states,
  };
  const device = openCpuDevice(library, loaded, limits);
  const tokens: TokenId[][] = wanted.map(() => []);
  let last: EngineLoad | null = null;
  const engine = new Engine(
    device,
    new ManualClock(),
    {
      batch: answers === null ? staticBudget(stepTokens) : fixedDrafts(staticBudget(stepTokens), 5),
      integrity: "always",
      ...(answers === null ? {} : { drafts: oracleDrafts(({ id }) => answers[id]!, 0.8, 100) }),
    },
    (report) => {
      report.sequences.forEach((sequence, at) => {
        tokens[sequence]!.push(report.tokens[at]!);
      });
      for (const { finish } of report.finished) expect(finish).toEqual({ kind: "length" });
      last = report.load;
    },
  );

  let submitted = 0;
  for (let steps = 0; submitted < wanted.length || engine.busy; steps += 1) {
    for (; submitted < wanted.length && wanted[submitted]!.afterSteps <= steps; submitted += 1) {
      const { prompt, sampling } = wanted[submitted]!;
      const sequence = { ...sequenceSpec(prompt, tokensMax, { sampling }), id: submitted as SequenceId };
      engine.receive({ kind: "submit", sequence });
    }
    engine.run();
    if (!device.inFlight) continue;
    device.wait();
    device.deliver();
  }
  device.close();
  closeNativeModel(library, loaded);
  return { tokens, load: last! };
}

/** Makes each prompt three times, one every `gap` steps. */
const staggered = (
  model: Pick<ReferenceModel, "prompts">,
  gap: number,
  sampling: (index: number) => Partial<Sampling>,
): Wanted[] =>
  Array.from({ length: 9 }, (_, index) => ({
    prompt: model.prompts[promptNames[index % 3]!],
    sampling: sampling(index),
    afterSteps: index * gap,
  }));

describe.each(referenceModels().map((model) => [model.name, model] as const))("%s", (_, model) => {
  const greedy = (gap: number) => staggered(model, gap, () => ({}));
  const expected = greedy(0).map((_, index) => [...model.greedy[promptNames[index % 3]!]]);

  test("with pages for all, prefixes are shared and greedy tokens are those of transformers", () => {
    for (const stepTokens of [16, 33, 64]) {
      const { tokens, load } = schedule(model, "f32", 128, stepTokens, greedy(5));
      expect(tokens).toEqual(expected);
      expect(load).toMatchObject({ preemptionsTotal: 0, running: 0, waiting: 0 });
      expect(load.prefixHitTotal).toBeGreaterThan(100);
      expect(load.pagesFree + load.pagesCached).toBe(128);
    }
  });

  test("with too few pages, sequences are preempted, computed again, and get the same tokens", () => {
    let preemptions = 0;
    for (const stepTokens of [9, 20, 64]) {
      const { tokens, load } = schedule(model, "f32", 12, stepTokens, greedy(2));
      expect(tokens).toEqual(expected);
      expect(load.pagesFree + load.pagesCached).toBe(12);
      preemptions += load.preemptionsTotal;
    }
    expect(preemptions).toBeGreaterThan(0);
  });

  test("sampled tokens depend on the seed alone, in bf16 too", () => {
    const sampled = (gap: number) =>
      staggered(model, gap, (index) => ({ temperature: 1, topP: 0.95, seed: [index, 7] }));
    const alone = sampled(0).map((one) => schedule(model, "bf16", 128, 64, [one]).tokens[0]!);
    expect(new Set(alone.map((tokens) => tokens.join())).size).toBe(9);
    expect(schedule(model, "bf16", 12, 20, sampled(2)).tokens).toEqual(alone);
    expect(schedule(model, "bf16", 128, 33, sampled(5)).tokens).toEqual(alone);
    const drafted = schedule(model, "bf16", 128, 33, sampled(3), 0, alone);
    expect(drafted.tokens).toEqual(alone);
    expect(drafted.load.acceptedTokensTotal).toBeGreaterThan(50);
  });
});

describe("with recurrent layers", () => {
  const scratch = mkdtempSync(join(tmpdir(), "bunting-scheduled-"));
  afterAll(() => rmSync(scratch, { recursive: true }));
  const text = (salt: number, count: number): TokenId[] =>
    Array.from({ length: count }, (_, i) => ((i + salt) * (i + 3) * 7 + salt) % 100);
  const long = text(1, 70);
  const prompts = { long, branch: [...long.slice(0, 40), ...text(2, 30)], short: text(3, 20) };

  test.each([["qwen3-next"], ["granite4-hybrid"], ["falcon-h1"], ["lfm2"]])(
    "%s: tokens depend on the seed alone",
    (name) => {
      const model = { dir: join(scratch, name), prompts: { ...prompts } };
      writeFamily(name, model.dir);
      const sampled = (gap: number) =>
        staggered(model, gap, (index) => ({ temperature: 1, topP: 0.95, seed: [index, 7] }));
      const alone = sampled(0).map((one) => schedule(model, "bf16", 128, 64, [one], 1).tokens[0]!);
      expect(new Set(alone.map((tokens) => tokens.join())).size).toBe(9);
      const crowded = schedule(model, "bf16", 12, 20, sampled(2), 4);
      expect(crowded.tokens).toEqual(alone);
      expect(crowded.load.preemptionsTotal).toBeGreaterThan(0);
      const roomy = schedule(model, "bf16", 128, 33, sampled(5), 32);
      expect(roomy.tokens).toEqual(alone);
      expect(roomy.load.prefixHitTotal).toBeGreaterThan(100);
      for (const states of [6, 32]) {
        const drafted = schedule(model, "bf16", 128, 33, sampled(3), states, alone);
        expect(drafted.tokens).toEqual(alone);
        const { acceptedTokensTotal, draftTokensTotal } = drafted.load;
        expect(acceptedTokensTotal).toBeGreaterThan(50);
        expect(draftTokensTotal).toBeGreaterThan(acceptedTokensTotal);
      }
    },
  );
});
