/** How an answer is drawn and when it ends: fields that every wire format understands, beside its own names for them. */

import type { OfferedCalls } from "../../answer/choice-text.ts";
import { type GenerationOptions, oneAnswer, type RequestedConstraint } from "../../answer/generation.ts";
import { badRequest } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { type Fields, refusal } from "../fields.ts";
import { cacheSaltOf, samplingOf, stopStringsOf, tokenRange } from "./sampling.ts";

/** Names of the most tokens that an answer may have, in OpenAI's and llama-server's bodies. */
const boundNames = ["max_completion_tokens", "max_tokens", "max_output_tokens", "n_predict"];

/** Names of texts that end an answer. */
const stopNames = ["stop", "stop_sequences"] as const;

/** What differs between wire formats. */
export interface Particulars {
  /** Their own name for the most tokens. */
  readonly bound: string;
  /** Fewest tokens that may be asked for. */
  readonly tokensLeast?: 0 | 1;
  readonly stop?: (typeof stopNames)[number];
  readonly topLogprobs: number | null;
  readonly constraint: RequestedConstraint | null;
  /** Null: nothing may be called. */
  readonly calls: OfferedCalls | null;
  readonly service: GenerationOptions["service"];
}

/** One answer as the fields ask for it. Throws 400. */
export function generationOf(fields: Fields, served: ServedModel, own: Particulars): GenerationOptions {
  const { constraint, calls, service, topLogprobs } = own;
  const stop = [own.stop ?? "stop", ...stopNames].find((name) => fields.has(name));
  return {
    ...oneAnswer,
    sampling: samplingOf(fields, served, topLogprobs),
    ...endOf(fields, served, own.bound, own.tokensLeast, constraint ?? calls),
    stopStrings: stopStringsOf(fields, stop),
    includeStopString: fields.boolean("include_stop_str_in_output") ?? false,
    skipSpecialTokens: fields.boolean("skip_special_tokens") ?? true,
    cacheSalt: cacheSaltOf(fields),
    service,
    ...(constraint === null ? {} : { constraint }),
    ...(calls === null ? {} : { calls }),
  };
}

type End = Pick<GenerationOptions, "tokensMax" | "tokensMin" | "stopTokens" | "ignoreEos">;

/** When an answer ends, besides at stop strings. `held`: what it is held to, which knows its own end. */
export function endOf(
  fields: Fields,
  served: ServedModel,
  bound: string,
  tokensLeast: 0 | 1 = 1,
  held: { readonly param: string } | null = null,
): End {
  const tokensMax = tokensMaxOf(fields, bound, tokensLeast);
  const ignoreEos = fields.boolean("ignore_eos") ?? false;
  if (held !== null && ignoreEos) {
    const path = fields.pathOf("ignore_eos");
    throw badRequest(`${path} together with ${held.param} is not supported`, path);
  }
  return {
    tokensMax,
    tokensMin: fields.integer("min_tokens", { min: 0, max: tokensMax ?? served.contextMax }) ?? 0,
    stopTokens: fields.integers("stop_token_ids", requestLimits.stopTokensMax, tokenRange(served)) ?? [],
    ignoreEos,
  };
}

/**
 * Tokens that an answer may have at most; null: as many as there is room for, also where the field says -1, or -2 as llama.cpp
 * does. Of several names the wire format's own counts first; one that does not count is left unread.
 */
function tokensMaxOf(fields: Fields, bound: string, tokensLeast: number): number | null {
  const name = [bound, ...boundNames].find((one) => fields.has(one)) ?? bound;
  const given = fields.raw(name);
  if (given === undefined || given === -1 || given === -2) return null;
  const max = Number.MAX_SAFE_INTEGER;
  if (typeof given === "number" && Number.isInteger(given) && given >= tokensLeast && given <= max)
    return given;
  const expected = `an integer from ${tokensLeast} to ${max}, or -1 for as many as there is room for`;
  throw refusal(fields.pathOf(name), expected, given);
}
