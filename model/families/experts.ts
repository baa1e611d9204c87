/** Mixture-of-experts fields of configurations. */
import {
  type Experts,
  type LayerShape,
  type LayerSizes,
  plainRouter,
  type Router,
  shapeLimits,
  type Traits,
} from "../shape.ts";
import { layersOf, type Names, type Source } from "./family.ts";

/** Options of `expertsOf` that differ between families. */
export interface Mixture extends Partial<Router> {
  /** Number of experts per token, or its field of config.json. */
  readonly used?: string | number;
}

/**
 * `count` and `feedForward` are the names of these fields in config.json. GGUF metadata has the same names
 * for all families; old files have the width of an expert where others have that of a dense layer.
 */
export function expertsOf(
  source: Source,
  count: string,
  feedForward: string,
  { used = "num_experts_per_tok", ...router }: Mixture,
): Experts {
  const names: Names = [count, "expert_count"];
  const experts = source.integer(names, 1, shapeLimits.experts);
  return {
    ...plainRouter,
    ...router,
    count: experts,
    used: typeof used === "number" ? used : source.integer([used, "expert_used_count"], 1, experts),
    feedForward: source.integer(
      [feedForward, "expert_feed_forward_length"],
      1,
      shapeLimits.feedForward,
      source.kind === "metadata" ? source.sizes.feedForward : undefined,
    ),
  };
}

/** Router with sigmoids, biases for the choice, groups and a factor of the weights, as DeepSeek-V3's. */
export function sigmoidRouter(source: Source): Partial<Router> {
  const gating: Names = [null, "expert_gating_func"];
  if (source.integer(gating, 0, 3, 2) === 1) source.refuse(gating, "wanted: 2, for sigmoids");
  const groups = source.integer(["n_group", "expert_group_count"], 0, 64, 1) || 1;
  return {
    score: "sigmoid",
    biased: true,
    normalised: source.flag(["norm_topk_prob", "expert_weights_norm"], true),
    groups,
    groupsUsed: source.integer(["topk_group", "expert_group_used_count"], 0, groups, 1) || 1,
    scale: source.number(["routed_scaling_factor", "expert_weights_scale"], 0, 1e6, 1) || 1,
  };
}

/**
 * Layers with experts where `isSparse` says so or, in a GGUF file, where there is a router. Unless `shared`
 * is 0, these also have a shared MLP of that width. The other layers have a dense MLP of the model's size.
 */
export function mixedLayers(
  source: Source,
  layer: LayerShape,
  shared: number,
  isSparse: (index: number) => boolean,
): Pick<Traits, "layers"> & Pick<LayerSizes, "feedForward"> {
  const sparse = layersOf(source.layers, (index) =>
    source.kind === "config" ? isSparse(index) : !source.lacks("", index, "ffn_gate_inp.weight"),
  );
  const dense = sparse.includes(false) || shared === 0 ? source.sizes.feedForward : 0;
  const feedForward = Math.max(dense, shared);
  const sized = (width: number): Pick<LayerShape, "ownSizes"> => ({
    ownSizes:
      width === feedForward || width === 0 ? layer.ownSizes : { ...layer.ownSizes, feedForward: width },
  });
  const mlp = layer.mlp === "gated" ? (shared > 0 ? "shared" : "experts") : layer.mlp;
  return {
    feedForward,
    layers: sparse.map((has) => ({
      ...layer,
      ...(has ? { mlp, ...sized(shared) } : { mlp: "gated", ...sized(dense) }),
    })),
  };
}

/** Width of the shared MLP: the rows of its tensor in a GGUF file, else the result of `fromConfig`. */
export function sharedWidth(source: Source, fromConfig: () => number): number {
  return source.kind === "metadata" ? (source.rows("ffn_up_shexp.weight") ?? 0) : fromConfig();
}
