/**
 * GPU-only features: low-bit weights, keys and values, with their effect on the logits; memory allocation and
 * release; refusals. csrc/cuda/tests compares single kernels with sums in double.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NativeDevice } from "../../gpu/native/device.ts";
import { closeNativeModel, type LoadStage, openGpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import { parseModelConfig } from "../../model/config.ts";
import { openModelFolder } from "../../model/folder.ts";
import { formatsOf, widenedNote } from "../../model/formats.ts";
import type { JsonObject } from "../../model/json.ts";
import type { ModelFolder } from "../../model/model-folder.ts";
import { storedTypes } from "../../model/stored-types.ts";
import type { SequenceId, StateSlot, Step, StepResult } from "../../scheduler/core.ts";
import { sampling } from "../../simulation/factories.ts";
import { writeRandomModel } from "../../tools/random-model.ts";
import { familyPrompt, writeFamily } from "../reference/families.ts";
import { type ReferenceName, referenceModel } from "../reference/models.ts";
import type { StoredName } from "../support/gguf-blocks.ts";
import { convertModel } from "../support/gguf-model.ts";
import { ggufBytes } from "../support/gguf-writer.ts";
import { cosineOf, sameBits } from "./compare.ts";
import { cpuLibrary, emulatedLibrary, gpuEngines } from "./library.ts";
import { expectRefusal } from "./refusal.ts";
import { Rig, type RigOptions } from "./rig.ts";

setDefaultTimeout(120_000);

const families = mkdtempSync(join(tmpdir(), "bunting-gpu-"));
afterAll(() => rmSync(families, { recursive: true }));

/** Opens a family's model. */
function family(name: string): ModelFolder {
  const dir = join(families, name);
  if (!existsSync(dir)) writeFamily(name, dir);
  return openModelFolder(dir);
}

type Fewer = Partial<Pick<RigOptions, "quant" | "kv">>;

/**
 * Cosines with the bf16 model that the mean over positions must exceed. Sums over 48 to 128 random weights
 * are hard on low-bit numbers.
 */
const ways: readonly (readonly [string, Fewer, number])[] = [
  ["weights in int8", { quant: "int8" }, 0.999],
  ["weights in int6", { quant: "int6" }, 0.985],
  ["weights in int4", { quant: "int4" }, 0.93],
  ["weights in fp8", { quant: "fp8" }, 0.99],
  ["keys and values in fp8", { kv: "fp8" }, 0.997],
  ["all in fp8", { quant: "fp8", kv: "fp8" }, 0.985],
];

/** Model wide enough for blocks of 256. */
const wideModel: JsonObject = {
  architectures: ["Qwen3ForCausalLM"],
  hidden_size: 256,
  intermediate_size: 512,
  max_position_embeddings: 256,
  num_attention_heads: 4,
  num_hidden_layers: 2,
  num_key_value_heads: 2,
  head_dim: 64,
  vocab_size: 500,
  tie_word_embeddings: false,
  initializer_range: 0.02,
};

