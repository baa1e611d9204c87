import { afterAll, describe, expect, test } from "bun:test";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { referenceModel, referenceModels } from "../tests/reference/models.ts";
import { openModelFolder } from "./folder.ts";
import { ModelError } from "./model-error.ts";
import type { ModelFolder } from "./model-folder.ts";
import { readSafetensors, readStoredTensors, type StoredTensor } from "./safetensors.ts";
import { TensorKind } from "./tensor-kinds.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-folder-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const emptyFolder = (...names: string[]): string => {
  const dir = mkdtempSync(join(scratch, "f-"));
  for (const name of names) writeFileSync(join(dir, name), "{}");
  return dir;
};
const copyOf = (name: Parameters<typeof referenceModel>[0]): string => {
  const dir = mkdtempSync(join(scratch, "m-"));
  cpSync(referenceModel(name).dir, dir, { recursive: true });
  return dir;
};
const errorOf = (dir: string): string => {
  try {
    openModelFolder(dir);
  } catch (error) {
    expect(error).toBeInstanceOf(ModelError);
    return (error as ModelError).message.replaceAll(dir, "DIR");
  }
  throw new Error("opened");
};

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** Rewrites the header of a folder's model.safetensors; the data stays. */
function editHeader(dir: string, edit: (header: Record<string, Entry>) => void): void {
  const file = join(dir, "model.safetensors");
  const bytes = readFileSync(file);
  const length = Number(bytes.readBigUint64LE(0));
  const header = JSON.parse(bytes.toString("utf8", 8, 8 + length));
  edit(header);
  const json = Buffer.from(JSON.stringify(header));
  const start = Buffer.alloc(8);
  start.writeBigUint64LE(BigInt(json.length));
  writeFileSync(file, Buffer.concat([start, json, bytes.subarray(8 + length)]));
}

function editConfig(dir: string, changes: Record<string, unknown>): void {
  const file = join(dir, "config.json");
  writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, "utf8")), ...changes }));
}

describe("reference models", () => {
  test.each(referenceModels().map((model) => [model.name, model] as const))("%s opens", (_, model) => {
    const folder = openModelFolder(model.dir);
    const { shape } = folder.config;
    expect(shape.vocab).toBe(model.vocab);
    expect(folder.eosTokens).toEqual([2, 3]);
    expect(folder.contextMax).toBe(shape.contextMax);
    // Every stored tensor is used exactly once, and every range lies in its file.
    const stored = readStoredTensors(model.dir);
    expect(folder.weightFilesBytes).toBe(stored.filesBytes);
    expect(folder.tensors.map((tensor) => tensor.name).sort()).toEqual([...stored.tensors.keys()].sort());
    const keys = folder.tensors.map((tensor) => `${tensor.tensor}/${tensor.layer}`);
    expect(new Set(keys).size).toBe(keys.length);
    for (const tensor of folder.tensors) {
      const bytes = tensor.rows * tensor.cols * (tensor.dtype === 0 ? 4 : 2);
      expect(stored.tensors.get(tensor.name)).toMatchObject({
        offset: tensor.offset,
        bytes,
        file: tensor.path,
      });
    }
  });

  test("tensors carry engine.h's numbers", () => {
    const header = readFileSync(join(import.meta.dir, "../csrc/include/engine.h"), "utf8");
    const numbers = Object.fromEntries(
      [...header.matchAll(/BUNTING_T_(\w+) = (\d+),/g)].map((match) => [match[1]!, Number(match[2])]),
    );
    const spelled = Object.entries(TensorKind).map(([name, number]): [string, number] => {
      const words = name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
      return [words.replace("ATTENTION", "ATTN"), number];
    });
    expect(Object.fromEntries(spelled)).toEqual(numbers);
  });
});

describe("folders that are no models", () => {
  test.each<[string, string[], string]>([
    ["nothing", [], "DIR: has neither model.safetensors, nor its index, nor a GGUF file"],
    ["only weights", ["model.safetensors"], "DIR: has no config.json"],
    ["pickled", ["config.json", "pytorch_model.bin"], "it has pytorch_model.bin (pickled PyTorch weights"],
    [
      "pickled shards",
      ["config.json", "pytorch_model-00001-of-00002.bin"],
      "it has pytorch_model-00001-of-00002.bin",
    ],
    ["one GGUF file", ["tiny.gguf", "mmproj-tiny.gguf"], "DIR/tiny.gguf: has 2 bytes"],
    [
      "parts of a GGUF file",
      ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"],
      "DIR/a-00001-of-00002.gguf: ",
    ],
    [
      "GGUF files",
      ["b.gguf", "a.gguf"],
      "DIR: has several GGUF files: give the path of one of a.gguf, b.gguf",
    ],
    ["adapter", ["adapter_config.json", "adapter_model.safetensors"], "a LoRA adapter"],
    ["publisher's layout", ["config.json", "consolidated.safetensors"], "it has consolidated.safetensors"],
    ["another name", ["config.json", "weights.safetensors"], "it has weights.safetensors"],
    [
      "empty files",
      ["config.json", "model.safetensors"],
      "DIR/config.json: model_type: missing: supported: Llama",
    ],
  ])("%s", (_, names, message) => {
    expect(errorOf(emptyFolder(...names))).toContain(message);
  });

  test("a path that is missing or a file", () => {
    expect(errorOf(join(scratch, "none"))).toBe(
      "DIR: does not exist; wanted: a Hugging Face folder, a GGUF file, or a published name such as Qwen/Qwen3-0.6B or qwen3:0.6b",
    );
    for (const name of ["Nobody/Model-0.6B", "https://huggingface.co/Nobody/Model-0.6B"]) {
      expect(errorOf(name)).toContain(
        ": does not exist, and Hugging Face's cache has no such model; `bunting pull ",
      );
    }
    const dir = emptyFolder("tiny.bin");
    expect(errorOf(join(dir, "tiny.bin"))).toBe(
      "DIR: is not a folder; wanted: a Hugging Face folder with config.json and *.safetensors, or a GGUF file",
    );
  });
});

