/**
 * Recurrent layers of a model folder as GGUF files have them: names, order of heads and metadata. Written from
 * the format's definition, so that it shares no table with the reader.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ModelConfig } from "../../model/config.ts";
import { readStoredTensors } from "../../model/safetensors.ts";
import { layersWithHead, type ModelShape } from "../../model/shape.ts";
import { decodeStored, type StoredName } from "./gguf-blocks.ts";
import type { Entry } from "./gguf-writer.ts";

/** Numbers of a tensor, row after row. */
export interface Numbers {
  readonly name: string;
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

const isOfState = /\.(linear_attn|mamba)\.|\.conv\.|\.mixer\.(in_proj|conv1d|dt_bias|A_log|D$|norm|out_proj)/;

/** True for a folder's tensor of a recurrent layer. */
export function isStateTensor(name: string, { shape }: ModelConfig): boolean {
  return shape.states !== undefined && isOfState.test(name);
}

/** Tensors of a folder's recurrent layers, renamed and rearranged. */
export function stateNumbers(dir: string, config: ModelConfig): Numbers[] {
  return [...readStoredTensors(dir).tensors.values()]
    .filter(({ name }) => isStateTensor(name, config))
    .flatMap(({ name, file, offset, bytes, dtype, shape }) => {
      const values = decodeStored(dtype as StoredName, readFileSync(file).subarray(offset, offset + bytes));
      return converted({ name, shape, values }, config, dir);
    });
}

const names: readonly (readonly [RegExp, string])[] = [
  [/^(?:model|backbone)(?:\.language_model)?\.layers\.(\d+)\./, "blk.$1."],
  [/\.linear_attn\.in_proj_qkv\./, ".attn_qkv."],
  [/\.linear_attn\.in_proj_z\./, ".attn_gate."],
  [/\.linear_attn\.in_proj_ba\./, ".ssm_ba."],
  [/\.linear_attn\.in_proj_b\./, ".ssm_beta."],
  [/\.linear_attn\.in_proj_a\./, ".ssm_alpha."],
  [/\.conv\.(conv|in_proj|out_proj)\./, ".shortconv.$1."],
  [/\.(linear_attn|mamba|mixer)\./, ".ssm_"],
  [/\.ssm_in_proj\./, ".ssm_in."],
  [/\.ssm_out_proj\./, ".ssm_out."],
  [/\.ssm_A_log$/, ".ssm_a"],
  [/\.ssm_D$/, ".ssm_d"],
  [/\.ssm_dt_bias$/, ".ssm_dt.bias"],
];

/** Returns the name that a file gives to a folder's tensor of a recurrent layer. */
export function stateName(name: string): string {
  return names.reduce((text, [pattern, to]) => text.replace(pattern, to), name);
}

function converted(tensor: Numbers, config: ModelConfig, dir: string): Numbers[] {
  const { family, shape } = config;
  const states = shape.states!;
  const name = stateName(tensor.name);
  const isMamba = !family.startsWith("qwen3");
  const [rows, ...rest] = tensor.shape as [number, ...number[]];
  if (name.includes("qkvz")) return ungrouped({ ...tensor, name }, shape);
  if (/conv(1d)?\.weight$/.test(name)) {
    const conv = { name, shape: [rows, rest[1]!], values: tensor.values };
    return [
      family.startsWith("qwen3_5") ? tiled(conv, shape, conv.values.length - valuesOf(conv, shape)) : conv,
    ];
  }
  if (name.endsWith("ssm_a")) {
    const values = tensor.values.map((value) => -Math.exp(value));
    return isMamba ? [{ name, shape: [rows, 1], values }] : [heads({ ...tensor, name, values }, config, 1)];
  }
  if (name.endsWith("ssm_d")) return [{ name, shape: [rows, 1], values: tensor.values }];
  if (name.endsWith("ssm_norm.weight") && isMamba)
    return [{ name, shape: [states.keyHeads, rows / states.keyHeads], values: tensor.values }];
  if (family === "falcon_h1") return [multiplied({ ...tensor, name }, shape, dir)];
  if (!family.startsWith("qwen3_5")) return [{ ...tensor, name }];
  const cols = rest[0] ?? 1;
  if (/attn_qkv|attn_gate/.test(name)) {
    const width = states.heads * states.valueSize * cols;
    return [tiled({ ...tensor, name }, shape, tensor.values.length - width)];
  }
  if (/ssm_(beta|alpha|dt)\./.test(name)) return [heads({ ...tensor, name }, config, cols)];
  return [name.includes("ssm_out") ? columnsTiled({ ...tensor, name }, shape) : { ...tensor, name }];
}

const valuesOf = ({ shape: [, cols] }: Numbers, { states }: ModelShape): number =>
  states!.heads * states!.valueSize * cols!;

/** Splits rows that lie together for each key head into q, k, v of all heads, and z. */
function ungrouped(tensor: Numbers, { states }: ModelShape): Numbers[] {
  const { keyHeads, heads, keySize, valueSize } = states!;
  const cols = tensor.shape[1]!;
  const values = (heads / keyHeads) * valueSize;
  const sizes = [keySize, keySize, values, values];
  const stride = sizes.reduce((sum, size) => sum + size, 0);
  const part = (index: number): number[] => {
    const before = sizes.slice(0, index).reduce((sum, size) => sum + size, 0);
    return Array.from({ length: keyHeads }, (_, head) => head * stride + before).flatMap((row) =>
      Array.from(tensor.values.subarray(row * cols, (row + sizes[index]!) * cols)),
    );
  };
  const named = (name: string, all: number[]): Numbers => ({
    name: tensor.name.replace("ssm_in_proj_qkvz", name),
    shape: [all.length / cols, cols],
    values: Float32Array.from(all),
  });
  return [named("attn_qkv", [...part(0), ...part(1), ...part(2)]), named("attn_gate", part(3))];
}

/** Value head of place `place`: the first of each key head come first, then the second ones. */
function headAt(place: number, { states }: ModelShape): number {
  const { keyHeads, heads } = states!;
  return (place % keyHeads) * (heads / keyHeads) + Math.floor(place / keyHeads);
}

/** Moves runs of `run` numbers, one for each value head, behind the first `start` numbers. */
function moved(tensor: Numbers, shape: ModelShape, start: number, run: number): Numbers {
  const values = tensor.values.slice();
  for (let place = 0; place < shape.states!.heads; place += 1) {
    const from = start + headAt(place, shape) * run;
    values.set(tensor.values.subarray(from, from + run), start + place * run);
  }
  return { ...tensor, values };
}

function tiled(tensor: Numbers, shape: ModelShape, start: number): Numbers {
  return moved(tensor, shape, start, shape.states!.valueSize * tensor.shape[1]!);
}

/** Moves the rows of value heads, if files have these in another order. */
function heads(tensor: Numbers, { family, shape }: ModelConfig, cols: number): Numbers {
  return family.startsWith("qwen3_5") ? moved(tensor, shape, 0, cols) : tensor;
}

function columnsTiled(tensor: Numbers, shape: ModelShape): Numbers {
  const cols = tensor.shape[1]!;
  const values = new Float32Array(tensor.values.length);
  for (let row = 0; row < tensor.values.length; row += cols) {
    const own = { ...tensor, values: tensor.values.slice(row, row + cols) };
    values.set(moved(own, shape, 0, shape.states!.valueSize).values, row);
  }
  return { ...tensor, values };
}

type Multipliers = Readonly<Record<string, number>> & { readonly ssm_multipliers: readonly number[] };

/** Falcon-H1: multiplies the projections into and out of the recurrent layer. */
function multiplied(tensor: Numbers, { states }: ModelShape, dir: string): Numbers {
  const own = JSON.parse(readFileSync(join(dir, "config.json"), "utf8")) as Multipliers;
  const { keyHeads, heads, keySize, valueSize } = states!;
  const cols = tensor.shape[1]!;
  if (tensor.name.includes("ssm_out"))
    return { ...tensor, values: tensor.values.map((value) => value * own.ssm_out_multiplier!) };
  if (!tensor.name.includes("ssm_in.")) return tensor;
  const [inner, keys] = [heads * valueSize, keyHeads * keySize];
  const ends = [inner, 2 * inner, 2 * inner + keys, 2 * inner + 2 * keys, 2 * inner + 2 * keys + heads];
  return {
    ...tensor,
    values: tensor.values.map((value, at) => {
      const part = ends.findIndex((end) => Math.floor(at / cols) < end);
      return value * own.ssm_in_multiplier! * own.ssm_multipliers[part]!;
    }),
  };
}

/** Metadata of recurrent layers. */
export function stateEntries({ family, shape }: ModelConfig): Entry[] {
  const { states, layers } = shape;
  if (states === undefined) return [];
  const perLayer = (key: string, value: (index: number) => number): Entry => [
    key,
    "i32[]",
    layers.map((_, index) => value(index)),
  ];
  const attends = (index: number): boolean => layers[index]!.mixer.startsWith("attention");
  const keyHeads = perLayer("attention.head_count_kv", (index) => (attends(index) ? shape.kvHeads : 0));
  if (family.startsWith("lfm2")) return [["shortconv.l_cache", "u32", states.conv], keyHeads];
  const common: Entry[] = [
    ["ssm.conv_kernel", "u32", states.conv],
    ["ssm.state_size", "u32", states.keySize],
    ["ssm.group_count", "u32", states.keyHeads],
    ["ssm.time_step_rank", "u32", states.heads],
    ["ssm.inner_size", "u32", states.heads * states.valueSize],
  ];
  if (family.startsWith("qwen3")) {
    const recurrent = layersWithHead(shape).map(({ mixer }) => (mixer === "delta" ? 1 : 0));
    // Positions of time, height, width and none: text has the same one in each, so their sizes are any.
    const sections: Entry[] = family.startsWith("qwen3_5")
      ? [["rope.dimension_sections", "i32[]", [11, 11, 10, 0]]]
      : [];
    return [...common, ["attention.recurrent_layers", "bool[]", recurrent], ...sections];
  }
  if (family === "falcon_h1") return common;
  if (family === "granitemoehybrid") return [...common, keyHeads, ["rope.scaling.finetuned", "bool", false]];
  const width = (index: number): number =>
    layers[index]!.mlp === "none" ? 0 : (layers[index]!.ownSizes.feedForward ?? shape.feedForward);
  return [...common, keyHeads, perLayer("feed_forward_length", width)];
}
