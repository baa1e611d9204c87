/**
 * LoRA adapters on the CPU. A model with an adapter computes what the model with merged weights computes. Rows
 * of several adapters in one step have the bits that each has alone.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { adapterLimits } from "../../gpu/native/open.ts";
import { openAdapter } from "../../model/adapter.ts";
import { openModelFolder } from "../../model/folder.ts";
import type { Quant } from "../../model/formats.ts";
import type { EngineId } from "../../scheduler/core.ts";
import { LoopClock } from "../../server/engines/loop-clock.ts";
import { openDevice } from "../../server/engines/open-device.ts";
import type { DeviceSetup } from "../../server/engines/protocol.ts";
import { familyPrompt, writeFamily } from "../reference/families.ts";
import { type AdapterOptions, adapterGguf, writeAdapter, writeMerged } from "../support/adapter-folder.ts";
import { convertModel } from "../support/gguf-model.ts";
import { ggufBytes } from "../support/gguf-writer.ts";
import { largestDifference, sameBits } from "./compare.ts";
import { cpuLibrary, cpuLibraryPath } from "./library.ts";
import { Rig } from "./rig.ts";

setDefaultTimeout(60_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-adapters-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/** Models whose matrices lie in every way in which an adapter finds them. */
const models = [
  ["llama-biases", "q, k, v and gate, up apart"],
  ["phi3-long", "q, k and v in one matrix, gate and up in another"],
  ["gemma2", "norms after the products"],
  ["cohere2", "attention and MLP beside each other"],
  ["granite", "scaled residuals"],
  ["starcoder2", "an MLP without a gate"],
  ["qwen2-moe", "experts beside shared ones"],
  ["deepseek-v2", "latent attention"],
  ["mistral4", "latents of queries"],
  ["qwen3-5", "the delta rule, gates in the matrix of q"],
  ["falcon-h1", "Mamba-2 beside attention"],
  ["lfm2", "short convolutions"],
  ["gemma3n", "sparse gates, which no adapter changes"],
  ["bailing-moe", "rows of q, k and v grouped by head"],
] as const;

const first: AdapterOptions = { seed: 1, rank: 8, alpha: 16 };
const second: AdapterOptions = { seed: 2, rank: 20, alpha: 10 };

/** Logits after the prompt, whole and in chunks. */
function logitsOf(rig: Rig, adapter = 0): Float32Array {
  const stream = rig.stream(familyPrompt, adapter);
  const [drawn] = rig.step([{ stream, count: familyPrompt.length }]);
  rig.free(stream);
  return drawn!.logits;
}

