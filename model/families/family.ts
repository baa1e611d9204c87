/** Interface by which a model family describes itself; each family is one file of this folder. */
import type { DraftHead, LayerSizes, Rope, Sizes, Traits } from "../shape.ts";

/**
 * Name of a field in config.json, and its GGUF metadata key after the architecture's name; null if there is
 * none.
 */
export type Names = readonly [config: string | null, metadata: string | null];

/** Layer kinds in `layer_types`; each may have a rope of its own. */
export type LayerType = "full_attention" | "sliding_attention";

/**
 * Source of the numbers in a description: config.json, or the metadata and tensors of a GGUF file. A value
 * out of range is refused by a ModelError that names file, field and value; without a fallback, so is a
 * missing field.
 */
export interface Source {
  readonly kind: "config" | "metadata";
  readonly layers: number;
  readonly sizes: Sizes;
  integer(names: Names, min: number, max: number, fallback?: number): number;
  number(names: Names, min: number, max: number, fallback?: number): number;
  flag(names: Names, fallback: boolean): boolean;
  text(names: Names, fallback: string): string;
  /** Array of strings; null if absent. */
  texts(names: Names): readonly string[] | null;
  refuse(names: Names, reason: string): never;
  activation(usual: Traits["activation"]): Traits["activation"];
  /** True if projections have biases: the field is true, or the tensor exists in the first layer. */
  bias(field: string, tensor: string): boolean;
  /** True if a layer lacks a tensor: the field is true, or the tensor is absent. */
  lacks(field: string, layer: number, tensor: string): boolean;
  /** Rows of a matrix of the first layer that has it; null if there is none, or no tensor is known yet. */
  rows(tensor: string): number | null;
  /** True if the field is present. */
  has(names: Names): boolean;
  /** Array of numbers of config.json; null if absent. */
  numbers(names: Names): readonly number[] | null;
  /** Numbers of the listed layers; empty without a list. */
  indices(names: Names): readonly number[];
  /** True if the field is an array. */
  isList(names: Names): boolean;
  /** Array with one number per layer; null if absent. */
  perLayer(names: Names): readonly number[] | null;
  /** The same for real numbers. */
  realsPerLayer(names: Names): readonly number[] | null;
  /** Truth value of each layer, in metadata only; null if absent. */
  flags(names: Names): readonly boolean[] | null;
  /** Sliding-window flag of each layer: from the file, else from `usual`, the rule of the family's models. */
  slidingLayers(usual: (layer: number) => boolean): readonly boolean[];
  /**
   * Rope of all layers, or of those of one type. `theta`: further names of the field; a rope with a theta of
   * its own is plain. `headSize`: head size of these layers, if not the model's.
   */
  rope(type?: LayerType, theta?: Names, headSize?: number): Rope;
}