for (const { name: engine, library } of gpuEngines()) {
  describe.each(["mistral", "llama3-96", "qwen3-128"] as const)(`%s on ${engine}`, (name) => {
    const { dir, prompts } = referenceModel(name);
    const folder = openModelFolder(dir);
    const tokens = prompts.long.slice(0, 20);
    let original: readonly Float32Array[];
    beforeAll(() => {
      const rig = new Rig(library, folder);
      original = logitsOf(rig, tokens);
      rig.close();
    });

    test.each(ways)("with %s is near itself, and the same in company", (_, fewer, cosineMin) => {
      const rig = new Rig(library, folder, fewer);
      const together = logitsOf(rig, tokens);
      const cosines = together.map((row, position) => cosineOf(row, original[position]!));
      expect(cosines.reduce((a, b) => a + b) / cosines.length).toBeGreaterThan(cosineMin);
      expect(together.some((row, position) => !sameBits(row, original[position]!))).toBeTrue();
      const alone = rig.stream(tokens);
      rig.generate(alone, 1, 7, [], (position, logits) => {
        if (position < tokens.length) expect(sameBits(logits, together[position]!)).toBeTrue();
      });
      rig.close();
    });
  });

  test.each([
    ["int8", 0.997],
    ["fp8", 0.95],
  ] as const)(`latent layers with weights in %s are near themselves on ${engine}`, (quant, cosineMin) => {
    const tokens = familyPrompt.slice(0, 9);
    const [fewer, original] = ([quant, "none"] as const).map((one) => {
      const rig = new Rig(library, family("deepseek-v2"), { quant: one });
      const logits = logitsOf(rig, tokens);
      rig.close();
      return logits;
    });
    const cosines = fewer!.map((row, position) => cosineOf(row, original![position]!));
    expect(cosines.reduce((a, b) => a + b) / cosines.length).toBeGreaterThan(cosineMin);
    expect(fewer!.some((row, position) => !sameBits(row, original![position]!))).toBeTrue();
  });

  test(`blocks of a file are rounded again for fewer bits on ${engine}`, () => {
    const scratch = mkdtempSync(join(tmpdir(), "bunting-groups-"));
    const file = join(scratch, "model.gguf");
    const { dir, prompts } = referenceModel("mistral");
    writeFileSync(file, ggufBytes(convertModel(dir, { type: "Q8_0" })));
    const tokens = prompts.long.slice(0, 20);
    const [stored, rounded] = (["none", "int6"] as const).map((quant) => {
      const rig = new Rig(library, openModelFolder(file), { quant });
      const logits = logitsOf(rig, tokens);
      rig.close();
      return logits;
    });
    const cosines = rounded!.map((row, position) => cosineOf(row, stored![position]!));
    const mean = cosines.reduce((a, b) => a + b) / cosines.length;
    expect(mean).toBeGreaterThan(0.98);
    expect(mean).toBeLessThan(0.9999);
    rmSync(scratch, { recursive: true });
  });

  const keptBlocks: Readonly<Record<string, number>> = { Q4_0: 0.999, Q8_0: 0.999, MXFP4: 0.99999 };
  const blockTypes = Object.entries(storedTypes).filter(([, { kind }]) => kind === "blocks");
  test.each(
    blockTypes.map(([name]): [StoredName, RegExp | null, number] => [
      name as StoredName,
      keptBlocks[name] === undefined ? new RegExp(`^\\d+ matrices in ${name}.* become int8`) : null,
      keptBlocks[name] ?? 0.999,
    ]),
  )(`blocks in %s are computed as near as ${engine} can, and what changes is said`, (type, note, least) => {
    const scratch = mkdtempSync(join(tmpdir(), "bunting-blocks-"));
    const dir = join(scratch, "folder");
    writeRandomModel({ file: "config.json", json: wideModel }, dir, { seed: 5 });
    const file = join(scratch, "model.gguf");
    writeFileSync(file, ggufBytes(convertModel(dir, { type })));
    const folder = openModelFolder(file);
    const formats = formatsOf(folder.tensors, 2, "auto", "bf16", "gpu");
    const said = widenedNote(folder.tensors, formats, "bf16");
    if (note === null) expect(said).toBeNull();
    else expect(said).toMatch(note);
    const tokens = Array.from({ length: 12 }, (_, index) => (index * 37 + 11) % 500);
    const [kept, exact] = (["auto", "none"] as const).map((quant) => {
      const rig = new Rig(library, folder, { quant });
      const logits = logitsOf(rig, tokens);
      rig.close();
      return logits;
    });
    for (const [position, row] of kept!.entries()) {
      expect(cosineOf(row, exact![position]!)).toBeGreaterThan(least);
    }
    rmSync(scratch, { recursive: true });
  });

  describe(`${engine} refuses with a sentence`, () => {
    test.each<[string, ReferenceName, Partial<RigOptions>, string]>([
      [
        "heads without kernels",
        "qwen3",
        {},
        "the GPU engine has heads of 32, 64, 96, 128, 256 and 512, not of 80",
      ],
      ["fp8 for other heads", "qwen2", { kv: "fp8" }, "fp8 for heads of 64, 96 and 128, not of 32"],
      ["keys in int8", "qwen2", { kv: "int8" }, "GPUs keep keys and values in bf16 or fp8, not in int8"],
      ["keys in int4", "qwen2", { kv: "int4" }, "GPUs keep keys and values in bf16 or fp8, not in int4"],
      ["f32", "qwen2", { compute: "f32" }, "the GPU engine computes in bf16, not in f32"],
    ])("%s", (_, name, options, sentence) => {
      expectRefusal(
        () => new Rig(library, openModelFolder(referenceModel(name).dir), options),
        "invalid",
        sentence,
      );
    });

    test.each(["fp8", "int8"] as const)("latents in %s", (kv) => {
      const sentence = "the KV cache of latent layers is plain, not int8, fp8 or int4";
      expectRefusal(() => new Rig(library, family("deepseek-v2"), { kv }), "invalid", sentence);
    });
  });
}

