/**
 * The scheduler with a model's own head, or a draft model, on the CPU engine: sequences get the same tokens with its
 * drafts as without, at any temperature, with penalties, cache hits and preemptions, and in fewer steps.
 */
import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TokenId } from "../../base/token.ts";
import { bestIsa, closeNativeModel, openCpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import { type Isa, isaNames } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import type { Sampling, SequenceId, StepResult } from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import type { Device } from "../../scheduler/device.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import type { EngineLoad } from "../../scheduler/messages.ts";
import { ours } from "../../scheduler/policies.ts";
import { sequenceSpec } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { familyPrompt, writeFamily } from "../reference/families.ts";
import { learnByRote } from "../support/rote-model.ts";
import { cpuLibrary } from "./library.ts";

setDefaultTimeout(60_000);

const library = cpuLibrary();
const scratch = mkdtempSync(join(tmpdir(), "bunting-head-drafts-"));
afterAll(() => rmSync(scratch, { recursive: true }));
const isas = isaNames.slice(0, isaNames.indexOf(bestIsa(library)) + 1);

interface Outcome {
  /** Tokens per sequence. */
  readonly tokens: readonly (readonly TokenId[])[];
  readonly load: EngineLoad;
}

/** Runs sequences to their ends, with drafts of the model's head, of another model in a folder, or without any. */
function run(
  folder: string,
  by: "none" | "head" | { readonly draft: string },
  samplings: readonly Partial<Sampling>[],
  { pages = 64, states = 0, isa = "auto" as Isa | "auto" } = {},
): Outcome {
  const open = (path: string, head: "required" | "none") => {
    const options = { compute: "bf16", isa, threads: 1, contextMax: null } as const;
    return openNativeModel(library, openModelFolder(path, null, head), options, () => undefined);
  };
  const target = open(folder, by === "head" ? "required" : "none");
  const loaded =
    typeof by === "string" ? target : { ...target, draft: { ...open(by.draft, "none"), weightBytes: 0 } };
  const limits = {
    threads: 2,
    pages,
    pageTokens: 16,
    stepTokensMax: 64,
    stepChunksMax: 8,
    topLogprobsMax: 0,
  };
  const device = openCpuDevice(library, loaded, {
    ...{ ...limits, stepDrawsMax: 24, states },
    ...(by === "none" ? {} : { draftsMax: 4 }),
  });
  const tokens: TokenId[][] = samplings.map(() => []);
  let last: EngineLoad | null = null;
  // Drafts take no time here: if they did, the machine would decide whether tiny models draft.
  const free: Device = {
    spec: device.spec,
    start: (step, done) => device.start(step, (result) => done({ ...result, draftsMs: 0 } as StepResult)),
    close: () => device.close(),
  };
  const engine = new Engine(
    free,
    new ManualClock(),
    { ...ours(null, by === "none" ? "off" : "head"), integrity: "always" },
    (report) => {
      report.sequences.forEach((sequence, at) => {
        tokens[sequence]!.push(report.tokens[at]!);
      });
      last = report.load;
    },
    linearCost(10, 0.01),
  );
  for (const [id, sampling] of samplings.entries()) {
    const prompt = familyPrompt.slice(0, 30 + 2 * id);
    engine.receive({
      kind: "submit",
      sequence: { ...sequenceSpec(prompt, 40, { sampling }), id: id as SequenceId },
    });
  }
  engine.run();
  while (engine.busy) {
    device.wait();
    device.deliver();
  }
  device.close();
  closeNativeModel(library, loaded);
  return { tokens, load: last! };
}

const samplings: readonly Partial<Sampling>[] = [
  {},
  { temperature: 1, seed: [1, 0] },
  { temperature: 1, topP: 0.9, presencePenalty: 1, seed: [2, 0] },
];

describe.each([
  ["mimo", 0],
  ["glm4-moe", 0],
  ["deepseek-v3", 0],
  ["qwen3-next", 16],
])("%s", (name, states) => {
  const folder = join(scratch, name);
  writeFamily(name, folder, {}, true);
  learnByRote(folder, 0.4);

  test.each([...isas])("on %s the tokens are those without a head, in fewer steps", (isa) => {
    for (const sampling of samplings) {
      const plain = run(folder, "none", [sampling], { isa, states });
      const drafted = run(folder, "head", [sampling], { isa, states });
      expect(drafted.tokens).toEqual(plain.tokens);
      expect(drafted.load.acceptedTokensTotal).toBeGreaterThan(0);
      expect(drafted.load.stepsTotal).toBeLessThan(plain.load.stepsTotal);
    }
  });

  test("beside each other, and preempted for want of pages, they are the same", () => {
    const plain = run(folder, "none", samplings, { states });
    const drafted = run(folder, "head", samplings, { pages: 9, states });
    expect(drafted.tokens).toEqual(plain.tokens);
    expect(drafted.load.preemptionsTotal).toBeGreaterThan(0);
  });
});

test("a head that knows nothing of what is drawn changes no token", () => {
  const folder = join(scratch, "random");
  writeFamily("glm4-moe", folder, {}, true);
  expect(run(folder, "head", samplings).tokens).toEqual(run(folder, "none", samplings).tokens);
});

describe.each([
  ["qwen2-yarn", "llama-biases", 0],
  ["deepseek-v3", "qwen3-moe", 0],
  ["mimo", "deepseek-v2", 0],
  ["qwen3-next", "llama-biases", 16],
])("%s with %s for a draft model", (name, draftName, states) => {
  const folder = join(scratch, `target-${name}`);
  const by = { draft: join(scratch, `draft-of-${name}`) };
  writeFamily(name, folder);
  writeFamily(draftName, by.draft, { num_hidden_layers: 2 });
  learnByRote(folder, 0.4);
  learnByRote(by.draft, 0.4);

  test.each([...isas])("on %s the tokens are those without, in fewer steps", (isa) => {
    for (const sampling of samplings) {
      const plain = run(folder, "none", [sampling], { isa, states });
      const drafted = run(folder, by, [sampling], { isa, states });
      expect(drafted.tokens).toEqual(plain.tokens);
      expect(drafted.load.acceptedTokensTotal).toBeGreaterThan(0);
      expect(drafted.load.stepsTotal).toBeLessThan(plain.load.stepsTotal);
    }
  });

  test("beside each other, and preempted for want of pages, they are the same", () => {
    const plain = run(folder, "none", samplings, { states });
    const drafted = run(folder, by, samplings, { pages: 9, states });
    expect(drafted.tokens).toEqual(plain.tokens);
    expect(drafted.load.preemptionsTotal).toBeGreaterThan(0);
  });
});

test("a model that drafts for itself is right with each draft at temperature 0", () => {
  const folder = join(scratch, "itself");
  writeFamily("qwen2-yarn", folder);
  const { tokens, load } = run(folder, { draft: folder }, [{}]);
  expect(tokens).toEqual(run(folder, "none", [{}]).tokens);
  expect(load.acceptedTokensTotal).toBe(load.draftTokensTotal);
  expect(load.acceptedTokensTotal).toBeGreaterThan(0);
});
