/** Places of a model's tensors in stored ones. */
import type { Family } from "./families/family.ts";
import { latentKinds } from "./latent-tensors.ts";
import type { ModelShape } from "./shape.ts";
import { TensorKind } from "./tensor-kinds.ts";

/** Tensor that a model must have. */
export interface WantedTensor {
  /** BUNTING_T_* */
  readonly tensor: number;
  readonly layer: number;
  /** Null if it belongs to no expert. */
  readonly expert: number | null;
  /** [rows, cols], or the length of a vector. */
  readonly shape: readonly number[];
  /** True for the projection of q from a latent of queries. */
  readonly ofQueryLatent?: boolean;
}

/**
 * Place of a tensor: rows [first, first + its own) of the stored tensor of this name and shape. In vectors a
 * row is a number.
 */
export interface Place {
  readonly name: string;
  readonly first: number;
  readonly shape: readonly number[];
  readonly everySecond: boolean;
  readonly transposed: boolean;
  readonly halfRows: boolean;
  readonly groupedHeads: boolean;
  readonly keysWithValues: boolean;
}

/**
 * Places of wanted tensors. Tensors of one name follow each other in it; several experts have a dimension of
 * their own.
 */
export function placesOf(
  wanted: readonly WantedTensor[],
  transposing: Family["transposesExperts"],
  shape: ModelShape,
  nameOf: (want: WantedTensor) => string,
): Place[] {
  const stored = new Map<string, { rows: number; count: number; experts: Set<number | null> }>();
  const found = wanted.map((want) => {
    const name = nameOf(want);
    const whole = stored.get(name) ?? { rows: 0, count: 0, experts: new Set() };
    const first = whole.rows;
    whole.count += 1;
    whole.rows += want.shape[0]!;
    whole.experts.add(want.expert);
    stored.set(name, whole);
    return { want, name, first };
  });
  return found.map(({ want, name, first }) => {
    const { rows, count, experts } = stored.get(name)!;
    if (latentKinds.includes(want.tensor)) return latentPlace(want, name, count > 1, shape);
    const isStacked = experts.size > 1;
    const matrix = [isStacked ? rows / experts.size : rows, ...want.shape.slice(1)];
    const transposed = isStacked && transposing !== undefined && want.shape.length === 2;
    const isJoined = isStacked && matrix[0] === 2 * want.shape[0]!;
    return {
      name,
      first,
      shape: [...(isStacked ? [experts.size] : []), ...(transposed ? matrix.toReversed() : matrix)],
      everySecond: isJoined && transposing === "interleaved",
      halfRows: isJoined && transposing === "halves",
      transposed,
      groupedHeads: false,
      keysWithValues: false,
    };
  });
}

/** Place of the keys or values of latents: a matrix per head, or, joined, both in one matrix. */
function latentPlace(
  { shape: [rows, cols] }: WantedTensor,
  name: string,
  isJoined: boolean,
  { latent, queryHeads }: ModelShape,
): Place {
  const { rank, keySize, valueSize } = latent!;
  return {
    name,
    first: 0,
    shape: isJoined ? [queryHeads * (keySize + valueSize), rank] : [queryHeads, rows! / queryHeads, cols!],
    everySecond: false,
    transposed: false,
    halfRows: false,
    groupedHeads: false,
    keysWithValues: isJoined,
  };
}

/**
 * Place of q, k or v when each key head stores its rows of all three together: it begins in the first head's
 * group.
 */
export function inFirstGroup(
  want: WantedTensor,
  place: Place,
  { queryHeads, kvHeads, headSize }: ModelShape,
): Place {
  const queries = queryHeads / kvHeads;
  const headsBefore: Readonly<Record<number, number>> = {
    [TensorKind.q]: 0,
    [TensorKind.qBias]: 0,
    [TensorKind.k]: queries,
    [TensorKind.kBias]: queries,
    [TensorKind.v]: queries + 1,
    [TensorKind.vBias]: queries + 1,
  };
  const heads = headsBefore[want.tensor];
  return heads === undefined ? place : { ...place, first: heads * headSize, groupedHeads: true };
}
