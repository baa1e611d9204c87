/**
 * A model in one GGUF file or in several parts: opens it, checks it, and describes it for an engine like a
 * folder.
 */
import { basename, dirname, join, resolve } from "node:path";
import { type DenseLayer, denseLayer } from "./dense.ts";
import { type HeadChoice, matchedWithHead } from "./draft-head.ts";
import { factorsName, ggufConfig } from "./gguf-config.ts";
import { type GgufFile, readGgufFile } from "./gguf-file.ts";
import { Metadata } from "./gguf-metadata.ts";
import { ggufScore } from "./gguf-score.ts";
import { readExactly, show, withFile } from "./json.ts";
import { ModelError } from "./model-error.ts";
import type { ModelFolder } from "./model-folder.ts";
import { type EmbeddingRule, ggufEmbedding } from "./pooling.ts";
import { ggufNvfp4 } from "./quantisation.ts";
import type { StoredTensor } from "./safetensors.ts";
import { storedTypes } from "./stored-types.ts";
import { TensorKind } from "./tensor-kinds.ts";
import { isDraftTensor, isUnreadKey, matchTensors, type TensorLayout } from "./weights.ts";

/** True if a path names a GGUF file: by its suffix or by its first bytes. */
export function isGguf(path: string): boolean {
  if (path.endsWith(".gguf")) return true;
  try {
    const start = withFile(path, (descriptor) => readExactly(path, descriptor, 0, 4));
    return new TextDecoder().decode(start) === "GGUF";
  } catch {
    return false; // no such file, not a regular one, or too short
  }
}

/** Opens a file, or the first part of several. Throws ModelError. */
export function openGguf(path: string, head: HeadChoice = "none"): ModelFolder {
  const first = readGgufFile(path);
  const metadata = new Metadata(first);
  const parts = [first, ...otherParts(path, metadata)];
  const tensors = new Map([...tensorsOf(parts, metadata), ...listedTensors(first)]);
  const embedding = tensors.get(wholeNames[TensorKind.embed]!);
  if (embedding === undefined) {
    throw new ModelError(path, wholeNames[TensorKind.embed]!, "the tensor is missing");
  }
  const described = ggufConfig(metadata, {
    vocab: embedding.shape[0]!,
    tiedEmbeddings: !tensors.has(wholeNames[TensorKind.lmHead]!),
    has: (name) => tensors.has(name),
    floats: (name) => floatsOf(tensors.get(name)),
    rows: (name) => tensors.get(name)?.shape.at(-2) ?? null,
  });
  const { config, tensors: matched } = matchedWithHead(described, head, path, (config) =>
    matchTensors(config, { tensors }, path, ggufLayout),
  );
  return {
    dir: path,
    name: nameOf(path, metadata),
    config,
    tensors: matched,
    weightFilesBytes: parts.reduce((sum, part) => sum + part.fileBytes, 0),
    eosTokens: config.eosTokens,
    contextMax: config.shape.contextMax,
    generationDefaults: config.generationDefaults,
    embedding: withDenseLayers(
      ggufEmbedding(metadata, config.shape.encoder === undefined ? "last" : "mean"),
      tensors,
      config.shape.hidden,
    ),
    score: ggufScore(metadata, tensors, config),
    notes: [],
  };
}

/** Adds the dense layers after the pooling, as EmbeddingGemma has them. */
function withDenseLayers(
  rule: EmbeddingRule,
  tensors: ReadonlyMap<string, StoredTensor>,
  hidden: number,
): EmbeddingRule {
  const layers: DenseLayer[] = [];
  for (const name of ["dense_2.weight", "dense_3.weight"]) {
    const weights = tensors.get(name);
    if (weights !== undefined)
      layers.push(denseLayer(weights, undefined, layers.at(-1)?.outputs ?? hidden, "identity"));
  }
  return "refusal" in rule || layers.length === 0 ? rule : { ...rule, layers };
}