describe("memory, of which the emulated GPU counts every byte", () => {
  const library = emulatedLibrary();
  const folder = openModelFolder(referenceModel("qwen2").dir);
  const options = { compute: "bf16", isa: "auto", threads: 1, contextMax: null } as const;
  const limits = {
    ...{ threads: 1, pages: 8, pageTokens: 16, stepTokensMax: 32, stepChunksMax: 4, topLogprobsMax: 0 },
  };
  const freeBytes = (): number => library.deviceProbe(0).memoryFreeBytes;

  test.each([
    ["keys and values", folder, 0],
    ["latents", family("deepseek-v3"), 0],
    ["states", family("qwen3-5"), 6],
  ])("of %s is what was planned, all taken at the start and given back at the end", (_, opened, states) => {
    const before = freeBytes();
    const model = openNativeModel(library, opened, options, () => undefined);
    const all = { ...limits, states };
    const { workspaceBytes, copyBytes } = library.enginePlan(opened.config.shape, options, {
      ...all,
      devices: [0],
    });
    const device = openGpuDevice(library, model, all, 0, () => {});
    const taken = before - freeBytes();
    const planned = workspaceBytes + copyBytes + limits.pages * model.pageBytes + states * model.stateBytes;
    expect(taken).toBe(planned);
    const slot = 1 as StateSlot;
    for (const tokens of [[1, 2, 3], [4], [5, 6]]) stepOf(device, tokens, states > 0 ? slot : null);
    expect(before - freeBytes()).toBe(taken);
    device.close();
    closeNativeModel(library, model);
    expect(freeBytes()).toBe(before);
  });

  test("of the machine has no weights: each engine reads them from the files, and tells how far it is", () => {
    const model = openNativeModel(library, folder, options, () => undefined);
    const [first, second] = [1, 2].map(() => {
      const progress: (readonly [number, number, LoadStage])[] = [];
      const device = openGpuDevice(library, model, limits, 0, (...now) => progress.push(now));
      const logits = stepOf(device, [1, 2, 3]);
      device.close();
      return { progress, logits };
    });
    const { copyBytes } = library.enginePlan(folder.config.shape, options, { ...limits, devices: [0] });
    expect(first!.progress.at(-1)).toEqual([copyBytes, copyBytes, "copying"]);
    expect(second).toEqual(first!);
    closeNativeModel(library, model);
  });

  test("of the machine holds pieces of a model that is larger than it", () => {
    const json = {
      ...{ architectures: ["LlamaForCausalLM"], hidden_size: 8192, intermediate_size: 28_672 },
      ...{ num_hidden_layers: 80, num_attention_heads: 64, num_key_value_heads: 8, vocab_size: 128_256 },
      ...{ max_position_embeddings: 131_072, rms_norm_eps: 1e-5, rope_theta: 500_000 },
    };
    const { shape } = parseModelConfig({ file: "config.json", json }, { file: "", json: {} });
    const all = { ...limits, stepTokensMax: 2048, stepChunksMax: 512, devices: [0] };
    const { copyBytes, hostBytes } = library.enginePlan(shape, { ...options, threads: 32 }, all);
    expect(copyBytes).toBeGreaterThan(128 * 2 ** 30);
    expect(hostBytes).toBeLessThan(2 ** 29);
  });

  test("that is not there is missed at the start, with the number, and what was taken is given back", () => {
    const before = freeBytes();
    const model = openNativeModel(library, folder, options, () => undefined);
    const pages = Math.ceil(before / model.pageBytes);
    const bytes = pages * model.pageBytes;
    expectRefusal(
      () => openGpuDevice(library, model, { ...limits, pages }, 0, () => {}),
      "noMemory",
      `no ${bytes} bytes left for KV pages`,
    );
    expect(freeBytes()).toBe(before);
    closeNativeModel(library, model);
  });
});

describe("a CPU refuses with a sentence", () => {
  test.each<[string, Fewer, string]>([
    ["weights in fp8", { quant: "fp8" }, "CPUs keep weights in bf16, f32, int8, int6 or int4, not in fp8"],
    ["keys in fp8", { kv: "fp8" }, "CPUs keep keys and values in bf16, f32, int8 or int4, not in fp8"],
  ])("%s", (_, options, sentence) => {
    const folder = openModelFolder(referenceModel("mistral").dir);
    expectRefusal(() => new Rig(cpuLibrary(), folder, options), "invalid", sentence);
  });

  test("to look for cuBLASLt", () => {
    expectRefusal(() => cpuLibrary().cublasltProbe(0), "invalid", "this library computes on the CPU");
  });
});

/** Returns the logits after every position, each a stream of its own in one step. */
function logitsOf(rig: Rig, tokens: readonly number[]): Float32Array[] {
  const parts = tokens.map((_, position) => ({
    stream: rig.stream(tokens.slice(0, position + 1)),
    count: position + 1,
  }));
  const logits = rig.step(parts).map((drawn) => drawn.logits);
  for (const { stream } of parts) rig.free(stream);
  return logits;
}

/** Returns the logits after a prompt that is computed in one step. `slot`: of its state; null: it has none. */
function stepOf(
  device: NativeDevice,
  tokens: readonly number[],
  slot: StateSlot | null = null,
): Float32Array {
  const afterIndex = tokens.length - 1;
  const row = { afterIndex, sampling: sampling(), position: 0, banned: [], seen: null, allowed: null };
  const step: Step = {
    number: 1,
    moves: [],
    chunks: [
      {
        sequence: 1 as SequenceId,
        start: 0,
        tokens: Int32Array.from(tokens),
        pages: new Int32Array(1),
        samples: [row],
        adapter: 0,
        ...(slot === null ? {} : { state: { slot, from: null, saves: [] } }),
      },
    ],
  };
  const results: StepResult[] = [];
  device.start(step, (result) => results.push(result));
  device.wait();
  device.deliver();
  expect(results[0]!.kind).toBe("done");
  return device.logits();
}
