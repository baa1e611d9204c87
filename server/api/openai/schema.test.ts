import { describe, expect, test } from "bun:test";
import type { GenerationDefaults } from "../../../model/config.ts";
import { greedySampling } from "../../../scheduler/core.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { type ChatRequest, parseChatRequest, parseCompletionRequest } from "./schema.ts";

const silent: GenerationDefaults = {
  temperature: null,
  topP: null,
  topK: null,
  minP: null,
  repetitionPenalty: null,
};
const served: ServedModel = {
  names: ["demo", "alias"],
  contextMax: 100,
  vocabSize: 1000,
  tokensOf: (text) => Array.from(text, (unit) => unit.charCodeAt(0)),
  generationDefaults: silent,
};
const messages = [{ role: "user", content: "Hi" }];

function chat(more: Readonly<Record<string, unknown>> = {}, model = served): ChatRequest {
  return parseChatRequest({ messages, ...more }, model);
}

test("a request that says nothing gets every default", () => {
  const request = chat({ seed: 0 });
  expect(request).toEqual({
    model: "demo",
    messages: [{ role: "user", content: "Hi" }],
    addGenerationPrompt: true,
    continuesLast: false,
    templateArguments: {},
    tools: [],
    thoughtsMax: null,
    tellsReasoning: true,
    prediction: null,
    generation: {
      choices: 1,
      sampling: { ...greedySampling, temperature: 1 },
      tokensMax: null,
      tokensMin: 0,
      stopStrings: [],
      stopTokens: [],
      ignoreEos: false,
      includeStopString: false,
      skipSpecialTokens: true,
      cacheSalt: "",
      adapter: 0,
      service: { objective: "latency", tbtMs: null, ttftMs: null, priority: 0 },
    },
    stream: false,
    includeUsage: false,
    continuousUsage: false,
    tellsTimings: false,
    returnTokenIds: false,
    tokensAsIds: false,
    serviceTier: null,
    ignored: [],
  });
});

