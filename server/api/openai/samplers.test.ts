import { describe, expect, test } from "bun:test";
import { servedDemo } from "../../../tests/support/served-model.ts";
import type { GenerationOptions } from "../../answer/generation.ts";
import { parseMessagesRequest } from "../anthropic/schema.ts";
import { parseLlamaCompletion } from "../llama/completion.ts";
import { parseOllamaChat, parseOllamaGenerate } from "../ollama/schema.ts";
import { parseResponsesRequest } from "../responses/schema.ts";
import { noTargets } from "../targets.ts";
import { parseChatRequest, parseCompletionRequest } from "./schema.ts";

const model = servedDemo({ tokensOf: () => [1] });
const messages = [{ role: "user", content: "Hi" }];
const parse = (more: object) => parseChatRequest({ messages, ...more }, model);

const served = { model, template: null };

/** Generation options of a body with these fields, on each wire format. */
const formats: Readonly<Record<string, (more: object) => GenerationOptions>> = {
  chats: (more) => parse(more).generation,
  completions: (more) => parseCompletionRequest({ prompt: "Hi", ...more }, model).generation,
  responses: (more) => parseResponsesRequest({ input: "Hi", ...more }, served).generation,
  messages: (more) => parseMessagesRequest({ messages, max_tokens: 9, ...more }, served).generation,
  "llama-server's": (more) => parseLlamaCompletion({ prompt: "Hi", ...more }, served, noTargets).generation,
  "Ollama's chats": (options) =>
    parseOllamaChat({ model: "demo", messages, options }, served, noTargets).generation,
  "Ollama's completions": (options) =>
    parseOllamaGenerate({ model: "demo", prompt: "Hi", options }, served, noTargets).generation,
};

/** Fields that clients of llama-server send even if nobody changed them. */
const untouched = {
  ...{
    mirostat: 0,
    mirostat_tau: 5,
    mirostat_eta: 0.1,
    typical_p: 1,
    tfs_z: 1,
    top_n_sigma: -1,
    min_keep: 0,
  },
  ...{ dynatemp_range: 0, dynatemp_exponent: 1, xtc_probability: 0, xtc_threshold: 0.1, repeat_last_n: 64 },
  ...{ dry_multiplier: 0, dry_base: 1.75, dry_allowed_length: 2, dry_penalty_last_n: -1 },
  ...{ samplers: "edkypmxt", repeat_penalty: 1.1, cache_prompt: true },
};

test("samplers that are off draw as ours do, and settings of theirs are named", () => {
  const { generation, ignored } = parse(untouched);
  expect(generation.sampling.repetitionPenalty).toBe(1.1);
  const settings = ["mirostat_tau", "mirostat_eta", "dynatemp_exponent", "xtc_threshold", "repeat_last_n"];
  const dry = ["dry_base", "dry_allowed_length", "dry_penalty_last_n"];
  expect([...ignored].sort()).toEqual([...settings, ...dry, "cache_prompt"].sort());
  const asList = {
    samplers: ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
  };
  expect(parse(asList).ignored).toEqual([]);
});

test.each([
  [{ mirostat: 2 }, "mirostat"],
  [{ typical_p: 0.9 }, "typical_p"],
  [{ dry_multiplier: 0.8 }, "dry_multiplier"],
  [{ xtc_probability: 0.5 }, "xtc_probability"],
  [{ dynatemp_range: 0.5 }, "dynatemp_range"],
  [{ top_n_sigma: 1 }, "top_n_sigma"],
  [{ tfs_z: 0.9 }, "tfs_z"],
  [{ samplers: ["temperature", "top_k"] }, "samplers"],
  [{ samplers: "tkpm" }, "samplers"],
  [{ samplers: 5 }, "samplers"],
  [{ repeat_last_n: 32, repeat_penalty: 1.1 }, "repeat_last_n"],
  [{ repeat_last_n: 0, presence_penalty: 1 }, "repeat_last_n"],
] as const)("%j would change the draw, and is refused by its name", (more, param) => {
  for (const [name, parseFormat] of Object.entries(formats))
    expect(() => parseFormat(more)).toThrow(name.startsWith("Ollama") ? `options.${param}: ` : `${param}: `);
});

describe.each(Object.entries(formats))("%s", (name, parseFormat) => {
  test("heed llama.cpp's names", () => {
    const { sampling, tokensMax } = parseFormat(
      name === "messages" ? { repeat_penalty: 1.2 } : { repeat_penalty: 1.2, n_predict: 7 },
    );
    expect(sampling.repetitionPenalty).toBe(1.2);
    expect(tokensMax).toBe(name === "messages" ? 9 : 7);
  });

  test("draw anew with the seed -1, and alike with another", () => {
    const seedOf = (seed: number) => parseFormat({ seed }).sampling.seed;
    expect(seedOf(-1)).not.toEqual(seedOf(-1));
    expect(seedOf(-2)).toEqual(seedOf(-2));
  });

  test("may be as hot as 5 where unlikely tokens are dropped", () => {
    expect(parseFormat({ temperature: 5, min_p: 0.1 }).sampling.temperature).toBe(5);
    expect(parseFormat({ temperature: 5, top_k: 40 }).sampling.temperature).toBe(5);
    expect(() => parseFormat({ temperature: 5 })).toThrow(
      "temperature must be a number from 0 to 2, or to 5 together with min_p or top_k, but 5 was given",
    );
    expect(() => parseFormat({ temperature: 5.5, top_k: 40 })).toThrow("from 0 to 5, but 5.5 was given");
    expect(() => parseFormat({ temperature: 6 })).toThrow("from 0 to 2, but 6 was given");
  });
});

test("a penalty that looks back at all of the text is ours", () => {
  expect(parse({ repeat_last_n: -1, repeat_penalty: 1.1 }).generation.sampling.repetitionPenalty).toBe(1.1);
});

test("tokens that the model's authors never sample join the request's words", () => {
  const generationDefaults = { ...model.generationDefaults, badWords: [[7], [8, 9]] };
  const { sampling } = parseChatRequest(
    { messages, bad_words: ["a"] },
    { ...model, generationDefaults },
  ).generation;
  expect(sampling.badWords).toEqual([[1], [1], [7], [8, 9]]);
});
