/** What a family of models is described by: one file of this folder each. */
import type { LayerSizes, Rope, Sizes, Traits } from "../shape.ts";

/** A field's name in config.json, and its key in a GGUF file behind the architecture's name; null: there is none. */
export type Names = readonly [config: string | null, metadata: string | null];

/** Kinds of layers in `layer_types`, which may have ropes of their own. */
export type LayerType = "full_attention" | "sliding_attention";

/** Where a description takes its numbers from: config.json, or the metadata and tensors of a GGUF file. Whatever is out of
 *  range is refused by a ModelError that names file, field and value; without a fallback, what is missing too. */
export interface Source {
  readonly kind: "config" | "metadata";
  readonly layers: number;
  readonly sizes: Sizes;
  integer(names: Names, min: number, max: number, fallback?: number): number;
  number(names: Names, min: number, max: number, fallback?: number): number;
  flag(names: Names, fallback: boolean): boolean;
  refuse(names: Names, reason: string): never;
  activation(usual: Traits["activation"]): Traits["activation"];
  /** Whether projections have biases: a field that is true, or the tensor of the first layer. */
  bias(field: string, tensor: string): boolean;
  /** Whether a layer lacks a tensor: a field is true, or the tensor is not there. */
  lacks(field: string, layer: number, tensor: string): boolean;
  /** Whether there is such a field at all. */
  has(names: Names): boolean;
  /** Numbers of layers that are listed; none, if there is no list. */
  indices(names: Names): readonly number[];
  /** An array of numbers with one for each layer; null: there is none. */
  perLayer(names: Names): readonly number[] | null;
  /** Which layers have a sliding window: what is said of each layer, else what the family's models do. */
  slidingLayers(usual: (layer: number) => boolean): readonly boolean[];
  /** Positions, of all layers or those of a type. `theta`: names beside the usual ones; a rope that has its own is plain.
   *  `headSize`: of these layers, if it is not the model's. */
  rope(type?: LayerType, theta?: Names, headSize?: number): Rope;
}

export interface Family {
  /** In messages. */
  readonly name: string;
  /** Published models of it, for people. */
  readonly models: string;
  /** `model_type` of config.json, where it is not the name. */
  readonly modelTypes?: readonly string[];
  /** `architectures` of config.json. */
  readonly classes: readonly string[];
  /** Classes that have such a model in `text_config`, beside towers for images that are left out. */
  readonly wrappers?: readonly string[];
  /** Published configurations name code of their own for what is computed here. */
  readonly ignoresAutoMap?: boolean;
  /** `general.architecture` of GGUF files. */
  readonly metadata: readonly string[];
  /** The architecture by which files of a family without one of its own go. */
  readonly ggufAs?: string;
  /** What absent fields of config.json mean, where that differs from family to family. */
  readonly defaults?: Readonly<Record<string, unknown>>;
  /** Without `num_key_value_heads` there are as many as query heads; else it must be there. */
  readonly kvHeadsOptional?: boolean;
  /** Names of tensors that differ from the usual ones (tensor-names.ts), in folders and in GGUF files. Tensors of the same
   *  name lie in it one after the other, by rising TensorKind. */
  readonly folderNames?: Readonly<Record<number, string>>;
  readonly ggufNames?: Readonly<Record<number, string>>;
  /** Likewise of tensors of experts; {} stands for the expert's number, and without it the tensor has all of them. */
  readonly expertNames?: Readonly<Record<number, string>>;
  readonly ggufExpertNames?: Readonly<Record<number, string>>;
  /** Folders have matrices of all experts as [experts, inputs, outputs], and gate and up of each as outputs in turn. */
  readonly transposesExperts?: boolean;
  /** Folders have q, k and v in one tensor, in which each key head has its query heads, then its key, then its value. */
  readonly groupedHeads?: boolean;
  /** The rotated rows of q and k are in pairs. */
  readonly pairedRows?: { readonly folder?: boolean; readonly gguf?: boolean };
  /** Where the norms' epsilon is, if not in `rms_norm_eps`. */
  readonly epsilon?: readonly [config: string, metadata: string];
  /** Layers may have sizes of their own. */
  readonly layersDiffer?: boolean;
  /** Some of its layers have experts. */
  readonly hasExperts?: boolean;
  /** Keys of scales that files of metadata may have. */
  readonly ggufScales?: readonly string[];
  /** Folders store the weights of norms less 1. */
  readonly normsOneLess?: boolean;
  /** What there is beside the sizes; what is left out is as in most models. Sizes that differ between layers: the largest. */
  describe(source: Source): Pick<Traits, "layers" | "ropes"> & Partial<Traits & LayerSizes>;
}

/** `count` layers, each as `layer` says. */
export function layersOf<Layer>(count: number, layer: (index: number) => Layer): Layer[] {
  return Array.from({ length: count }, (_, index) => layer(index));
}
