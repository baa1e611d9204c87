/**
 * Sampling and end conditions of an answer: fields that every wire format accepts, beside its own names for
 * them.
 */

import type { OfferedCalls } from "../../answer/choice-text.ts";
import { type GenerationOptions, oneAnswer, type RequestedConstraint } from "../../answer/generation.ts";
import { badRequest } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import { adapterOf, type ServedModel } from "../../request/served-model.ts";
import { type Fields, refusal } from "../fields.ts";
import { namesIn } from "../session-names.ts";
import { cacheSaltOf, samplingOf, stopStringsOf, tokenRange } from "./sampling.ts";

/** Names of the output token limit in OpenAI's and llama-server's bodies. */
const boundNames = ["max_completion_tokens", "max_tokens", "max_output_tokens", "n_predict"];

/** Names of the stop strings. */
const stopNames = ["stop", "stop_sequences"] as const;

/** Differences between wire formats. */
export interface Particulars {
  /** Requested name of the model or of an adapter. */
  readonly model: string;
  /** The format's own name for the output token limit. */
  readonly bound: string;
  /** Smallest output token limit that the format allows. */
  readonly tokensLeast?: 0 | 1;
  readonly stop?: (typeof stopNames)[number];
  readonly topLogprobs: number | null;
  readonly constraint: RequestedConstraint | null;
  /** Null if the model may call no tool. */
  readonly calls: OfferedCalls | null;
  readonly service: GenerationOptions["service"];
}

/** Generation options of one answer. Throws 400. */
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
    adapter: adapterOf(own.model, served),
    ...draftsOf(fields),
    ...namesIn(fields),
    service,
    ...(constraint === null ? {} : { constraint }),
    ...(calls === null ? {} : { calls }),
  };
}

/**
 * Limit of drafts: `speculative: false` turns them off, as does llama.cpp's `speculative.n_max: 0`; other values
 * of the latter are the most tokens of a draft.
 */
function draftsOf(fields: Fields): Pick<GenerationOptions, "draftTokensMax"> {
  const isOn = fields.boolean("speculative");
  const most = fields.integer("speculative.n_max", { min: 0, max: 2 ** 31 - 1 });
  if (isOn === false) return { draftTokensMax: 0 };
  return most === undefined ? {} : { draftTokensMax: most };
}

type End = Pick<GenerationOptions, "tokensMax" | "tokensMin" | "stopTokens" | "ignoreEos">;

/**
 * End conditions of an answer, besides stop strings. `held`: the answer's constraint, which ends it, and so
 * excludes `ignore_eos`. Throws 400.
 */
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
 * Output tokens at most. Null is no limit but the context; -1 and, as in llama.cpp, -2 mean the same. The
 * wire format's own name wins over the others, which stay unread.
 */
function tokensMaxOf(fields: Fields, bound: string, tokensLeast: number): number | null {
  const name = [bound, ...boundNames].find((one) => fields.has(one)) ?? bound;
  const given = fields.raw(name, { type: "integer", minimum: -2 });
  if (given === undefined || given === -1 || given === -2) return null;
  const max = Number.MAX_SAFE_INTEGER;
  if (typeof given === "number" && Number.isInteger(given) && given >= tokensLeast && given <= max)
    return given;
  const expected = `an integer from ${tokensLeast} to ${max}, or -1 for as many as there is room for`;
  throw refusal(fields.pathOf(name), expected, given);
}
