/** Samplers of llama.cpp and others that this server lacks: it refuses them unless they are off. */
import type { Sampling } from "../../../scheduler/core.ts";
import { badRequest, quote } from "../../http/errors.ts";
import type { Fields } from "../fields.ts";
import { isOneOf, notSupported } from "./support.ts";

/** Values by field that switch the sampler off. */
const samplersOff: Readonly<Record<string, readonly unknown[]>> = {
  mirostat: [0],
  mirostat_mode: [0],
  typical_p: [1],
  typical: [1],
  tfs_z: [1],
  tfs: [1],
  dynatemp_range: [0],
  dynamic_temperature: [false],
  smoothing_factor: [0],
  xtc_probability: [0],
  dry_multiplier: [0],
  top_n_sigma: [-1, 0],
  top_a: [0],
  epsilon_cutoff: [0],
  eta_cutoff: [0],
  adaptive_target: [-1],
  min_keep: [0],
  no_repeat_ngram_size: [0],
  guidance_scale: [1],
  cfg_scale: [1],
  do_sample: [true],
  num_beams: [1],
};

/** llama.cpp's default sampler order, limited to the samplers that exist here, and its letters for them. */
const order = ["penalties", "top_k", "top_p", "min_p", "temperature"];
const letters: Readonly<Record<string, string>> = {
  e: "penalties",
  k: "top_k",
  p: "top_p",
  m: "min_p",
  t: "temperature",
};
const otherNames: Readonly<Record<string, string>> = { temp: "temperature" };

/**
 * llama.cpp's default window of penalty tokens, which many clients send, and its value for the whole text.
 */
const usualLookBack = 64;
const WHOLE = -1;

/** Throws 400 for samplers that would change the sampled token. Leaves the names of the others unread. */
export function refuseOtherSamplers(fields: Fields, sampling: Sampling): void {
  for (const [name, off] of Object.entries(samplersOff)) {
    const value = fields.raw(name, { enum: off });
    if (value === undefined || isOneOf(value, off)) continue;
    const path = fields.pathOf(name);
    throw badRequest(
      `${path}: this server has no such sampler, and accepts ${JSON.stringify(off[0])} alone, which turns it off, but ${quote(value)} was given`,
      path,
    );
  }
  const samplers = fields.raw("samplers", { type: ["array", "string"] });
  if (samplers !== undefined && !isOneOf(samplersHere(samplers), [order]))
    throw notSupported(fields.pathOf("samplers"), "another order than the usual one");
  const { repetitionPenalty, presencePenalty, frequencyPenalty } = sampling;
  const penalises = repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;
  const lookBack = fields.peek("repeat_last_n") ?? usualLookBack;
  if (penalises && lookBack !== usualLookBack && fields.raw("repeat_last_n", { type: "integer" }) !== WHOLE)
    throw notSupported(fields.pathOf("repeat_last_n"), "a penalty over less than the whole text (-1)");
}

/** Normalises a sampler order: llama.cpp's letters become names; samplers that this server lacks are left out. */
function samplersHere(given: unknown): unknown {
  const names = typeof given === "string" ? [...given].map((letter) => letters[letter]) : given;
  if (!Array.isArray(names)) return given;
  return names.map((name) => otherNames[String(name)] ?? name).filter((name) => order.includes(name));
}
