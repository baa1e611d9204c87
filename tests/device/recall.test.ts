/**
 * The embedded model finds a code and a name in a prompt of 1,500 tokens, and answers the same under any
 * scheduling. Cases: chunks of any size, pages of an earlier prompt, company in the batch, recomputation
 * after preemption. A wrong page, position or mask anywhere shows as a wrong digit.
 */
import { afterAll, expect, test } from "bun:test";
import { join } from "node:path";
import type { TokenId } from "../../base/token.ts";
import { closeNativeModel, openCpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import { openModelFolder } from "../../model/folder.ts";
import type { SequenceId } from "../../scheduler/core.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import type { EngineLoad } from "../../scheduler/messages.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { sequenceSpec } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { ChatTemplate } from "../../text/template.ts";
import { readTemplateSource } from "../../text/template-source.ts";
import { loadTokenizer } from "../../text/tokenizer.ts";
import { longText, recalls } from "../support/recall.ts";
import { cpuLibrary } from "./library.ts";

const demo = join(import.meta.dir, "../../models/demo");
const library = cpuLibrary();
const tokenizer = loadTokenizer(demo);
const template = new ChatTemplate(readTemplateSource(demo)!, tokenizer.controlTexts);
const folder = openModelFolder(demo);
const options = { compute: "bf16", isa: "auto", threads: 2, contextMax: null } as const;
const model = openNativeModel(library, folder, options, () => undefined);
afterAll(() => closeNativeModel(library, model));

const prompts: readonly (readonly TokenId[])[] = recalls.map(({ question }) => {
  const messages = [{ role: "user", content: `${longText} ${question}` }];
  return tokenizer.encodeRendered(template.render(messages, { addGenerationPrompt: true }));
});
const stop = folder.eosTokens[0]!;
const promptPages = Math.ceil(prompts[0]!.length / 16);

interface Outcome {
  readonly answers: readonly string[];
  readonly load: EngineLoad;
}

/**
 * Returns answers to `asked` (indexes of `recalls`), submitted together, by an engine with the given pages
 * and prompt tokens per step.
 */
function answers(
  asked: readonly number[],
  pages: number,
  stepTokens: number,
  how: "together" | "in turn" | "long and unshared" = "together",
): Outcome {
  const limits = {
    threads: 2,
    pages,
    pageTokens: 16,
    stepTokensMax: 2048,
    stepChunksMax: 64,
    topLogprobsMax: 0,
  };
  const device = openCpuDevice(library, model, limits);
  const tokens: TokenId[][] = asked.map(() => []);
  let last: EngineLoad | null = null;
  const engine = new Engine(device, new ManualClock(), { batch: staticBudget(stepTokens) }, (report) => {
    report.sequences.forEach((sequence, at) => {
      tokens[sequence]!.push(report.tokens[at]!);
    });
    last = report.load;
  });
  const run = () => {
    for (engine.run(); device.inFlight; engine.run()) {
      device.wait();
      device.deliver();
    }
  };
  asked.forEach((which, index) => {
    // Long answers, each on pages of its own: they need more than admission keeps free.
    const isLong = how === "long and unshared";
    const cacheSalt = isLong ? `${index}` : "";
    const stopRule = { stop: { stopTokens: isLong ? [] : [stop] } };
    const spec = sequenceSpec(prompts[which]!, isLong ? 100 : 32, { ...stopRule, cacheSalt });
    engine.receive({ kind: "submit", sequence: { ...spec, id: index as SequenceId } });
    if (how === "in turn") run();
  });
  run();
  device.close();
  return { answers: tokens.map((ids) => tokenizer.decode(ids, { skipSpecialTokens: true })), load: last! };
}

const right = (asked: readonly number[]) => asked.map((which) => recalls[which]!.answer);

test("the prompt has about 1,500 tokens", () => {
  for (const prompt of prompts) {
    expect(prompt.length).toBeGreaterThan(1450);
    expect(prompt.length).toBeLessThan(1650);
  }
});

test("the answer is right in chunks of every size", () => {
  const sizes = [
    ...Array.from({ length: 33 }, (_, i) => i + 1),
    47,
    64,
    97,
    128,
    255,
    256,
    257,
    511,
    1000,
    2048,
  ];
  for (const size of sizes) {
    expect([size, answers([size % 2], promptPages + 4, size).answers]).toEqual([size, right([size % 2])]);
  }
}, 120_000);

test("the answer is right on pages that an earlier prompt left", () => {
  const asked = [0, 1, 0, 1];
  const outcome = answers(asked, 2 * promptPages, 256, "in turn");
  expect(outcome.answers).toEqual(right(asked));
  expect(outcome.load.prefixHitTotal).toBeGreaterThan(3 * 1400);
});

test("the answer is right in company, with prompts shared while they are computed", () => {
  const asked = Array.from({ length: 24 }, (_, index) => index % 2);
  for (const stepTokens of [100, 512]) {
    expect(answers(asked, 6 * promptPages, stepTokens).answers).toEqual(right(asked));
  }
});

test("the answer is right after preemption", () => {
  const asked = [0, 1, 0, 1];
  const roomy = answers(asked, 5 * promptPages, 300, "long and unshared");
  const tight = answers(asked, 2 * promptPages + 9, 300, "long and unshared");
  expect(roomy.load.preemptionsTotal).toBe(0);
  expect(tight.load.preemptionsTotal).toBeGreaterThan(0);
  expect(tight.answers).toEqual(roomy.answers);
  for (const [at, which] of asked.entries()) expect(tight.answers[at]).toStartWith(recalls[which]!.answer);
});
