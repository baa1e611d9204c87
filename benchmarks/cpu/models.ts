/**
 * Models for the measurements: random weights of published shapes, as a folder for us and as GGUF files for
 * llama.cpp. Made once and kept.
 */
import { closeSync, existsSync, openSync, readSync, renameSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";
import type { ModelConfig } from "../../model/config.ts";
import { openModelFolder } from "../../model/folder.ts";
import { readStoredTensors } from "../../model/safetensors.ts";
import type { ModelTensor } from "../../model/weights.ts";
import { decodeStored, storedTypes } from "../../tests/support/gguf-blocks.ts";
import {
  expertGroups,
  isOfExpert,
  modelEntries,
  ropeTensors,
  tokenizerEntries,
} from "../../tests/support/gguf-model.ts";
import { ggufName } from "../../tests/support/gguf-names.ts";
import { isStateTensor, stateName } from "../../tests/support/gguf-recurrent.ts";
import { type Entry, ggufBytes, type TensorInput } from "../../tests/support/gguf-writer.ts";
import { namedConfig, writeRandomModel } from "../../tools/random-model.ts";
import type { Format } from "./engine.ts";
import { runProgram } from "./runs.ts";

/** Model shapes. Large mixtures have few layers: a step takes the same time for each layer. */
export const modelNames = {
  "0.5B": "Qwen2.5-0.5B",
  "1B": "Llama-3.2-1B",
  "30B-A3B": "Qwen3-30B-A3B",
  "gpt-oss": "gpt-oss-20b",
  "0.8B recurrent": "Qwen3.5-0.8B",
  "4B recurrent": "Qwen3.5-4B",
} as const;
export type ModelName = keyof typeof modelNames;

const layersOf: Partial<Record<ModelName, number>> = { "30B-A3B": 3, "gpt-oss": 2 };

const ALIGNMENT = 32;
const ggufTypes: Readonly<Record<Format, string>> = {
  ...{ bf16: "BF16", int8: "Q8_0", int4: "Q4_0" },
  ...{ q4_k_m: "Q4_K_M", q5_k_m: "Q5_K_M", q6_k: "Q6_K", q3_k_m: "Q3_K_M", iq4_xs: "IQ4_XS" },
  mxfp4_moe: "MXFP4_MOE",
};

/** Returns the model's folder; makes it if it is missing. */
export function modelFolder(place: string, name: ModelName): string {
  const folder = join(place, name);
  if (!existsSync(join(folder, "config.json"))) {
    console.error(`writing ${modelNames[name]} to ${folder}`);
    const { file, json } = namedConfig(modelNames[name]);
    const layers = layersOf[name];
    const shape = layers === undefined ? json : { ...json, num_hidden_layers: layers };
    writeRandomModel({ file, json: shape }, folder, { seed: 1 });
  }
  return folder;
}

/**
 * Returns the same model as a GGUF file of that width; makes it if it is missing. llama-quantize must be
 * beside llama-bench.
 */
export async function ggufFile(
  place: string,
  name: ModelName,
  format: Format,
  llamaBench: string,
): Promise<string> {
  const pathOf = (type: string): string => join(place, `${name}-${type}.gguf`);
  const plain = pathOf("BF16");
  if (!existsSync(plain)) writePlain(modelFolder(place, name), plain);
  const path = pathOf(ggufTypes[format]);
  if (!existsSync(path)) {
    const quantize = join(dirname(llamaBench), "llama-quantize");
    await runProgram([quantize, plain, `${path}.part`, ggufTypes[format]]);
    renameSync(`${path}.part`, path);
  }
  return path;
}

/**
 * Writes matrices as stored in the folder, and vectors in F32. Rows of Q and K keep their order, and those of
 * experts the file's order, which does not matter for random weights.
 */
function writePlain(folder: string, path: string): void {
  console.error(`writing ${path}`);
  const { config, tensors } = openModelFolder(folder);
  const { family, shape } = config;
  if (shape.states !== undefined) {
    writePlainStates(folder, config, path);
    return;
  }
  const isVector = ({ rows }: ModelTensor): boolean => rows === 1;
  const dense = tensors.filter((tensor) => !isOfExpert(tensor, config));
  const groups = [...expertGroups(tensors.filter((tensor) => isOfExpert(tensor, config)))];
  let offset = 0;
  const placed = (
    name: string,
    shape: readonly number[],
    type: "BF16" | "F32",
    bytes: number,
  ): TensorInput => {
    const at = offset;
    offset = Math.ceil((offset + bytes) / ALIGNMENT) * ALIGNMENT;
    return { name, shape, type: storedTypes[type].type, data: new Uint8Array(0), offset: at };
  };
  const rope = ropeTensors(config);
  const heads = [
    ...dense.map((tensor) => {
      const name = ggufName(tensor.name, family);
      if (isVector(tensor)) return placed(name, [tensor.cols], "F32", tensor.cols * 4);
      const isRouter = name.includes("ffn_gate_inp");
      const shape = [tensor.rows, tensor.cols];
      return isRouter
        ? placed(name, shape, "F32", tensor.bytes * 2)
        : placed(name, shape, "BF16", tensor.bytes);
    }),
    ...groups.map(([name, experts]) => {
      const { rows, cols, bytes } = experts[0]!;
      return isVector(experts[0]!)
        ? placed(name, [experts.length, cols], "F32", experts.length * cols * 4)
        : placed(name, [experts.length, rows, cols], "BF16", experts.length * bytes);
    }),
    ...rope.map(({ name, shape, data }) => placed(name, shape as readonly number[], "F32", data.length)),
  ];
  const entries = [...modelEntries(config, { type: "BF16" }), ...tokenizerEntries(folder, "qwen2")];
  const stored = (tensor: ModelTensor, isWide: boolean): Uint8Array => {
    const bytes = bytesOf(tensor);
    return isWide ? new Uint8Array(decodeStored("BF16", bytes).buffer) : bytes;
  };
  writeFile(path, entries, heads, function* () {
    for (const tensor of dense) {
      yield stored(tensor, isVector(tensor) || ggufName(tensor.name, family).includes("ffn_gate_inp"));
    }
    // Rows are whole blocks, without padding between them.
    for (const [, experts] of groups) for (const tensor of experts) yield stored(tensor, isVector(tensor));
    for (const { data } of rope) yield data;
  });
}

/**
 * As `writePlain`, for a model with recurrent layers. Heads keep their order, which does not matter for random
 * weights.
 */
function writePlainStates(folder: string, config: ModelConfig, path: string): void {
  let offset = 0;
  const tensors = [...readStoredTensors(folder).tensors.values()].map((tensor) => {
    const [rows, ...rest] = tensor.shape as [number, ...number[]];
    const name = isStateTensor(tensor.name, config)
      ? stateName(tensor.name)
      : ggufName(tensor.name, config.family);
    // The middle size of a convolution's weights is 1.
    const shape = rest.length === 0 ? [rows] : [rows, rest.at(-1)!];
    const isWide = rest.length !== 1;
    const head: TensorInput = {
      ...{ name, shape, type: storedTypes[isWide ? "F32" : "BF16"].type },
      ...{ data: new Uint8Array(0), offset },
    };
    offset = Math.ceil((offset + tensor.bytes * (isWide ? 2 : 1)) / ALIGNMENT) * ALIGNMENT;
    return { tensor, head, isWide };
  });
  const entries = [...modelEntries(config, { type: "BF16" }), ...tokenizerEntries(folder, "qwen35")];
  const heads = tensors.map(({ head }) => head);
  writeFile(path, entries, heads, function* () {
    for (const { tensor, head, isWide } of tensors) {
      const { file, offset, bytes } = tensor;
      const stored = bytesOf({ path: file, offset, bytes });
      if (!isWide) {
        yield stored;
        continue;
      }
      const values = decodeStored("BF16", stored);
      const decays = head.name.endsWith("ssm_a") ? values.map((value) => -Math.exp(value)) : values;
      yield new Uint8Array(decays.buffer);
    }
  });
}

/** Writes a GGUF file whose `heads` have the tensors' places, and then their contents in this order. */
function writeFile(
  path: string,
  entries: readonly Entry[],
  heads: readonly TensorInput[],
  contents: () => Iterable<Uint8Array>,
): void {
  const file = openSync(`${path}.part`, "w");
  const write = (bytes: Uint8Array): void => {
    for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at);
    const rest = bytes.length % ALIGNMENT;
    if (rest > 0) writeSync(file, new Uint8Array(ALIGNMENT - rest));
  };
  write(ggufBytes({ alignment: ALIGNMENT, entries, tensors: heads }));
  for (const bytes of contents()) write(bytes);
  closeSync(file);
  renameSync(`${path}.part`, path);
}

function bytesOf({ path, offset, bytes }: Pick<ModelTensor, "path" | "offset" | "bytes">): Uint8Array {
  const file = openSync(path, "r");
  const out = new Uint8Array(bytes);
  for (let at = 0; at < bytes; ) at += readSync(file, out, at, bytes - at, offset + at);
  closeSync(file);
  return out;
}