describe("damaged models are refused, naming file, tensor and reason", () => {
  const norm = "model.layers.1.input_layernorm.weight";

  test("missing tensor", () => {
    const dir = copyOf("llama2");
    editHeader(dir, (header) => {
      header["model.layers.1.other.weight"] = header[norm]!;
      delete header[norm];
    });
    expect(errorOf(dir)).toBe(`DIR/model.safetensors: ${norm}: the tensor is missing`);
  });

  test("wrong shape, also when the size is right", () => {
    const dir = copyOf("llama2");
    editHeader(dir, (header) => header["lm_head.weight"]!.shape.reverse());
    expect(errorOf(dir)).toBe("DIR/model.safetensors: lm_head.weight: has shape [96,256], wanted [256,96]");
    const vector = copyOf("llama2");
    editHeader(vector, (header) => header[norm]!.shape.unshift(1));
    expect(errorOf(vector)).toBe(`DIR/model.safetensors: ${norm}: has shape [1,96], wanted [96]`);
  });

  test("a configuration of another size", () => {
    const dir = copyOf("llama2");
    editConfig(dir, { intermediate_size: 128 });
    expect(errorOf(dir)).toContain("model.layers.0.mlp.gate_proj.weight: has shape [64,96], wanted [128,96]");
    editConfig(dir, { intermediate_size: 64, num_hidden_layers: 3 });
    expect(errorOf(dir)).toContain("model.layers.2.input_layernorm.weight: the tensor is missing");
    editConfig(dir, { num_hidden_layers: 1 });
    expect(errorOf(dir)).toContain("model.layers.1.");
    expect(errorOf(dir)).toContain("is no part of a llama model as config.json describes it");
  });

  test("a dtype that is not computed with", () => {
    const dir = copyOf("llama2");
    editHeader(dir, (header) => {
      header[norm]!.dtype = "I16";
    });
    expect(errorOf(dir)).toBe(`DIR/model.safetensors: ${norm}: has dtype I16; supported: F32, F16, BF16`);
  });

  test("a file cut short", () => {
    const dir = copyOf("mistral");
    const file = join(dir, "model.safetensors");
    writeFileSync(file, readFileSync(file).subarray(0, -100));
    expect(errorOf(dir)).toContain("lie outside the file's");
  });

  test("a lost shard", () => {
    const dir = copyOf("qwen2");
    rmSync(join(dir, "model-00002-of-00002.safetensors"));
    expect(errorOf(dir)).toBe("DIR/model-00002-of-00002.safetensors: does not exist");
  });

  test("a tensor that would change the result", () => {
    const dir = copyOf("qwen2");
    editConfig(dir, { architectures: ["LlamaForCausalLM"], model_type: "llama" });
    expect(errorOf(dir)).toContain("_proj.bias: is no part of a llama model");
  });
});

test("known leftovers are ignored", () => {
  const dir = copyOf("llama2");
  editHeader(dir, (header) => {
    header["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
      dtype: "F32",
      shape: [0],
      data_offsets: [0, 0],
    };
  });
  const names = openModelFolder(dir).tensors.map((tensor) => tensor.name);
  expect(names).not.toContain("model.layers.0.self_attn.rotary_emb.inv_freq");
});

describe("a vocabulary projection beside a tied embedding", () => {
  const tiedFolder = (isCopy: boolean): ModelFolder => {
    const dir = copyOf("llama2");
    editConfig(dir, { tie_word_embeddings: true });
    if (!isCopy) return openModelFolder(dir);
    const file = join(dir, "model.safetensors");
    const bytes = readFileSync(file);
    const { tensors } = readSafetensors(file);
    const at = (name: string): StoredTensor => tensors.find((tensor) => tensor.name === name)!;
    const [embedding, projection] = [at("model.embed_tokens.weight"), at("lm_head.weight")];
    bytes.copy(bytes, projection.offset, embedding.offset, embedding.offset + embedding.bytes);
    writeFileSync(file, bytes);
    return openModelFolder(dir);
  };

  test("is used if it is another matrix, and that is told", () => {
    const { config, tensors, notes } = tiedFolder(false);
    expect(config.shape.tiedEmbeddings).toBeFalse();
    expect(tensors.map((tensor) => tensor.name)).toContain("lm_head.weight");
    expect(notes).toEqual([expect.stringContaining("lm_head.weight is another matrix: it is used")]);
  });

  test("is left out if it is a copy", () => {
    const { config, tensors, notes } = tiedFolder(true);
    expect(config.shape.tiedEmbeddings).toBeTrue();
    expect(tensors.map((tensor) => tensor.name)).not.toContain("lm_head.weight");
    expect(notes).toEqual([]);
  });
});
