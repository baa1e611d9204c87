/** What of the wire is not supported: refused when it would change the answer, listed when it would not. */
import { badRequest } from "../../http/errors.ts";
import { type Fields, tellable } from "../fields.ts";

/** Accepted, without effect on what is answered. */
export const harmless = [
  "user",
  "metadata",
  "store",
  "safety_identifier",
  "prompt_cache_key",
  "prompt_cache_retention",
  "prediction",
  "verbosity",
  "request_id",
  "session_id",
  "spaces_between_special_tokens",
  "length_penalty",
  "guided_decoding_backend",
  "stream_interval",
];

/** Fields that would change the answer and are not supported, with the values that ask for nothing. */
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
  lora_path: [],
};

/** Throws 400 for several answers, or the prompt beside one, on routes that tell one answer alone. */
export function refuseMoreAnswers(fields: Fields): void {
  for (const [name, neutral] of Object.entries({ n: [1], n_cmpl: [1], best_of: [1], echo: [false] })) {
    const value = fields.raw(name);
    if (value !== undefined && !isOneOf(value, neutral))
      throw notSupported(name, `anything but ${neutral[0]} on this route`);
  }
}

/** Refuses what is asked for and not supported; returns the names of what is left, which has no effect. */
export function settleTheRest(fields: Fields, accepted: readonly string[] = harmless): string[] {
  const ignored: string[] = [];
  for (const [name, neutral] of Object.entries(unsupported)) {
    const value = fields.raw(name);
    if (value === undefined || isOneOf(value, neutral)) continue;
    throw notSupported(name, "this field");
  }
  for (const name of accepted) if (fields.raw(name) !== undefined) ignored.push(name);
  return tellable([...ignored, ...fields.unread()]);
}

export function isOneOf(value: unknown, candidates: readonly unknown[]): boolean {
  return candidates.some((candidate) => JSON.stringify(candidate) === JSON.stringify(value));
}

/** 400 for something that could be meant, but cannot be done here. */
export function notSupported(path: string, what: string): Error {
  return badRequest(`${path}: ${what} is not supported by this server`, path);
}