export interface Family {
  /** Name in messages. */
  readonly name: string;
  /** Published models of the family, for people. */
  readonly models: string;
  /** `model_type` values of config.json, if they differ from `name`. */
  readonly modelTypes?: readonly string[];
  /** `architectures` values of config.json. */
  readonly classes: readonly string[];
  /** Classes that hold such a model in `text_config`, beside image towers that are not loaded. */
  readonly wrappers?: readonly string[];
  /**
   * True if published configurations name custom code (`auto_map`) for a computation that this family
   * implements.
   */
  readonly ignoresAutoMap?: boolean;
  /** `general.architecture` values of GGUF files. */
  readonly metadata: readonly string[];
  /** GGUF `general.architecture` used by families that have none of their own. */
  readonly ggufAs?: string;
  /** Defaults for absent fields of config.json, where they differ between families. */
  readonly defaults?: Readonly<Record<string, unknown>>;
  /** Names of fields in config.json that stand for the usual ones. */
  readonly renamedFields?: Readonly<Record<string, string>>;
  /** True if an absent `num_key_value_heads` means as many as query heads; else the field is required. */
  readonly kvHeadsOptional?: boolean;
  /**
   * Tensor names that differ from the usual ones (weights.ts, gguf.ts), in folders and in GGUF files. Tensors
   * that share a name lie in one stored tensor one after the other, by rising TensorKind.
   */
  readonly folderNames?: Readonly<Record<number, string>>;
  readonly ggufNames?: Readonly<Record<number, string>>;
  /** Name of the layers in folders before their number, if not `model.layers`. */
  readonly layerNames?: string;
  /** Prefixes of tensor names in folders, where they depend on the class. `folderNames` then has all names. */
  readonly prefixes?: readonly string[];
  /** Tensors of folders that are no part of the layers: other heads, and buffers. */
  readonly unread?: RegExp;
  /** True if `use_bidirectional_attention` makes an encoder of the model. */
  readonly mayBeEncoder?: boolean;
  /** True for encoders, which generate no text: `classes` lists all classes. */
  readonly isEncoder?: boolean;
  /**
   * Tensor names of experts; {} stands for the expert's number. Without {}, one stored tensor holds all
   * experts.
   */
  readonly expertNames?: Readonly<Record<number, string>>;
  readonly ggufExpertNames?: Readonly<Record<number, string>>;
  /**
   * Set if folders store expert matrices as [experts, inputs, outputs]: gate and up outputs are interleaved,
   * or all of gate come before those of up.
   */
  readonly transposesExperts?: "interleaved" | "halves";
  /**
   * True if folders store q, k and v in one tensor: for each key head its query heads, then its key, then its
   * value.
   */
  readonly groupedHeads?: boolean;
  /** True if folders store one row of the attention's gate per query head, for all numbers of the head. */
  readonly gatesPerHead?: boolean;
  /** Tensors of recurrent layers whose rows are stored together for each key head, in folders and GGUF files. */
  readonly stateGroups?: RegExp;
  /** Formats whose rotated rows of q and k are interleaved in pairs. */
  readonly pairedRows?: { readonly folder?: boolean; readonly gguf?: boolean };
  /** Field of the MLP's width in config.json, if not `intermediate_size`. */
  readonly feedForwardField?: string;
  /** Names of the norm epsilon, if not `rms_norm_eps`. */
  readonly epsilon?: readonly [config: string, metadata: string];
  /** Lists, or strings of a letter per layer, in config.json: the first gives the number of layers. */
  readonly layerLists?: readonly string[];
  /** True if layers may differ in size. */
  readonly layersDiffer?: boolean;
  /** True if all layers have latent attention, so that pages hold one head of latent and rotated numbers. */
  readonly isLatent?: boolean;
  /** True if the embedding may have more rows than the vocabulary, for tokens that are not text. */
  readonly hasMoreRows?: boolean;
  /** True if some layers have experts. */
  readonly hasExperts?: boolean;
  /** True if files may have extra layers after the last one that predict further tokens (MTP). */
  readonly hasDraftLayers?: boolean;
  /** Draft head that some files have. Absent: none is supported. */
  readonly draftHead?: FamilyHead;
  /** True if the family reads the router's fields, and those of shared experts. */
  readonly readsRouter?: boolean;
  /** Keys of scales that GGUF metadata may have. */
  readonly ggufScales?: readonly string[];
  /** True if folders store norm weights less 1. */
  readonly normsOneLess?: boolean;
  /**
   * Traits beside the sizes; omitted ones have the usual values. Sizes that differ between layers: the
   * largest.
   */
  describe(
    source: Source,
  ): Pick<Traits, "layers" | "ropes"> & Partial<Traits & LayerSizes & Pick<Sizes, "contextMax" | "vocab">>;
}

/** Draft head, with the names of its tensors in folders; {} stands for the number of the model's layers. */
export interface FamilyHead extends Pick<DraftHead, "isNormed" | "isHiddenFirst"> {
  /** Name of its layer. */
  readonly layer: string;
  /** Names of its own tensors, by TensorKind. */
  readonly names: Readonly<Record<number, string>>;
}

/** Builds `count` layers with `layer`. */
export function layersOf<Layer>(count: number, layer: (index: number) => Layer): Layer[] {
  return Array.from({ length: count }, (_, index) => layer(index));
}
