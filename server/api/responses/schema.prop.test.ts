import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import { servedDemo } from "../../../tests/support/served-model.ts";
import { ApiError } from "../../http/errors.ts";
import { messagesOf } from "./conversation.ts";
import type { Item } from "./items.ts";
import { parseResponsesRequest } from "./schema.ts";

const served = { model: servedDemo(), template: null };

const part = fc.record({
  type: fc.constantFrom("input_text", "output_text", "input_image", "refusal", null),
  text: fc.oneof(fc.string(), fc.jsonValue({ maxDepth: 1 })),
});
const content = fc.oneof(fc.string(), fc.array(part, { maxLength: 3 }), fc.jsonValue({ maxDepth: 1 }));
/** A valid or nearly valid item. */
const item = fc.record(
  {
    type: fc.constantFrom(
      "message",
      "function_call",
      "function_call_output",
      "custom_tool_call",
      "custom_tool_call_output",
      "reasoning",
      "item_reference",
      "web_search_call",
      5,
    ),
    id: fc.constantFrom("a", 5, "x".repeat(300)),
    status: fc.constantFrom("completed", "in_progress", "odd"),
    role: fc.constantFrom("user", "assistant", "system", "developer", "tool"),
    content,
    output: content,
    call_id: fc.constantFrom("c", "d", 5),
    name: fc.constantFrom("f", "a b"),
    arguments: fc.constantFrom('{"a":1}', "{", "[]", "", 5),
    input: fc.constantFrom("text", 5),
    summary: fc.constantFrom([], [{ type: "summary_text", text: "s" }], "x"),
    encrypted_content: fc.constantFrom("bunting-1:YQ==", "other", 5),
  },
  { requiredKeys: [] },
);
const fields = {
  model: fc.constantFrom("demo", "other", 5),
  input: fc.oneof(fc.string(), fc.array(item, { maxLength: 4 }), fc.jsonValue({ maxDepth: 1 })),
  instructions: fc.constantFrom("Be kind.", 5),
  previous_response_id: fc.constantFrom("resp_1", 5),
  tools: fc.oneof(
    fc.constant([{ type: "function", name: "f", parameters: {} }]),
    fc.constant([
      { type: "custom", name: "f", format: { type: "grammar", syntax: "regex", definition: "a+" } },
    ]),
    fc.array(
      fc.record({
        type: fc.constantFrom("function", "custom", "web_search", 5),
        name: fc.constantFrom("f", ""),
      }),
    ),
  ),
  tool_choice: fc.constantFrom("auto", "required", { type: "function", name: "f" }, { type: "mcp" }, [], 5),
  text: fc.constantFrom({ format: { type: "json_schema", schema: {} } }, { format: { type: "x" } }, {}, 5),
  reasoning: fc.constantFrom({ effort: "low" }, { effort: "much" }, { summary: "auto" }, 5),
  include: fc.constantFrom(["reasoning.encrypted_content"], ["message.output_text.logprobs"], [5], "x"),
  top_logprobs: fc.constantFrom(0, 5, 100),
  max_output_tokens: fc.constantFrom(5, 0, 1.5),
  store: fc.constantFrom(true, false, "yes"),
  background: fc.boolean(),
  stream: fc.boolean(),
  truncation: fc.constantFrom("disabled", "auto"),
  metadata: fc.constantFrom({}, { a: "b" }, { a: 1 }, []),
  conversation: fc.constantFrom("conv_1"),
  toString: fc.constant(1),
};
/** A body that is valid except for a few arbitrary fields, some of which may be valid. */
const body = fc
  .subarray(Object.keys(fields) as (keyof typeof fields)[], { maxLength: 4 })
  .chain((names) =>
    fc.record(Object.fromEntries(names.map((name) => [name, fields[name] as fc.Arbitrary<unknown>]))),
  )
  .map((more) => ({ input: "x", ...more }));

test("whatever a body holds, it is parsed or refused with a 4xx that names a field", () => {
  let parsed = 0;
  fc.assert(
    fc.property(body, (given) => {
      try {
        const { instructions, input } = parseResponsesRequest(given, served);
        messagesOf(
          instructions,
          input.filter((one): one is Item => one.type !== "item_reference"),
        );
        parsed++;
      } catch (error) {
        expect(error).toBeInstanceOf(ApiError);
        const refusal = error as ApiError;
        expect([400, 404]).toContain(refusal.status);
        expect(Object.keys(fields)).toContain(refusal.detail.param!.replace(/[.[:].*/s, ""));
        expect(refusal.message.length).toBeLessThan(400);
      }
    }),
    runs(3000),
  );
  expect(parsed).toBeGreaterThan(0);
});

/** A turn of the model: reasoning, a text and calls, each possibly missing, and the results of the calls. */
const turn = fc.record({ thinks: fc.boolean(), talks: fc.boolean(), calls: fc.nat(3) });

test("what a model said in one turn is one message, in its order", () => {
  fc.assert(
    fc.property(fc.array(turn, { minLength: 1, maxLength: 4 }), (turns) => {
      let made = 0;
      const word = () => `w${made++}`;
      const input: object[] = [];
      const expected: object[] = [];
      for (const { thinks, talks, calls } of turns) {
        const asked = word();
        input.push({ role: "user", content: asked });
        expected.push({ role: "user", content: asked });
        const [thought, said] = [word(), word()];
        const names = Array.from({ length: calls }, word);
        if (thinks)
          input.push({
            type: "reasoning",
            summary: [],
            content: [{ type: "reasoning_text", text: thought }],
          });
        if (talks) input.push({ role: "assistant", content: [{ type: "output_text", text: said }] });
        for (const name of names)
          input.push({ type: "function_call", call_id: name, name, arguments: '{"a":1}' });
        for (const name of names) input.push({ type: "function_call_output", call_id: name, output: name });
        if (!thinks && !talks && calls === 0) continue;
        const told = names.map((name) => ({
          id: name,
          type: "function",
          function: { name, arguments: { a: 1 } },
        }));
        expected.push({
          role: "assistant",
          content: talks ? said : "",
          ...(thinks ? { reasoning_content: thought } : {}),
          ...(calls > 0 ? { tool_calls: told } : {}),
        });
        for (const name of names) expected.push({ role: "tool", tool_call_id: name, content: name });
      }
      const items = parseResponsesRequest({ input }, served).input as Item[];
      expect<unknown>(messagesOf(null, items)).toEqual(expected);
    }),
    runs(300),
  );
});
