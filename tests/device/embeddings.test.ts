/**
 * Pooled hidden states through an engine, compared with Hugging Face transformers: on the CPU with plain and
 * int8 weights, and on the emulated GPU. They are the same bits however the scheduler computes them.
 */
import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Pooling } from "../../base/token.ts";
import { closeNativeModel, openCpuDevice, openGpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import type { NativeLibrary } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import { formatsOf, type Quant } from "../../model/formats.ts";
import type { SequenceId } from "../../scheduler/core.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { sequenceSpec } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { type ReferenceName, referenceModel } from "../reference/models.ts";
import { renameTensors } from "../support/headless-folder.ts";
import { cosineOf, largestDifference } from "./compare.ts";
import { cpuLibrary, emulatedLibrary } from "./library.ts";

setDefaultTimeout(60_000); // milliseconds, for an emulated GPU on a busy machine

const scratch = mkdtempSync(join(tmpdir(), "bunting-embeddings-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const poolings: readonly Pooling[] = ["last", "mean", "first"];

interface Way {
  readonly library: NativeLibrary;
  readonly dir: string;
  readonly compute: "f32" | "bf16";
  readonly quant?: Quant;
  readonly pages?: number;
  readonly stepTokens?: number;
  /** True if a chat of the same prompt runs beside it. */
  readonly hasCompany?: boolean;
}

/** Returns the states of a prompt by each pooling, from one engine. */
function pooledStates(way: Way, prompt: readonly number[]): Float32Array[] {
  const { library, compute, quant = "none", pages = 64, stepTokens = 64 } = way;
  const isGpu = library !== cpu;
  const folder = openModelFolder(way.dir);
  const formats = formatsOf(
    folder.tensors,
    folder.config.shape.layers.length,
    quant,
    compute,
    isGpu ? "gpu" : "cpu",
  );
  const options = { compute, formats, isa: "auto", threads: 1, contextMax: null } as const;
  const model = openNativeModel(library, folder, options, () => undefined);
  const limits = {
    ...{ threads: 2, pages, pageTokens: 16, stepTokensMax: 64, stepChunksMax: 16 },
    ...{ stepHiddenMax: 64, topLogprobsMax: 0 },
  };
  const device = isGpu
    ? openGpuDevice(library, model, limits, 0, () => {})
    : openCpuDevice(library, model, limits);
  const states: Float32Array[] = [];
  const settings = { batch: staticBudget(stepTokens), integrity: "always" } as const;
  const engine = new Engine(device, new ManualClock(), settings, (report) => {
    for (const { sequence, finish } of report.finished) {
      if (finish.kind === "pooled") states[sequence] = finish.hidden;
      else expect(finish).toEqual({ kind: "length" });
    }
  });
  const specs = poolings.map((pooling) => sequenceSpec(prompt, 1, { pooling }));
  if (way.hasCompany) specs.push(sequenceSpec(prompt, 20));
  specs.forEach((spec, id) => {
    engine.receive({ kind: "submit", sequence: { ...spec, id: id as SequenceId } });
  });
  engine.run();
  while (device.inFlight) {
    device.wait();
    device.deliver();
  }
  device.close();
  closeNativeModel(library, model);
  return states;
}

/** Returns the same from transformers' hidden states. */
function referenceStates(name: ReferenceName): Float32Array[] {
  const { prompts, hidden } = referenceModel(name);
  const count = prompts.long.length;
  const all = hidden();
  const size = all.length / count;
  const row = (position: number): Float32Array => all.slice(position * size, (position + 1) * size);
  const mean = row(0).map((_, i) => {
    let sum = 0;
    for (let position = 0; position < count; position += 1) sum += all[position * size + i]!;
    return sum / count;
  });
  return [row(count - 1), mean, row(0)];
}

const cpu = cpuLibrary();
const { dir, prompts } = referenceModel("qwen3");

describe("pooled hidden states", () => {
  const expected = referenceStates("qwen3");

  test("in f32 are those of transformers", () => {
    const states = pooledStates({ library: cpu, dir, compute: "f32" }, prompts.long);
    states.forEach((state, i) => {
      const largest = largestDifference(expected[i]!, new Float32Array(state.length));
      expect(largestDifference(state, expected[i]!) / largest).toBeLessThan(1e-4);
    });
  });

  test.each([
    ["bf16", { quant: "none", least: 0.999 }],
    ["int8", { quant: "int8", least: 0.99 }],
  ] as const)("in %s they point where those of transformers do", (_, { quant, least }) => {
    const states = pooledStates({ library: cpu, dir, compute: "bf16", quant }, prompts.long);
    states.forEach((state, i) => {
      expect(cosineOf(state, expected[i]!)).toBeGreaterThan(least);
    });
  });

  test("meet a row for yes and a row for no as transformers' logits tell", () => {
    const [yes, no] = [17, 101];
    const ranking = join(scratch, "ranking");
    cpSync(dir, ranking, { recursive: true });
    mkdirSync(join(ranking, "1_LogitScore"));
    const tokens = { true_token_id: yes, false_token_id: no };
    writeFileSync(join(ranking, "1_LogitScore", "config.json"), JSON.stringify(tokens));
    const { score } = openModelFolder(ranking);
    if ("refusal" in score) throw new Error(score.refusal);
    const [last] = pooledStates({ library: cpu, dir, compute: "f32" }, prompts.long);
    const logits = referenceModel("qwen3").logits("f32", "long", prompts.long.length - 1);
    const difference = last!.reduce((sum, value, i) => sum + value * score.weights[i]!, 0);
    expect(difference).toBeCloseTo(logits[yes]! - logits[no]!, 4);
  });

  test("on the emulated GPU, too", () => {
    const model = referenceModel("qwen3-128");
    const way = { library: emulatedLibrary(), dir: model.dir, compute: "bf16" } as const;
    pooledStates(way, model.prompts.long).forEach((state, i) => {
      expect(cosineOf(state, referenceStates("qwen3-128")[i]!)).toBeGreaterThan(0.999);
    });
  });

  test("are the same bits in chunks, in company, and with few pages", () => {
    for (const compute of ["f32", "bf16"] as const) {
      const whole = pooledStates({ library: cpu, dir, compute }, prompts.long);
      for (const stepTokens of [5, 16, 40]) {
        for (const pages of [6, 64]) {
          const way: Way = { library: cpu, dir, compute, stepTokens, pages, hasCompany: true };
          expect(pooledStates(way, prompts.long)).toEqual(whole);
        }
      }
    }
  });

  test("of a model without a vocabulary projection are those of the model with it", () => {
    const headless = join(scratch, "headless");
    cpSync(dir, headless, { recursive: true });
    renameTensors(headless);
    const way = { library: cpu, compute: "f32" } as const;
    expect(pooledStates({ ...way, dir: headless }, prompts.long)).toEqual(
      pooledStates({ ...way, dir }, prompts.long),
    );
  });
});