test("null is the same as nothing, for every field there is", () => {
  const names = [
    ...["model", "n", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty"],
    ...["frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "max_tokens", "max_completion_tokens"],
    ...[
      "min_tokens",
      "stop",
      "stop_token_ids",
      "ignore_eos",
      "stream",
      "stream_options",
      "cache_salt",
      "tools",
    ],
    ...["tool_choice", "response_format", "user", "echo", "chat_template_kwargs", "add_generation_prompt"],
    ...["structured_outputs", "prompt_logprobs", "metadata", "unknown_field", "continue_final_message"],
  ];
  const request = chat({ seed: 5, ...Object.fromEntries(names.map((name) => [name, null])) });
  expect(request).toEqual(chat({ seed: 5 }));
});

test("the model's own defaults stand in for what is not asked", () => {
  const advised = { ...served, generationDefaults: { ...silent, temperature: 0.6, topK: 20, topP: 0.95 } };
  expect(chat({}, advised).generation.sampling).toMatchObject({ temperature: 0.6, topK: 20, topP: 0.95 });
  const asked = chat({ temperature: 1.5, top_k: -1, top_p: 1 }, advised).generation.sampling;
  expect(asked).toMatchObject({ temperature: 1.5, topK: 0, topP: 1 });
  expect(chat({ top_p: 0 }, advised).generation.sampling.topP).toBe(0);
});

test("stop strings that are neither text nor a list are refused for what they are", () => {
  expect(() => chat({ stop: 5 })).toThrow("stop must be a string or an array of strings, but 5 was given");
  expect(chat({ stop: "a" }).generation.stopStrings).toEqual(["a"]);
  expect(chat({ stop: ["a", "b"] }).generation.stopStrings).toEqual(["a", "b"]);
});

test("sampling is brought into the engine's terms", () => {
  const { sampling } = chat({ temperature: 1e-9, top_k: 5000, logit_bias: { "7": -3, "0": 1 } }).generation;
  expect(sampling.temperature).toBe(0);
  expect(sampling.topK).toBe(1000);
  expect(sampling.logitBias).toEqual([
    [0, 1],
    [7, -3],
  ]);
});

test("tokens that may be drawn become bits, and bad words tokens behind a space and behind none", () => {
  const { allowedTokens, badWords } = chat({ allowed_token_ids: [0, 33, 999], bad_words: ["ab", " c"] })
    .generation.sampling;
  const allowed = new Uint32Array(32);
  allowed[0] = 1;
  allowed[1] = 2;
  allowed[31] = 1 << 7;
  expect(allowedTokens).toEqual(allowed);
  expect(badWords).toEqual([[97, 98], [32, 97, 98], [99], [32, 99]]);
  expect(() => chat({ bad_words: Array(129).fill("a") })).toThrow(
    "bad_words may hold 128 items at most, but holds 129",
  );
  expect(() => chat({ allowed_token_ids: [1000] })).toThrow(
    "allowed_token_ids[0] must be an integer from 0 to 999, but 1000 was given",
  );
});

test("a seed is 64 bits, low word first, negative ones in two's complement", () => {
  const seed = (value: number) => chat({ seed: value }).generation.sampling.seed;
  expect(seed(1)).toEqual([1, 0]);
  expect(seed(2 ** 32)).toEqual([0, 1]);
  expect(seed(-2)).toEqual([0xfffffffe, 0xffffffff]);
  expect(seed(-(2 ** 63))).toEqual([0, 0x80000000]);
  expect(chat().generation.sampling.seed).not.toEqual(chat().generation.sampling.seed);
});

test("the newer name of the most tokens wins, and logprobs count their alternatives", () => {
  expect(chat({ max_tokens: 5, max_completion_tokens: 7 }).generation.tokensMax).toBe(7);
  expect(chat({ max_tokens: 5 }).generation.tokensMax).toBe(5);
  expect(chat({ logprobs: true }).generation.sampling.topLogprobs).toBe(0);
  expect(chat({ logprobs: true, top_logprobs: 20 }).generation.sampling.topLogprobs).toBe(20);
  expect(chat({ logprobs: false, top_logprobs: 0 }).generation.sampling.topLogprobs).toBeNull();
});

test("values that ask for nothing pass where something would be refused", () => {
  const nothing = {
    tools: [],
    tool_choice: "auto",
    functions: [],
    response_format: { type: "text" },
    modalities: ["text"],
    documents: [],
    bad_words: [],
    use_beam_search: false,
    continue_final_message: false,
    echo: false,
  };
  expect(chat({ seed: 1, ...nothing })).toEqual(chat({ seed: 1 }));
});

test("what has no effect is listed: known names first, and no name that could not stand in a header", () => {
  const { ignored } = chat({ zebra: 1, "a\r\nb": 1, ü: 1, store: true, tool_choice: "none", tools: [{}] });
  expect(ignored).toEqual(["tools", "store", "zebra"]);
});

describe("messages", () => {
  test("keep role, text, name and reasoning", () => {
    const given = [
      {
        role: "system",
        content: [
          { type: "text", text: "a" },
          { type: "text", text: "b" },
        ],
        extra: 1,
      },
      { role: "user", content: "c", name: "Ada" },
      { role: "assistant", content: null, reasoning_content: "d", tool_calls: [] },
      { role: "assistant", refusal: "e" },
      { role: "developer", content: "f" },
    ];
    expect<unknown>(chat({ messages: given }).messages).toEqual([
      {
        role: "system",
        content: [
          { type: "text", text: "a" },
          { type: "text", text: "b" },
        ],
      },
      { role: "user", content: "c", name: "Ada" },
      { role: "assistant", content: "", reasoning_content: "d" },
      { role: "assistant", content: "e" },
      { role: "developer", content: "f" },
    ]);
  });
});

describe("prompts", () => {
  const prompts = (prompt: unknown) => parseCompletionRequest({ prompt }, served).prompts;

  test("come as text, tokens or lists of them", () => {
    expect(prompts("a")).toEqual(["a"]);
    expect(prompts(["a", "b"])).toEqual(["a", "b"]);
    expect(prompts([1, 2])).toEqual([[1, 2]]);
    expect(prompts([[1, 2], "b", [999]])).toEqual([[1, 2], "b", [999]]);
  });

  test("best_of is accepted where it asks for nothing more than n", () => {
    expect(parseCompletionRequest({ prompt: "a", n: 2, best_of: 2 }, served).generation.choices).toBe(2);
  });
});
