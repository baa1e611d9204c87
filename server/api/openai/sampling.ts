/** Sampling and stop strings from a request's fields and the model's own defaults. */
import type { TokenId } from "../../../base/token.ts";
import type { Sampling } from "../../../scheduler/core.ts";
import { badRequest } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { type Fields, integerIn, type NumberRange, numberIn, refusal, textKind } from "../fields.ts";
import { refuseOtherSamplers } from "./samplers.ts";

const uint32 = 2 ** 32;
const greedyBelow = 1e-5;

export function samplingOf(fields: Fields, served: ServedModel, topLogprobs: number | null): Sampling {
  const defaults = served.generationDefaults;
  const penalty = { min: -2, max: 2 };
  const topK = fields.integer("top_k", { min: -1, max: uint32 / 2 - 1 }) ?? defaults.topK ?? 0;
  const minP = fields.number("min_p", { min: 0, max: 1 }) ?? defaults.minP ?? 0;
  const temperature = temperatureOf(fields, topK > 0 || minP > 0) ?? defaults.temperature ?? 1;
  const repetition = fields.has("repetition_penalty") ? "repetition_penalty" : "repeat_penalty";
  const sampling = {
    // Division by a smaller temperature overflows f32 to infinity and leaves only the likeliest token.
    temperature: temperature < greedyBelow ? 0 : temperature,
    topK: topK < 0 ? 0 : Math.min(topK, served.vocabSize),
    topP: fields.number("top_p", { min: 0, max: 1 }) ?? defaults.topP ?? 1,
    minP,
    repetitionPenalty:
      fields.number(repetition, {
        min: requestLimits.repetitionPenaltyMin,
        max: requestLimits.repetitionPenaltyMax,
      }) ??
      defaults.repetitionPenalty ??
      1,
    presencePenalty: fields.number("presence_penalty", penalty) ?? 0,
    frequencyPenalty: fields.number("frequency_penalty", penalty) ?? 0,
    logitBias: readOnce(fields, "logit_bias", () => logitBiasOf(fields, served)),
    allowedTokens: readOnce(fields, "allowed_token_ids", () => allowedTokensOf(fields, served)),
    badWords: [
      ...readOnce(fields, "bad_words", () => badWordsOf(fields, served)),
      ...(defaults.badWords ?? []),
    ],
    seed: seedOf(fields),
    topLogprobs,
  };
  refuseOtherSamplers(fields, sampling);
  return sampling;
}

/** Temperature from the request. A high one needs a sampler that drops unlikely tokens. Throws 400. */
function temperatureOf(fields: Fields, dropsUnlikely: boolean): number | undefined {
  const { temperatureMax, flatTemperatureMax } = requestLimits;
  if (dropsUnlikely) return fields.number("temperature", { min: 0, max: flatTemperatureMax });
  const given = fields.peek("temperature");
  if (typeof given === "number" && given > temperatureMax && given <= flatTemperatureMax) {
    const expected = `a number from 0 to ${temperatureMax}, or to ${flatTemperatureMax} together with min_p or top_k`;
    throw refusal(fields.pathOf("temperature"), expected, given);
  }
  return fields.number("temperature", { min: 0, max: temperatureMax });
}

/** Parsed results by the body's list or map. */
const made = new WeakMap<object, unknown>();

/**
 * Parses a list or map once: the outputs of a program's call share such lists, which take a while to read.
 */
function readOnce<Result>(fields: Fields, name: string, read: () => Result): Result {
  const given = fields.taken(name);
  if (typeof given !== "object" || given === null) return read();
  if (!made.has(given)) made.set(given, read());
  return made.get(given) as Result;
}

/**
 * Seed from any 64-bit integer; -1 asks for a random one, as in llama.cpp, vLLM and Ollama. Beyond 2^53,
 * neighbours are the same number in JSON and so the same seed.
 */
function seedOf(fields: Fields): readonly [number, number] {
  const seed = fields.integer("seed", { min: -(2 ** 63), max: 2 ** 63 });
  if (seed === undefined || seed === -1) {
    const [low, high] = crypto.getRandomValues(new Uint32Array(2));
    return [low!, high!];
  }
  const bits = BigInt.asUintN(64, BigInt(seed));
  return [Number(bits % BigInt(uint32)), Number(bits / BigInt(uint32))];
}

