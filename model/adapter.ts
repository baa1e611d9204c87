/**
 * LoRA adapters (Hu et al. 2021, section 4.1): y = W x + scale B (A x), with A [rank, inputs] and B [outputs,
 * rank] for some matrices W of a model. Opens a PEFT folder (adapter_config.json and
 * adapter_model.safetensors) or a GGUF file. Finds the matrices that it changes, and describes both factors
 * for the engine. Reads no numbers.
 */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { basename, join } from "node:path";
import { familyNamed } from "./families/index.ts";
import { ggufLayout, isGguf } from "./gguf.ts";
import { readGgufFile } from "./gguf-file.ts";
import { Metadata } from "./gguf-metadata.ts";
import { readExactly, show, withFile } from "./json.ts";
import { ModelError } from "./model-error.ts";
import type { ModelFolder } from "./model-folder.ts";
import { type PeftConfig, readPeftConfig } from "./peft-config.ts";
import { readSafetensors, type StoredTensor } from "./safetensors.ts";
import { TensorKind } from "./tensor-kinds.ts";
import {
  behind,
  folderLayout,
  type ModelTensor,
  match,
  placedTensors,
  prefixes,
  type TensorLayout,
} from "./weights.ts";

/** Both factors of one matrix of the model. */
export interface AdapterPart {
  /** A [rank, inputs], in the order of the file. */
  readonly a: Pick<ModelTensor, "path" | "offset" | "dtype" | "name">;
  /** B, as tensor and layer of the model, with `rank` columns in place of the matrix's own. */
  readonly b: ModelTensor;
  readonly rank: number;
  readonly scale: number;
}

export interface LoraAdapter {
  /** Path of the folder or the GGUF file. */
  readonly path: string;
  /** Number of the adapter, made of the contents: equal in every process, never 0, at most 48 bits. */
  readonly id: number;
  /** Highest rank of its matrices. */
  readonly rank: number;
  /** Upper bound of the memory that it takes, whatever the type of the engine's numbers. */
  readonly bytes: number;
  readonly parts: readonly AdapterPart[];
}

/** Most ranks of one matrix. Published adapters have 4 to 256. */
export const adapterRankMax = 512;

/** Kinds of matrices that an adapter may change; experts' and routers' are none of them. */
const adaptableKinds: ReadonlySet<number> = new Set([
  ...[TensorKind.q, TensorKind.qGate, TensorKind.k, TensorKind.v, TensorKind.o, TensorKind.queryLatent],
  ...[TensorKind.gate, TensorKind.up, TensorKind.down],
  ...[TensorKind.besideGate, TensorKind.besideUp, TensorKind.besideDown],
  ...[TensorKind.stateQ, TensorKind.stateK, TensorKind.stateV, TensorKind.stateZ, TensorKind.stateO],
  ...[TensorKind.stateA, TensorKind.stateB],
]);

/** True if a folder's names, or the path of a GGUF file, are those of an adapter. */
export function isAdapter(path: string): boolean {
  if (existsSync(join(path, "adapter_config.json"))) return true;
  return isGguf(path) && new Metadata(readGgufFile(path)).text("general.type", "model") === "adapter";
}

/** Opens an adapter and checks it against its model. Throws ModelError. */
export function openAdapter(path: string, model: Pick<ModelFolder, "config" | "name">): LoraAdapter {
  const stored = isGguf(path) ? ofGguf(path, model) : ofFolder(path);
  const parts = partsOf(stored, model);
  const bytes = parts.reduce((sum, { b, rank }) => {
    const [rows, columns] = [b.rows, stored.inputs.get(b.name)!];
    return sum + 4 * (roundUp(rank, 16) * roundUp(columns, 32) + roundUp(rows, 16) * roundUp(rank, 32));
  }, 0);
  return {
    path,
    id: idOf(stored.files),
    rank: parts.reduce((most, { rank }) => Math.max(most, rank), 0),
    bytes,
    parts,
  };
}

/** An adapter's tensors, before they are matched with a model. */
interface StoredAdapter {
  /** File for messages about no tensor. */
  readonly source: string;
  readonly files: readonly string[];
  /** Pairs of A and B, by the name of the matrix that they change. */
  readonly pairs: ReadonlyMap<string, { readonly a: StoredTensor; readonly b: StoredTensor }>;
  /** Numbers per row of A, by the same names. */
  readonly inputs: ReadonlyMap<string, number>;
  readonly layout: TensorLayout;
  /** Prefixes of the layout's names to try. */
  readonly prefixes: readonly (string | null)[];
  scaleOf(name: string, rank: number): number;
}