/** Names of the tensors that belong to no layer, by TensorKind. */
const wholeNames: Readonly<Record<number, string>> = {
  [TensorKind.embed]: "token_embd.weight",
  [TensorKind.finalNorm]: "output_norm.weight",
  [TensorKind.lmHead]: "output.weight",
  [TensorKind.layerEmbed]: "per_layer_token_embd.weight",
  [TensorKind.layerProjection]: "per_layer_model_proj.weight",
  [TensorKind.layerInputNorm]: "per_layer_proj_norm.weight",
  [TensorKind.finalNormBias]: "output_norm.bias",
  [TensorKind.embedNorm]: "token_embd_norm.weight",
  [TensorKind.embedNormBias]: "token_embd_norm.bias",
  [TensorKind.positions]: "position_embd.weight",
  [TensorKind.tokenTypes]: "token_types.weight",
  [TensorKind.streamIn]: "altup_proj.weight",
  [TensorKind.streamOut]: "altup_unembd_proj.weight",
};

/** Names of a layer's tensors, without the layer. */
const layerNames: Readonly<Record<number, string>> = {
  [TensorKind.attentionNorm]: "attn_norm.weight",
  [TensorKind.q]: "attn_q.weight",
  [TensorKind.k]: "attn_k.weight",
  [TensorKind.v]: "attn_v.weight",
  [TensorKind.o]: "attn_output.weight",
  [TensorKind.qBias]: "attn_q.bias",
  [TensorKind.kBias]: "attn_k.bias",
  [TensorKind.vBias]: "attn_v.bias",
  [TensorKind.qNorm]: "attn_q_norm.weight",
  [TensorKind.kNorm]: "attn_k_norm.weight",
  [TensorKind.mlpNorm]: "ffn_norm.weight",
  [TensorKind.gate]: "ffn_gate.weight",
  [TensorKind.up]: "ffn_up.weight",
  [TensorKind.down]: "ffn_down.weight",
  [TensorKind.oBias]: "attn_output.bias",
  [TensorKind.gateBias]: "ffn_gate.bias",
  [TensorKind.upBias]: "ffn_up.bias",
  [TensorKind.downBias]: "ffn_down.bias",
  [TensorKind.attentionPostNorm]: "post_attention_norm.weight",
  [TensorKind.mlpPostNorm]: "post_ffw_norm.weight",
  [TensorKind.sinks]: "attn_sinks.weight",
  [TensorKind.router]: "ffn_gate_inp.weight",
  [TensorKind.routerBias]: "ffn_gate_inp.bias",
  [TensorKind.routerNorm]: "ffn_gate_inp.scale",
  [TensorKind.expertScales]: "ffn_down_exps.scale",
  [TensorKind.expertsNorm]: "pre_ffw_norm_2.weight",
  [TensorKind.expertsPostNorm]: "post_ffw_norm_2.weight",
  [TensorKind.besidePostNorm]: "post_ffw_norm_1.weight",
  [TensorKind.besideGate]: "ffn_gate_shexp.weight",
  [TensorKind.besideUp]: "ffn_up_shexp.weight",
  [TensorKind.besideDown]: "ffn_down_shexp.weight",
  [TensorKind.choiceBias]: "exp_probs_b.bias",
  [TensorKind.sharedGate]: "ffn_gate_inp_shexp.weight",
  [TensorKind.queryLatent]: "attn_q_a.weight",
  [TensorKind.latentKeys]: "attn_k_b.weight",
  [TensorKind.latentValues]: "attn_v_b.weight",
  [TensorKind.layerScale]: "layer_output_scale.weight",
  [TensorKind.inputGate]: "inp_gate.weight",
  [TensorKind.inputOut]: "proj.weight",
  [TensorKind.inputPostNorm]: "post_norm.weight",
  [TensorKind.attentionNormBias]: "attn_norm.bias",
  [TensorKind.mlpNormBias]: "ffn_norm.bias",
  [TensorKind.streamRouter]: "altup_router.weight",
  [TensorKind.streamNorm]: "altup_router_norm.weight",
  [TensorKind.streamPredict]: "altup_predict_coef.weight",
  [TensorKind.streamCorrect]: "altup_correct_coef.weight",
  [TensorKind.streamScale]: "altup_correct_scale.weight",
  [TensorKind.laurelIn]: "laurel_l.weight",
  [TensorKind.laurelOut]: "laurel_r.weight",
  [TensorKind.laurelNorm]: "laurel_post_norm.weight",
  [TensorKind.xieluAlphaP]: "xielu.alpha_p",
  [TensorKind.xieluAlphaN]: "xielu.alpha_n",
  [TensorKind.xieluBeta]: "xielu.beta",
  [TensorKind.xieluEps]: "xielu.eps",
  [TensorKind.qGate]: "attn_q.weight",
  [TensorKind.stateConvQ]: "ssm_conv1d.weight",
  [TensorKind.stateConvK]: "ssm_conv1d.weight",
  [TensorKind.stateConvV]: "ssm_conv1d.weight",
  [TensorKind.stateConvQBias]: "ssm_conv1d.bias",
  [TensorKind.stateConvKBias]: "ssm_conv1d.bias",
  [TensorKind.stateConvVBias]: "ssm_conv1d.bias",
  [TensorKind.stateDtBias]: "ssm_dt.bias",
  [TensorKind.stateALog]: "ssm_a",
  [TensorKind.stateD]: "ssm_d",
  [TensorKind.stateNorm]: "ssm_norm.weight",
  [TensorKind.stateO]: "ssm_out.weight",
  [TensorKind.headEmbedNorm]: "nextn.enorm.weight",
  [TensorKind.headHiddenNorm]: "nextn.hnorm.weight",
  [TensorKind.headProjection]: "nextn.eh_proj.weight",
  [TensorKind.headNorm]: "nextn.shared_head_norm.weight",
};

