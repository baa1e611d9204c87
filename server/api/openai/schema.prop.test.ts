import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import { servedDemo } from "../../../tests/support/served-model.ts";
import { ApiError } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import { parseChatRequest, parseCompletionRequest } from "./schema.ts";

const served = servedDemo({ tokensOf: () => [1] });

const fieldNames = [
  ...["model", "messages", "prompt", "n", "temperature", "top_p", "top_k", "min_p", "repetition_penalty"],
  ...[
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "bad_words",
    "allowed_token_ids",
    "logprobs",
    "top_logprobs",
    "max_tokens",
  ],
  ...[
    "max_completion_tokens",
    "min_tokens",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "stream",
    "stream_options",
  ],
  ...["cache_salt", "tools", "tool_choice", "response_format", "echo", "suffix", "best_of", "seed", "user"],
  ...[
    "parallel_tool_calls",
    "chat_template_kwargs",
    "add_generation_prompt",
    "toString",
    "constructor",
    "hasOwnProperty",
  ],
];

/** Values near the edges of the accepted ranges, and arbitrary other JSON. */
const value = fc.oneof(
  fc.constantFrom(-1, 0, 1, 2, 0.5, 1e308, -0, 2 ** 53, 2 ** 64, "", "x", "demo", true, false, null, [], {}),
  fc.constantFrom(
    [1, 2],
    ["a"],
    { "5": 1 },
    [{ role: "user", content: "x" }],
    [{ role: "user", content: [{}] }],
    [
      {
        role: "assistant",
        tool_calls: [{ id: "", type: "function", function: { name: "f", arguments: "[" } }],
      },
    ],
    [{ type: "function", function: { name: "f", parameters: {} } }],
    [{ type: "function", function: { name: "f", parameters: [], strict: 1 } }],
    "none",
    "auto",
  ),
  fc.jsonValue({ maxDepth: 3 }),
);
const body = fc
  .dictionary(fc.constantFrom(...fieldNames), value, { maxKeys: 6 })
  .map((more) => ({ messages: [{ role: "user", content: "x" }], prompt: "x", ...more }));

test("whatever a body holds, it is parsed into range or refused with a 4xx that names a field", () => {
  fc.assert(
    fc.property(body, fc.constantFrom(parseChatRequest, parseCompletionRequest), (given, parse) => {
      let parsed: ReturnType<typeof parse>;
      try {
        parsed = parse(given, served);
      } catch (error) {
        expect(error).toBeInstanceOf(ApiError);
        const refusal = error as ApiError;
        expect([400, 404]).toContain(refusal.status);
        expect(fieldNames).toContain(refusal.detail.param!.replace(/[.[].*/s, ""));
        expect(refusal.message.length).toBeLessThan(400);
        return;
      }
      const { choices, sampling, tokensMax, stopStrings } = parsed.generation;
      expect(choices >= 1 && choices <= requestLimits.choicesMax).toBe(true);
      const { temperatureMax, flatTemperatureMax } = requestLimits;
      const isFlat = sampling.topK > 0 || sampling.minP > 0;
      expect(sampling.temperature).toBeWithin(0, (isFlat ? flatTemperatureMax : temperatureMax) + 1e-9);
      expect(sampling.topP >= 0 && sampling.topP <= 1).toBe(true);
      expect(sampling.topK >= 0 && sampling.topK <= served.vocabSize).toBe(true);
      expect(sampling.seed.every((word) => Number.isInteger(word) && word >= 0 && word < 2 ** 32)).toBe(true);
      expect(tokensMax === null || tokensMax >= 1).toBe(true);
      expect(stopStrings.every((text) => text !== "")).toBe(true);
    }),
    runs(3000),
  );
});