function ofFolder(dir: string): StoredAdapter {
  const config = readPeftConfig(dir);
  const file = join(dir, "adapter_model.safetensors");
  if (!existsSync(file)) {
    const pickled = existsSync(join(dir, "adapter_model.bin"));
    const hint = pickled ? "; adapter_model.bin is pickled, and is never opened" : "";
    throw new ModelError(dir, null, `has no adapter_model.safetensors${hint}`);
  }
  const named = readSafetensors(file).tensors.map((tensor): [string, "a" | "b", StoredTensor] => {
    const parsed = /^(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight$/.exec(tensor.name);
    if (parsed === null) throw new ModelError(file, tensor.name, refusalOf(tensor.name));
    return [`${parsed[1]}.weight`, parsed[2] === "A" ? "a" : "b", tensor];
  });
  return {
    source: file,
    files: [join(dir, "adapter_config.json"), file],
    ...pairsOf(file, named),
    layout: folderLayout(null),
    prefixes: [...prefixes, "model.language_model.model."],
    scaleOf: (name, rank) => scaleOfPeft(config, name.replace(/\.weight$/, ""), rank),
  };
}

function scaleOfPeft(config: PeftConfig, module: string, rank: number): number {
  const alpha = config.alphaOf(module);
  return config.usesRankRoot ? alpha / Math.sqrt(rank) : alpha / rank;
}

function refusalOf(name: string): string {
  if (name.includes("lora_magnitude_vector")) return "belongs to DoRA, which is not computed here";
  if (/lora_embedding_[AB]/.test(name)) return "changes the embedding, which adapters here cannot";
  return "is no LoRA matrix: wanted names that end in lora_A.weight or lora_B.weight";
}

function ofGguf(path: string, { config, name }: Pick<ModelFolder, "config" | "name">): StoredAdapter {
  const file = readGgufFile(path);
  const metadata = new Metadata(file);
  if (metadata.text("general.type", "model") !== "adapter")
    throw new ModelError(path, null, "is a model, not an adapter");
  if (metadata.text("adapter.type") !== "lora") metadata.refuse("adapter.type", "wanted: lora");
  if (metadata.has("adapter.alora.invocation_tokens"))
    throw new ModelError(
      path,
      "adapter.alora.invocation_tokens",
      "adapters that begin in the middle of a prompt are not computed here",
    );
  const architecture = metadata.text("general.architecture");
  if (!familyNamed(config.family).metadata.includes(architecture))
    metadata.refuse("general.architecture", `the model ${name} is ${config.family}`);
  const alpha = metadata.number("adapter.lora.alpha", 0, 1e6);
  const named = file.tensors.map((tensor): [string, "a" | "b", StoredTensor] => {
    const parsed = /^(.+)\.lora_([ab])$/.exec(tensor.name);
    if (parsed === null)
      throw new ModelError(path, tensor.name, "is no LoRA matrix: wanted names that end in lora_a or lora_b");
    return [parsed[1]!, parsed[2] as "a" | "b", tensor];
  });
  return {
    source: path,
    files: [path],
    ...pairsOf(path, named),
    layout: ggufLayout,
    prefixes: [""],
    // As in llama.cpp, an alpha of 0 stands for no scale.
    scaleOf: (_, rank) => (alpha === 0 ? 1 : alpha / rank),
  };
}

/** Pairs A and B of each matrix. Throws ModelError for one without the other, and for shapes that do not fit. */
function pairsOf(
  file: string,
  named: readonly [string, "a" | "b", StoredTensor][],
): Pick<StoredAdapter, "pairs" | "inputs"> {
  if (named.length === 0) throw new ModelError(file, null, "has no tensors");
  const halves = new Map<string, { a?: StoredTensor; b?: StoredTensor }>();
  for (const [name, half, tensor] of named) {
    const pair = halves.get(name) ?? {};
    if (pair[half] !== undefined) throw new ModelError(file, tensor.name, "is there twice");
    halves.set(name, { ...pair, [half]: tensor });
  }
  const pairs = new Map<string, { a: StoredTensor; b: StoredTensor }>();
  for (const [name, { a, b }] of halves) {
    if (a === undefined || b === undefined)
      throw new ModelError(file, (a ?? b)!.name, `has no partner: ${a === undefined ? "A" : "B"} is missing`);
    const [rank, inputs = 0] = a.shape;
    if (a.shape.length !== 2 || b.shape.length !== 2 || b.shape[1] !== rank)
      throw new ModelError(
        file,
        b.name,
        `has shape ${show(b.shape)}, but A has ${show(a.shape)}: wanted [outputs, rank] and [rank, inputs]`,
      );
    if (rank! < 1 || rank! > adapterRankMax || inputs < 1)
      throw new ModelError(file, a.name, `has rank ${rank}; adapters may have 1 to ${adapterRankMax}`);
    pairs.set(name, { a, b });
  }
  return { pairs, inputs: new Map([...pairs].map(([name, { a }]) => [name, a.shape[1]!])) };
}

/** Finds each pair's matrix in the model. Throws ModelError for a pair that changes none. */
function partsOf(
  adapter: StoredAdapter,
  { config, name: modelName }: Pick<ModelFolder, "config" | "name">,
): AdapterPart[] {
  const { pairs, layout, source } = adapter;
  const family = familyNamed(config.family);
  const second = { tensors: new Map([...pairs].map(([name, { b }]) => [name, b])) };
  const isPrefixed = family.prefixes !== undefined && layout !== ggufLayout;
  const tries = (isPrefixed ? family.prefixes : adapter.prefixes).map((prefix) => {
    const nameOf = (name: string) => (isPrefixed ? prefix + name : behind(prefix, name));
    return placedTensors(config, family, layout, nameOf).filter(({ place }) => pairs.has(place.name));
  });
  const found = tries.reduce((best, own) => (own.length > best.length ? own : best));
  const known = new Set(found.map(({ place }) => place.name));
  for (const [name, { a }] of pairs)
    if (!known.has(name))
      throw new ModelError(
        a.file,
        a.name,
        `changes ${name}, which ${modelName} (${config.family}) does not have`,
      );
  return found.map(({ want, place }): AdapterPart => {
    const { a, b } = pairs.get(place.name)!;
    if (!adaptableKinds.has(want.tensor) || want.expert !== null || want.ofHead === true || place.transposed)
      throw new ModelError(
        a.file,
        a.name,
        "changes a matrix that adapters here cannot: they may change projections of attention, of recurrent layers, and of MLPs that are no experts",
      );
    const [rank, inputs] = a.shape as [number, number];
    if (inputs !== want.shape[1])
      throw new ModelError(
        a.file,
        a.name,
        `has shape ${show(a.shape)}; the model's matrix has ${want.shape[1]} inputs`,
      );
    const sized = { ...want, shape: [want.shape[0]!, rank] };
    const factor = match(sized, { ...place, shape: [place.shape[0]!, rank] }, family, second, source, layout);
    return {
      a: { path: a.file, offset: a.offset, dtype: plainType(a, layout), name: a.name },
      b: { ...factor, dtype: plainType(b, layout), name: place.name },
      rank,
      scale: adapter.scaleOf(place.name, rank) * (config.shape.factors?.[want.tensor] ?? 1),
    };
  });
}

function plainType({ file, name, dtype }: StoredTensor, layout: TensorLayout): number {
  const plain = ["F32", "F16", "BF16"];
  if (plain.includes(dtype)) return layout.dtypes[dtype]!;
  throw new ModelError(file, name, `has dtype ${dtype}; adapters may have ${plain.join(", ")}`);
}

/** 48 bits of the hash of all files. */
function idOf(files: readonly string[]): number {
  const hash = createHash("sha256");
  const pieceBytes = 4 << 20;
  for (const file of files)
    withFile(file, (descriptor, bytes) => {
      hash.update(`${basename(file)} ${bytes}\n`);
      for (let at = 0; at < bytes; at += pieceBytes)
        hash.update(readExactly(file, descriptor, at, Math.min(pieceBytes, bytes - at)));
    });
  return hash.digest().readUIntBE(0, 6) || 1;
}

function roundUp(count: number, to: number): number {
  return Math.ceil(count / to) * to;
}