/** Tensor names of experts; each tensor holds those of all experts. */
const expertNames: Readonly<Record<number, string>> = {
  [TensorKind.gate]: "ffn_gate_exps.weight",
  [TensorKind.up]: "ffn_up_exps.weight",
  [TensorKind.down]: "ffn_down_exps.weight",
  [TensorKind.gateBias]: "ffn_gate_exps.bias",
  [TensorKind.upBias]: "ffn_up_exps.bias",
  [TensorKind.downBias]: "ffn_down_exps.bias",
};

export const ggufLayout: TensorLayout = {
  quantisation: ggufNvfp4,
  describedBy: "the metadata",
  dtypes: Object.fromEntries(Object.entries(storedTypes).map(([name, { number }]) => [name, number])),
  nameOf({ tensor, layer, expert, ofQueryLatent }, { ggufNames, ggufExpertNames }) {
    if (ofQueryLatent === true) return `blk.${layer}.attn_q_b.weight`;
    const ofLayer =
      expert === null
        ? (ggufNames?.[tensor] ?? layerNames[tensor])
        : (ggufExpertNames?.[tensor] ?? expertNames[tensor]);
    return tensor in wholeNames ? (ggufNames?.[tensor] ?? wholeNames[tensor]!) : `blk.${layer}.${ofLayer}`;
  },
  isHarmless: (name, { family, shape }) =>
    name === factorsName ||
    isDraftTensor(/^blk\.(\d+)\./, name, { family, shape }) ||
    name.startsWith("rope_factors_") || // used by the configuration
    ggufNvfp4.isHarmless(name) ||
    (shape.encoder !== undefined && /^(cls|dense_)/.test(name)) || // after the pooling
    name === "cls.output.weight" ||
    isUnreadKey(/^blk\.(\d+)\.attn_(k|v|k_norm)\.weight$/, name, shape),
  storesPairedRows: ({ pairedRows }) => pairedRows?.gguf ?? false,
  storesGroupedHeads: () => false,
  storesOneLess: () => false,
  storesGatesPerHead: () => false,
  storesNegatedExp: true,
  transposesExperts: () => undefined,
};

