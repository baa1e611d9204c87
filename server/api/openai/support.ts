/** Unsupported fields: refused if they would change the answer, else listed as ignored. */
import { badRequest } from "../../http/errors.ts";
import { type Fields, reportable } from "../fields.ts";

/** Accepted fields without effect on the answer. */
export const harmless = [
  "store",
  "prompt_cache_retention",
  "verbosity",
  "request_id",
  "spaces_between_special_tokens",
  "length_penalty",
  "guided_decoding_backend",
  "stream_interval",
];

/** Unsupported fields that would change the answer, with the values that ask for nothing. */
export const unsupported: Readonly<Record<string, readonly unknown[]>> = {
  functions: [[]],
  function_call: ["none"],
  modalities: [["text"], []],
  audio: [],
  web_search_options: [],
  kv_transfer_params: [],
  prompt_embeds: [],
  documents: [[]],
  chat_template: [],
  truncate_prompt_tokens: [],
  use_beam_search: [false],
  logits_processors: [[]],
  mm_processor_kwargs: [{}],
  repetition_detection: [],
  logprob_token_ids: [[]],
  stop_regex: [[]],
};

/** Throws 400 for several answers or an echoed prompt, on routes that return one answer alone. */
export function refuseMoreAnswers(fields: Fields): void {
  for (const [name, neutral] of Object.entries({ n: [1], n_cmpl: [1], best_of: [1], echo: [false] })) {
    const value = fields.raw(name, { enum: neutral });
    if (value !== undefined && !isOneOf(value, neutral))
      throw notSupported(name, `anything but ${neutral[0]} on this route`);
  }
}

/** Refuses unsupported fields; returns the names of the remaining ones, which have no effect. */
export function settleTheRest(fields: Fields, accepted: readonly string[] = harmless): string[] {
  const ignored: string[] = [];
  for (const [name, neutral] of Object.entries(unsupported)) {
    const value = fields.raw(name, { enum: neutral });
    if (value === undefined || isOneOf(value, neutral)) continue;
    throw notSupported(name, "this field");
  }
  for (const name of accepted) if (fields.raw(name) !== undefined) ignored.push(name);
  return reportable([...ignored, ...fields.unread()]);
}

export function isOneOf(value: unknown, candidates: readonly unknown[]): boolean {
  return candidates.some((candidate) => JSON.stringify(candidate) === JSON.stringify(value));
}

/** A 400 for a meaningful request that this server cannot fulfil. */
export function notSupported(path: string, what: string): Error {
  return badRequest(`${path}: ${what} is not supported by this server`, path);
}