function logitBiasOf(fields: Fields, served: ServedModel): [TokenId, number][] {
  const entries = fields.entries("logit_bias", requestLimits.logitBiasMax, { type: "number" }) ?? [];
  return entries.map(([key, bias]) => {
    const path = `${fields.pathOf("logit_bias")}.${key.slice(0, 32)}`;
    const token = /^(0|[1-9]\d{0,9})$/.test(key) ? Number(key) : key;
    return [
      integerIn(token, tokenRange(served), path),
      numberIn(bias, { min: -100, max: 100 }, "a number", path),
    ];
  });
}

function allowedTokensOf(fields: Fields, served: ServedModel): Uint32Array | null {
  const name = "allowed_token_ids";
  const tokens = fields.integers(name, requestLimits.allowedTokensMax, tokenRange(served));
  if (tokens === undefined) return null;
  if (tokens.length === 0) throw refusal(fields.pathOf(name), "a list that is not empty", tokens);
  const allowed = new Uint32Array(Math.ceil(served.vocabSize / 32));
  for (const token of tokens) allowed[token >>> 5]! |= 1 << (token & 31);
  return allowed;
}

/** Tokens of each word, both with and without a space before it. */
function badWordsOf(fields: Fields, served: ServedModel): (readonly TokenId[])[] {
  const words = textsOf(fields, "bad_words", requestLimits.badWordsMax, requestLimits.badWordBytesMax);
  return words.flatMap((word) => {
    const bare = word.trimStart();
    if (bare === "") throw refusal(fields.pathOf("bad_words"), "a list of words", word);
    return [served.tokensOf(bare), served.tokensOf(` ${bare}`)].filter((tokens) => tokens.length > 0);
  });
}

export function stopStringsOf(fields: Fields, name: "stop" | "stop_sequences" = "stop"): readonly string[] {
  const given = fields.raw(name, { type: ["string", "array"], items: textKind });
  if (given === undefined || given === "") return [];
  if (typeof given !== "string" && !Array.isArray(given))
    throw refusal(fields.pathOf(name), "a string or an array of strings", given);
  const { stopStringsMax, stopStringBytesMax } = requestLimits;
  if (typeof given === "string") return [textOf(given, stopStringBytesMax, fields.pathOf(name))];
  // Clients send an unset option as an empty text.
  return textsOf(fields, name, stopStringsMax, stopStringBytesMax, (text) => text === "");
}

function textsOf(
  fields: Fields,
  name: string,
  countMax: number,
  bytesMax: number,
  isNone: (item: unknown) => boolean = () => false,
): string[] {
  const given = fields.list(name, countMax, textKind) ?? [];
  return given.flatMap((item, index) =>
    isNone(item) ? [] : [textOf(item, bytesMax, `${fields.pathOf(name)}[${index}]`)],
  );
}

function textOf(item: unknown, bytesMax: number, path: string): string {
  if (typeof item !== "string" || item === "") throw refusal(path, "a string that is not empty", item);
  const bytes = Buffer.byteLength(item);
  if (bytes > bytesMax)
    throw badRequest(`${path} may have ${bytesMax} bytes at most, but has ${bytes}`, path);
  return item;
}

export function cacheSaltOf(fields: Fields): string {
  const salt = fields.string("cache_salt");
  const max = requestLimits.cacheSaltCharactersMax;
  if (salt !== undefined && (salt === "" || salt.length > max)) {
    throw badRequest(`cache_salt must have 1 to ${max} characters, but has ${salt.length}`, "cache_salt");
  }
  return salt ?? "";
}

/** Alternatives per token of a chat; null for no logprobs at all. */
export function chatLogprobs(fields: Fields): number | null {
  const logprobs = fields.boolean("logprobs") ?? false;
  const top = fields.integer("top_logprobs", { min: 0, max: requestLimits.topLogprobsMax });
  if (top !== undefined && top > 0 && !logprobs) {
    throw badRequest(
      `top_logprobs is only allowed together with logprobs: true, but ${top} was given`,
      "top_logprobs",
    );
  }
  return logprobs ? (top ?? 0) : null;
}

export function tokenRange(served: ServedModel): NumberRange {
  return { min: 0, max: served.vocabSize - 1 };
}