describe.each(models.map(([name, what]) => ({ name, what })))("$name ($what)", ({ name }) => {
  const model = join(scratch, name);
  const paths = [join(scratch, `${name}-first`), join(scratch, `${name}-second`)] as const;
  beforeAll(() => {
    writeFamily(name, model);
    for (const [index, options] of [first, second].entries())
      writeMerged(
        model,
        writeAdapter(model, paths[index]!, options),
        options.alpha / options.rank,
        `${paths[index]}-merged`,
      );
  });

  const open = (compute: "f32" | "bf16", quant: Quant = "none"): { rig: Rig; ids: readonly number[] } => {
    const folder = openModelFolder(model);
    const adapters = paths.map((path) => openAdapter(path, folder));
    const rig = new Rig(cpuLibrary(), folder, { compute, quant, adapters });
    return { rig, ids: adapters.map(({ id }) => id) };
  };

  // Sums in f32 differ by their order; logits are of size 1 to 10.
  test("computes what merged weights compute, in f32", () => {
    const { rig, ids } = open("f32");
    const base = logitsOf(rig);
    for (const [index, path] of paths.entries()) {
      const merged = new Rig(cpuLibrary(), openModelFolder(`${path}-merged`), { compute: "f32" });
      const wanted = logitsOf(merged);
      const adapted = logitsOf(rig, ids[index]!);
      merged.close();
      expect(largestDifference(adapted, wanted)).toBeLessThan(2e-4);
      expect(largestDifference(adapted, base)).toBeGreaterThan(0.1);
    }
    rig.close();
  });

  test.each([
    ["f32", "none"],
    ["bf16", "none"],
    ["bf16", "int8"],
  ] as const)("has the same bits alone, in chunks and beside others, in %s, %s", (compute, quant) => {
    const { rig, ids } = open(compute, quant);
    const adapters = [0, ...ids];
    const alone = adapters.map((adapter) => logitsOf(rig, adapter));
    for (const size of [1, 5, 17]) {
      const stream = rig.stream(familyPrompt, ids[0]);
      rig.generate(stream, 1, size, [], (position, logits) => {
        if (position === familyPrompt.length - 1) expect(sameBits(logits, alone[1]!)).toBeTrue();
      });
      rig.free(stream);
    }
    // Prompts and decodes of all adapters and of none, in one step and in any order.
    const order = [1, 0, 2, 1, 2, 0];
    const streams = order.map((which) => rig.stream(familyPrompt, adapters[which]));
    const heads = [47, 40, 47, 7, 47, 47];
    rig.step(streams.map((stream, index) => ({ stream, count: heads[index]!, isUndrawn: true as const })));
    const drawn = rig.step(
      streams.map((stream, index) => ({ stream, count: familyPrompt.length - heads[index]! })),
    );
    for (const [index, which] of order.entries())
      expect(sameBits(drawn[index]!.logits, alone[which]!), `stream ${index}`).toBeTrue();
    rig.close();
  });
});

// Llama's files have the rows of q and k in pairs, and so have those of its adapters.
test("adapters and models in folders and in GGUF files go together, with the same bits", () => {
  const folder = join(scratch, "both");
  writeFamily("llama-biases", folder);
  const peft = join(scratch, "both-peft");
  const factors = writeAdapter(folder, peft, first);
  const [model, adapter] = [join(scratch, "both.gguf"), join(scratch, "both-adapter.gguf")];
  writeFileSync(model, ggufBytes(convertModel(folder, { type: "F32", name: "both" })));
  const { headSize } = openModelFolder(folder).config.shape;
  writeFileSync(adapter, ggufBytes(adapterGguf(factors, "llama", first.alpha, headSize)));
  const logits = [folder, model].flatMap((base) =>
    [peft, adapter].map((path) => {
      const opened = openModelFolder(base);
      const lora = openAdapter(path, opened);
      const rig = new Rig(cpuLibrary(), opened, { compute: "f32", adapters: [lora] });
      const found = logitsOf(rig, lora.id);
      rig.close();
      return found;
    }),
  );
  for (const other of logits.slice(1)) expect(sameBits(other, logits[0]!)).toBeTrue();
});

test("a model that is loaded again refuses an adapter whose files have changed", () => {
  const folder = join(scratch, "changed");
  writeFamily("llama-biases", folder);
  const path = join(scratch, "changed-adapter");
  writeAdapter(folder, path, first);
  const adapters = [openAdapter(path, openModelFolder(folder))];
  const model = { compute: "bf16", isa: "auto", threads: 1, contextMax: 256, adapters } as const;
  const limits = {
    ...{ threads: 1, pages: 32, pageTokens: 16, stepTokensMax: 64, stepChunksMax: 4, topLogprobsMax: 0 },
    ...adapterLimits(adapters),
  };
  const setup: DeviceSetup = { kind: "cpu", library: cpuLibraryPath(), folder, model, limits };
  const open = () =>
    openDevice(setup, 0 as EngineId, { model: null, costs: null }, new LoopClock(), () => {});
  const opened = open();
  opened.device.close();
  opened.closeModel();
  rmSync(path, { recursive: true });
  writeAdapter(folder, path, { ...first, seed: 9 });
  expect(open).toThrow(`${path}: has changed since the server read it`);
});
