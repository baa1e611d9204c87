/** Answer lengths: the maximum is a bound that the server may lower; the minimum is a demand. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { ask as called, run } from "./program-http.ts";
import { bodyOf, chatBody, post, startTestServer, type TestServer } from "./server.ts";
import { ask, byPath, type Wire } from "./wires.ts";

const contextMax = 200;
const endless = { ignore_eos: true };

let server: TestServer;
beforeAll(() => {
  server = startTestServer({ spec: { contextMax } });
});
afterEach(() => server.settled());
afterAll(() => server.close());

describe.each(byPath)("%s", (_, wire: Wire) => {
  test("a bound beyond the context is an answer of what there is room for", async () => {
    const { said } = await ask(server, wire, { content: "Hello", max: 1000, drawing: endless });
    expect(said!.finish).toBe(wire.length);
    expect(said!.tokens).toBe(contextMax - said!.promptTokens);
  });

  test.each([-1, null])("%p is no bound", async (max) => {
    const bounded = await ask(server, wire, { content: "Hello", max: 32_000, drawing: endless });
    const { said } = await ask(server, wire, { content: "Hello", max, drawing: endless });
    expect(said).toEqual(bounded.said);
  });

  test("other numbers below one are refused, with the field and the value", async () => {
    const { status, message } = await ask(server, wire, { content: "Hello", max: -3 });
    expect([status, message]).toEqual([
      400,
      expect.stringContaining(`${wire.bound} must be an integer from 1`),
    ]);
    expect(message).toContain("-3");
  });

  test("a prompt that leaves no room is refused in the words by which clients shorten it", async () => {
    const { status, message } = await ask(server, wire, { content: "word ".repeat(contextMax), max: 1 });
    expect(status).toBe(400);
    expect(message).toMatch(
      /maximum context length is 200 tokens|prompt is too long: \d+ tokens > 199 maximum/,
    );
  });

  test("fewest tokens that there is no room for are refused with all numbers", async () => {
    const asked = { content: "Hello", max: 1000, drawing: { min_tokens: 200 } };
    const { status, message } = await ask(server, wire, asked);
    expect(status).toBe(400);
    expect(message).toMatch(
      /length is 200 tokens, but \d+ were requested \(\d+ in the prompt, 200 to generate\)/,
    );
    const few = await ask(server, wire, { ...asked, drawing: { min_tokens: 5 } });
    expect(few.said!.tokens).toBeGreaterThanOrEqual(5);
  });

  test.each([[""], [[]], [[""]], [null]])("%p is no stop string", async (stop) => {
    const without = await ask(server, wire, { content: "Hello", max: 8, drawing: endless });
    const { said } = await ask(server, wire, { content: "Hello", max: 8, drawing: endless, stop });
    expect(said).toEqual(without.said);
  });

  test("settings of a form that nobody filled in are none", async () => {
    const empty = [
      "grammar",
      "guided_regex",
      "guided_grammar",
      "guided_json",
      "ebnf",
      "regex",
      "json_schema",
    ];
    const more = Object.fromEntries(empty.map((name) => [name, ""]));
    const without = await ask(server, wire, { content: "Hello", max: 8, drawing: endless });
    for (const given of [more, { ...more, guided_json: null, structured_outputs: { regex: "" } }]) {
      const { said, ignored } = await ask(server, wire, {
        content: "Hello",
        max: 8,
        drawing: endless,
        more: given,
      });
      expect([said, ignored]).toEqual([without.said, []]);
    }
  });
});

test("each prompt, and each choice of it, has its own room", async () => {
  const prompt = ["One", "One two three four five six seven"];
  const { choices, usage } = await bodyOf(
    await post(server, "/v1/completions", {
      prompt,
      n: 2,
      max_tokens: 5000,
      return_token_ids: true,
      ...endless,
    }),
  );
  expect(choices).toHaveLength(4);
  for (const { prompt_token_ids, token_ids, finish_reason } of choices)
    expect([prompt_token_ids.length + token_ids.length, finish_reason]).toEqual([contextMax, "length"]);
  expect(usage.total_tokens).toBe(
    4 * contextMax - choices[0]!.prompt_token_ids.length - choices[2]!.prompt_token_ids.length,
  );
});

test("a suffix that is empty is none", async () => {
  const asked = { prompt: "Hello", max_tokens: 4, seed: 1 };
  const { choices } = await bodyOf(await post(server, "/v1/completions", asked));
  const same = await bodyOf(await post(server, "/v1/completions", { ...asked, suffix: "" }));
  expect(same.choices).toEqual(choices);
});

test("the most tokens that a program's call may draw is a bound too, and the fewest a demand", async () => {
  const said = (fields: object) =>
    run(server, { calls: [called("Hello", "text", 1, { ignore_eos: true, ...fields })] });
  for (const max_tokens of [32_000, -1]) {
    const { usage } = await said({ max_tokens });
    expect(usage.prompt_tokens + usage.completion_tokens).toBe(contextMax);
  }
  expect((await said({ min_tokens: 200 })).variables.text!.error!.code).toBe("context_length_exceeded");
});

test("a chat counts its last name of the bound first, and says that the other one counts for nothing", async () => {
  const both = chatBody("Hello", { max_completion_tokens: 3, max_tokens: 5, ...endless });
  const response = await post(server, "/v1/chat/completions", both);
  expect(response.headers.get("x-bunting-ignored")).toBe("max_tokens");
  expect((await bodyOf(response)).usage.completion_tokens).toBe(3);
});
