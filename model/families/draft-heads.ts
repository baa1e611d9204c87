/**
 * Draft heads (multi-token prediction), by the tensor names of folders; GGUF files have one set of names for
 * all (gguf.ts). Names and traits follow published code. A wrong `isNormed` (whether a head reads hidden
 * states after the final norm) would show only in a lower acceptance rate.
 */
import { TensorKind } from "../tensor-kinds.ts";
import type { FamilyHead } from "./family.ts";

/** Head of DeepSeek V3, of GLM and of models of their shape: the layer behind the last one. */
export const nextnHead: FamilyHead = {
  isNormed: true,
  isHiddenFirst: false,
  layer: "model.layers.{}",
  names: {
    [TensorKind.headEmbedNorm]: "model.layers.{}.enorm.weight",
    [TensorKind.headHiddenNorm]: "model.layers.{}.hnorm.weight",
    [TensorKind.headProjection]: "model.layers.{}.eh_proj.weight",
    [TensorKind.headNorm]: "model.layers.{}.shared_head.norm.weight",
  },
};

/** Head of Qwen3-Next and of Qwen 3.5. */
export const mtpHead: FamilyHead = {
  isNormed: true,
  isHiddenFirst: false,
  layer: "mtp.layers.0",
  names: {
    [TensorKind.headEmbedNorm]: "mtp.pre_fc_norm_embedding.weight",
    [TensorKind.headHiddenNorm]: "mtp.pre_fc_norm_hidden.weight",
    [TensorKind.headProjection]: "mtp.fc.weight",
    [TensorKind.headNorm]: "mtp.norm.weight",
  },
};

/** Head of MiMo. */
export const mimoHead: FamilyHead = {
  isNormed: false,
  isHiddenFirst: true,
  layer: "model.mtp_layers.0",
  names: {
    [TensorKind.headEmbedNorm]: "model.mtp_layers.0.token_layernorm.weight",
    [TensorKind.headHiddenNorm]: "model.mtp_layers.0.hidden_layernorm.weight",
    [TensorKind.headProjection]: "model.mtp_layers.0.input_proj.weight",
    [TensorKind.headNorm]: "model.mtp_layers.0.final_layernorm.weight",
  },
};