const partsMax = 10_000;

/** The other parts of a model in several files, in order; empty for a single file. */
function otherParts(path: string, metadata: Metadata): GgufFile[] {
  const count = metadata.integer("split.count", 0, partsMax, 0);
  if (count <= 1) return [];
  const file = basename(path);
  const suffix = `-of-${digits(count)}.gguf`;
  const stem = file.endsWith(suffix) ? /^(.*)-\d{5}$/.exec(file.slice(0, -suffix.length)) : null;
  if (stem === null) {
    const wanted = `its name must end in -00001${suffix}, for the others are found by it`;
    throw new ModelError(path, "split.count", `is the first of ${count} parts; ${wanted}`);
  }
  const partPath = (part: number): string => join(dirname(path), `${stem[1]}-${digits(part + 1)}${suffix}`);
  const number = metadata.integer("split.no", 0, count - 1);
  if (number !== 0) {
    throw new ModelError(path, "split.no", `is part ${number + 1} of ${count}: open ${partPath(0)}`);
  }
  return Array.from({ length: count - 1 }, (_, index) => {
    const part = readGgufFile(partPath(index + 1));
    const own = new Metadata(part);
    own.integer("split.count", count, count);
    own.integer("split.no", index + 1, index + 1);
    return part;
  });
}

function digits(number: number): string {
  return String(number).padStart(5, "0");
}

/** All tensors by name. Throws if a part's tensor is missing or appears twice. */
function tensorsOf(parts: readonly GgufFile[], metadata: Metadata): Map<string, StoredTensor> {
  const tensors = new Map<string, StoredTensor>();
  for (const tensor of parts.flatMap((part) => part.tensors)) {
    const other = tensors.get(tensor.name);
    if (other !== undefined) throw new ModelError(tensor.file, tensor.name, `is in ${other.file} too`);
    tensors.set(tensor.name, tensor);
  }
  metadata.integer("split.tensors.count", tensors.size, tensors.size, tensors.size);
  return tensors;
}

/** Metadata arrays of one number per layer, each of which becomes a tensor of that layer. */
const listedKeys: readonly string[] = ["xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"];

/** Makes a tensor, by name, of each number in such arrays. */
function listedTensors({ file, metadata }: GgufFile): [string, StoredTensor][] {
  return listedKeys.flatMap((key) => {
    const entry = metadata.get(key);
    if (entry === undefined) return [];
    if (entry.type !== "array" || entry.of !== "f32")
      throw new ModelError(file, key, "wanted: an array of real numbers (f32), one for each layer");
    return Array.from(entry.value, (_, layer): [string, StoredTensor] => {
      const name = `blk.${layer}.${key}`;
      return [name, { name, file, dtype: "F32", shape: [1], offset: entry.offset + 4 * layer, bytes: 4 }];
    });
  });
}

/** Values of a small tensor; null if there is none. */
function floatsOf(tensor: StoredTensor | undefined): Float32Array | null {
  if (tensor === undefined) return null;
  const { file, name, dtype, shape, offset, bytes } = tensor;
  const bytesMax = 4096;
  if (dtype !== "F32" || bytes > bytesMax) {
    throw new ModelError(file, name, `is ${dtype} ${show(shape)}; wanted: F32, at most ${bytesMax} bytes`);
  }
  const read = withFile(file, (descriptor) => readExactly(file, descriptor, offset, bytes));
  return new Float32Array(read.buffer);
}

/** Model name in the metadata as one word, else the file's name. */
function nameOf(path: string, metadata: Metadata): string {
  const name = metadata.text("general.name", "").trim().replaceAll(/\s+/g, "-");
  if (/^[\w.:@/+-]{1,200}$/.test(name)) return name;
  return basename(resolve(path)).replace(/(-\d{5}-of-\d{5})?\.gguf$/, "");
}
