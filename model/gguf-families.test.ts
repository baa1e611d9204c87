/** GGUF files whose metadata or tensors carry facts that folders of the same family store elsewhere. */
import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeFamily } from "../tests/reference/families.ts";
import { type Conversion, convertModel, tensorInput } from "../tests/support/gguf-model.ts";
import { type Entry, type GgufInput, ggufBytes } from "../tests/support/gguf-writer.ts";
import { openModelFolder } from "./folder.ts";
import type { JsonObject } from "./json.ts";
import { TensorKind } from "./tensor-kinds.ts";

setDefaultTimeout(60_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-gguf-families-"));
afterAll(() => rmSync(scratch, { recursive: true }));

let files = 0;
/** Folder of a family's random model, which is written once. */
function folderOf(name: string, changes: JsonObject = {}): string {
  const folder = join(scratch, name);
  if (!existsSync(folder)) writeFamily(name, folder, changes);
  return folder;
}

/** Contents of a file of that model. */
function inputOf(name: string, conversion: Partial<Conversion> = {}, changes: JsonObject = {}): GgufInput {
  return convertModel(folderOf(name, changes), { type: "F32", ...conversion });
}

function opened(input: GgufInput) {
  files += 1;
  const file = join(scratch, `${files}.gguf`);
  writeFileSync(file, ggufBytes(input));
  return openModelFolder(file);
}

describe("dense Granite 4", () => {
  const usual = opened(inputOf("granite4-dense")).config.shape;

  test.each(["granitemoe", "granitehybrid"])(
    "under the architecture %s is the same model",
    (architecture) => {
      const input = inputOf("granite4-dense", { architecture });
      const more: Entry[] = [
        [`${architecture}.expert_shared_feed_forward_length`, "u32", 96],
        [`${architecture}.expert_used_count`, "u32", 8],
      ];
      expect(opened({ ...input, entries: [...input.entries, ...more] }).config.shape).toEqual(usual);
    },
  );

  const withKeyHeads = (heads: readonly number[], architecture = "granitehybrid"): GgufInput => {
    const input = inputOf("granite4-dense", { architecture });
    const key = `${architecture}.attention.head_count_kv`;
    const entries = input.entries.filter(([name]) => name !== key);
    return { ...input, entries: [...entries, [key, "i32[]", heads]] };
  };

  test("has the key heads of each layer in a list", () => {
    expect(opened(withKeyHeads([2, 2, 2])).config.shape).toEqual(usual);
    expect(opened(withKeyHeads([2, 2, 2], "granite")).config.shape).toEqual(usual);
  });

  test("other numbers of key heads in a list are refused", () => {
    expect(() => opened(withKeyHeads([2, 1, 2], "granite"))).toThrow(
      "layers of a granite model do not differ",
    );
    expect(() => opened(withKeyHeads([2, 0, 2], "granite"))).toThrow("wanted: whole numbers from 1 to 4096");
  });
});

describe("Apertus", () => {
  test("has the numbers of each layer's activation in metadata, read from their places", () => {
    const { tensors } = opened(inputOf("apertus"));
    const listed = tensors.filter(({ tensor }) => tensor >= TensorKind.xieluAlphaP);
    expect(listed.length).toBe(3 * 4);
    const values = listed.map(({ path, offset }) => readFileSync(path).readFloatLE(offset));
    const folder = openModelFolder(folderOf("apertus"));
    const ofFolder = folder.tensors
      .filter(({ tensor }) => tensor >= TensorKind.xieluAlphaP)
      .map(
        ({ path, offset }) =>
          new Float32Array(Uint32Array.of(readFileSync(path).readUInt16LE(offset) << 16).buffer)[0],
      );
    expect(values).toEqual(ofFolder as number[]);
  });

  test("an array that is too short lacks a layer's", () => {
    const input = inputOf("apertus");
    const entries = input.entries.map(
      (entry): Entry => (entry[0] === "xielu.beta" ? [entry[0], "f32[]", [0.5, 0.5]] : entry),
    );
    expect(() => opened({ ...input, entries })).toThrow("blk.2.xielu.beta: the tensor is missing");
  });

  test("numbers of another type are refused", () => {
    const input = inputOf("apertus");
    const entries = input.entries.map(
      (entry): Entry => (entry[0] === "xielu.eps" ? [entry[0], "f64[]", [0, 0, 0]] : entry),
    );
    expect(() => opened({ ...input, entries })).toThrow("xielu.eps: wanted: an array of real numbers (f32)");
  });
});

test("StarCoder 2 has its published window where a file says none", () => {
  const window = (contextMax: number): number => {
    const input = inputOf("starcoder2");
    const entries = input.entries
      .filter(([key]) => !key.startsWith("starcoder2.attention.sliding_window"))
      .map(
        (entry): Entry => (entry[0] === "starcoder2.context_length" ? [entry[0], "u32", contextMax] : entry),
      );
    return opened({ ...input, entries }).config.shape.layers[0]!.slidingWindow;
  };
  expect([window(16_384), window(4096)]).toEqual([4096, 0]);
});

test("Gemma 4's scale of experts in NVFP4 is a factor of the matrix already, and applied once", () => {
  const sizes = { moe_intermediate_size: 64 };
  const input = inputOf("gemma4-moe", { expertType: "NVFP4" }, sizes);
  const scales = new Float32Array(6).fill(0.5);
  const tensors = [
    ...input.tensors,
    ...[0, 1, 2].map((layer) => tensorInput(`blk.${layer}.ffn_gate_up_exps.scale`, [6], "F32", scales)),
  ];
  const model = opened({ ...input, tensors });
  const ofExperts = (kind: number) =>
    model.tensors.filter(({ tensor, layer }) => tensor === kind && layer === 1);
  expect(ofExperts(TensorKind.expertScales).map(({ name }) => name)).toEqual(["blk.1.ffn_down_exps.scale"]);
  expect(ofExperts(TensorKind.down).map(({ quantised }) => quantised!.factor)).toEqual(Array(6).fill(null));
  expect(ofExperts(TensorKind.gate)[0]!.quantised!.factor?.name).toBe("blk.1.ffn_gate_up_exps.scale");
});
