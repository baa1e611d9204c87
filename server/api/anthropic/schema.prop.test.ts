import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import { servedDemo } from "../../../tests/support/served-model.ts";
import { textOf } from "../../../text/conversation/messages.ts";
import { ApiError } from "../../http/errors.ts";
import { parseMessagesRequest } from "./schema.ts";

const served = { model: servedDemo(), template: null };

const types = ["text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "", null];
/** A valid or nearly valid block. */
const block = fc.record(
  {
    type: fc.constantFrom(...types),
    text: fc.oneof(fc.string(), fc.jsonValue({ maxDepth: 1 })),
    id: fc.constantFrom("a", 1, "x".repeat(300)),
    name: fc.constantFrom("f", "a b", null),
    input: fc.jsonValue({ maxDepth: 2 }),
    tool_use_id: fc.constantFrom("a", null, {}),
    content: fc.oneof(fc.string(), fc.constant([{ type: "text", text: "x" }]), fc.jsonValue({ maxDepth: 2 })),
    is_error: fc.constantFrom(true, false, "no"),
    thinking: fc.constantFrom("why", 5),
    signature: fc.constantFrom("c2ln", []),
    cache_control: fc.constantFrom({ type: "ephemeral" }, { type: "ephemeral", ttl: "5m" }, { type: "x" }, 5),
  },
  { requiredKeys: ["type"] },
);
const content = fc.oneof(fc.string(), fc.array(block, { maxLength: 3 }), fc.jsonValue({ maxDepth: 1 }));
const message = fc.record({ role: fc.constantFrom("user", "assistant", "system", "tool", null), content });
const fields = {
  model: fc.constantFrom("demo", "other", 5),
  max_tokens: fc.constantFrom(1, 0, 1.5, null),
  messages: fc.array(message, { maxLength: 3 }),
  system: content,
  tools: fc.oneof(
    fc.constant([{ name: "f", input_schema: {} }]),
    fc.array(fc.record({ name: fc.constantFrom("f", ""), type: fc.constantFrom("custom", "x") })),
  ),
  tool_choice: fc.constantFrom(
    { type: "any" },
    { type: "tool", name: "f" },
    { type: "none" },
    {},
    "auto",
    [],
  ),
  thinking: fc.constantFrom({ type: "enabled", budget_tokens: 5 }, { type: "adaptive" }, {}, 5),
  output_config: fc.constantFrom(
    { effort: "low" },
    { format: { type: "json_schema", schema: {} } },
    { format: 5 },
  ),
  stop_sequences: fc.constantFrom(["a"], [5], "a", {}),
  service_tier: fc.constantFrom("auto", "standard_only", "flex"),
  toString: fc.constant(1),
};
/** A body that is valid except for a few arbitrary fields, some of which may be valid. */
const body = fc
  .subarray(Object.keys(fields) as (keyof typeof fields)[], { maxLength: 3 })
  .chain((names) =>
    fc.record(Object.fromEntries(names.map((name) => [name, fields[name] as fc.Arbitrary<unknown>]))),
  )
  .map((more) => ({ max_tokens: 5, messages: [{ role: "user", content: "x" }], ...more }));

test("whatever a body holds, it is parsed or refused with a 4xx that names a field", () => {
  let parsed = 0;
  fc.assert(
    fc.property(body, (given) => {
      try {
        const { generation, prompt } = parseMessagesRequest(given, served);
        parsed++;
        expect(generation.tokensMax).toBe(given.max_tokens);
        for (const { content } of prompt.messages)
          expect(
            typeof content === "string" ||
              content.every(({ type, text }) => type === "text" && text !== null),
          ).toBe(true);
      } catch (error) {
        expect(error).toBeInstanceOf(ApiError);
        const refusal = error as ApiError;
        expect([400, 404]).toContain(refusal.status);
        expect(Object.keys(fields)).toContain(refusal.detail.param!.replace(/[.[].*/s, ""));
        expect(refusal.message.length).toBeLessThan(400);
      }
    }),
    runs(3000),
  );
  expect(parsed).toBeGreaterThan(0);
});

/** A user's blocks with distinct words. */
const turn = fc
  .array(fc.constantFrom("text", "result", "results", "string"), { minLength: 1, maxLength: 5 })
  .map((kinds) => (word: () => string): unknown[] => {
    const text = () => ({ type: "text", text: word() });
    return kinds.map((kind) => {
      if (kind === "text" || kind === "string") return text();
      const content = kind === "result" ? word() : [text(), text()];
      return { type: "tool_result", tool_use_id: "a", content };
    });
  });

test("every text of a conversation is read once, in its place", () => {
  fc.assert(
    fc.property(fc.array(turn, { minLength: 1, maxLength: 4 }), fc.boolean(), (turns, isSystemLast) => {
      let words = 0;
      const word = () => `w${words++}`;
      const system = [{ type: "text", text: word() }];
      const messages = turns.flatMap((blocksOf) => [
        { role: "user", content: blocksOf(word) },
        {
          role: "assistant",
          content: [
            { type: "thinking", thinking: word() },
            { type: "text", text: word() },
            { type: "tool_use", id: "a", name: "f", input: { said: word() } },
          ],
        },
      ]);
      messages.push({ role: isSystemLast ? "system" : "user", content: [{ type: "text", text: word() }] });
      const { prompt, ignored } = parseMessagesRequest({ max_tokens: 1, system, messages }, served);
      const read = prompt.messages.flatMap(({ reasoning_content = "", content, tool_calls = [] }) =>
        [
          reasoning_content,
          textOf({ content }),
          ...tool_calls.map((call) => (call.function.arguments as { said: string }).said),
        ]
          .join("\n")
          .split("\n")
          .filter((text) => text !== ""),
      );
      expect(read).toEqual(Array.from({ length: words }, (_, index) => `w${index}`));
      expect(ignored).toEqual([]);
    }),
    runs(300),
  );
});
