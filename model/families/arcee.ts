/** Arcee's AFM: Llama with an MLP without a gate, whose activation is a squared ReLU. */
import type { Family } from "./family.ts";
import { describeReluSquared } from "./relu-squared.ts";

export const arcee: Family = {
  name: "arcee",
  models: "AFM 4.5B",
  classes: ["ArceeForCausalLM"],
  metadata: ["arcee"],
  kvHeadsOptional: true,
  defaults: { rms_norm_eps: 1e-5 },
  pairedRows: { gguf: true },
  describe: (source) => describeReluSquared(source, "rms"),
};
