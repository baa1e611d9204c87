/**
 * Answers constrained to a schema, a regular expression or a choice, requested as clients of several servers
 * do.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import { allows } from "../support/schema-oracle.ts";
import { chatBody, post, startTestServer, type TestServer } from "./server.ts";

let server: TestServer;
let client: OpenAI;

beforeAll(() => {
  server = startTestServer();
  client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "none", maxRetries: 0 });
});
afterAll(async () => {
  await server.settled();
  await server.close();
});

const messages = [{ role: "user" as const, content: "Describe a city." }];

const city = {
  type: "object",
  properties: {
    name: { type: "string", minLength: 1, maxLength: 12 },
    people: { type: "integer", minimum: 0, maximum: 40_000_000 },
    kind: { enum: ["town", "city", null] },
    founded: { type: "string", format: "date" },
    at: { type: "array", prefixItems: [{ type: "number" }, { type: "number" }], items: false, minItems: 2 },
  },
  required: ["name", "people", "at"],
  additionalProperties: false,
};

const schemas: readonly Record<string, unknown>[] = [
  city,
  { type: "array", items: city, minItems: 1, maxItems: 3 },
  { anyOf: [{ type: "object", properties: { a: { const: 1 } }, required: ["a"] }, { type: "null" }] },
  { type: "string", pattern: "^[A-Z][a-z]{2,8}( [A-Z][a-z]{2,8})?$" },
  { type: "object", additionalProperties: { type: "boolean" }, maxProperties: 3 },
  {
    type: "object",
    properties: { email: { type: "string", format: "email", maxLength: 40 } },
    required: ["email"],
  },
  {
    $ref: "#/$defs/n",
    $defs: { n: { type: "object", properties: { of: { $ref: "#/$defs/n" } }, additionalProperties: false } },
  },
  {
    oneOf: [
      { type: "integer", multipleOf: 5 },
      { type: "number", maximum: -3, exclusiveMinimum: -4.5 },
    ],
  },
  { type: "array", items: { enum: ["a", "b", "c"] }, uniqueItems: true, minItems: 2 },
  { type: "array", items: { type: "string", maxLength: 2 }, uniqueItems: true, minItems: 2, maxItems: 9 },
];

test("answers drawn at random keep to their schema, whatever it is and however they are told", async () => {
  let finished = 0;
  const ask = async (schema: Record<string, unknown>, seed: number, stream: boolean): Promise<void> => {
    const request = {
      model: "demo",
      messages,
      seed,
      temperature: 1.5,
      max_tokens: 400,
      response_format: {
        type: "json_schema" as const,
        json_schema: { name: "s", schema, strict: true },
      },
    };
    let content = "";
    let reason: string | null = null;
    if (stream) {
      for await (const { choices } of await client.chat.completions.create({ ...request, stream: true })) {
        content += choices[0]!.delta.content ?? "";
        reason = choices[0]!.finish_reason ?? reason;
      }
    } else {
      const [choice] = (await client.chat.completions.create(request)).choices;
      content = choice!.message.content!;
      reason = choice!.finish_reason;
    }
    if (reason === "length") return; // truncated, so not checked
    expect(reason).toBe("stop");
    expect([content, allows(schema, JSON.parse(content))]).toEqual([content, true]);
    finished++;
  };
  const asked = schemas.flatMap((schema) =>
    Array.from({ length: 12 }, (_, seed) => ask(schema, seed, seed % 2 === 0)),
  );
  await Promise.all(asked);
  expect(finished).toBeGreaterThan(asked.length / 2);
}, 60_000);

async function complete(fields: object): Promise<string> {
  const response = await fetch(`${server.origin}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ messages, seed: 1, max_tokens: 200, ...fields }),
  });
  const body = (await response.json()) as { choices?: { message: { content: string } }[]; error?: object };
  return body.choices?.[0]?.message.content ?? JSON.stringify(body.error);
}

test("every way of asking for a structure is heard", async () => {
  expect(await complete({ guided_choice: ["red", "green"] })).toMatch(/^(red|green)$/);
  expect(await complete({ structured_outputs: { choice: ["red", "green"] } })).toMatch(/^(red|green)$/);
  expect(await complete({ guided_regex: "[a-f]{3}-\\d{2}" })).toMatch(/^[a-f]{3}-\d{2}$/);
  expect(await complete({ structured_outputs: { regex: "(ab){2}" } })).toBe("abab");
  expect(await complete({ regex: "(ab){2}" })).toBe("abab");
  expect(await complete({ ebnf: 'root ::= "a" "b"{2}' })).toBe("abb");
  const tag = { type: "structural_tag", format: { type: "const_string", value: "here" } };
  expect(await complete({ response_format: tag })).toBe("here");
  expect(await complete({ structured_outputs: { structural_tag: JSON.stringify(tag) } })).toBe("here");
  const two = { type: "integer", minimum: 2, maximum: 2 };
  for (const fields of [
    { guided_json: two },
    { guided_json: JSON.stringify(two) },
    { structured_outputs: { json: two } },
    { json_schema: two },
    { response_format: { type: "json_object", schema: two } },
    { response_format: { type: "json_schema", json_schema: { name: "n", schema: two } } },
    { response_format: { type: "json_schema", json_schema: { name: "n", schema: two, strict: true } } },
  ]) {
    expect(await complete(fields)).toBe("2");
  }
  const object = await complete({
    response_format: { type: "json_object" },
    max_tokens: 1000,
    logit_bias: {},
  });
  expect(object[0]).toBe("{");
});

test("llama-server's own route hears its grammar and its schema, and not both", async () => {
  const answerTo = async (fields: object): Promise<string> => {
    const body = { prompt: "Say it: ", n_predict: 200, seed: 1, ...fields };
    const response = await post(server, "/completion", body);
    const told = (await response.json()) as { content?: string; error?: { code: number; message: string } };
    return told.content ?? `${response.status} ${told.error!.message}`;
  };
  const json_schema = { type: "integer", minimum: 2, maximum: 2 };
  const grammar = 'root ::= "a" "b"{2}';
  expect(await answerTo({ json_schema })).toBe("2");
  expect(await answerTo({ grammar })).toBe("abb");
  expect(await answerTo({ grammar, json_schema })).toBe(
    "400 only one of grammar and json_schema may be given",
  );
});

test("what of a schema demands nothing is told in the answer's header, in a stream as well", async () => {
  const schema = { type: "string", maxLength: 3, format: "colour", title: "t", requird: ["a"] };
  const response_format = { type: "json_schema", json_schema: { name: "n", schema } };
  for (const stream of [false, true]) {
    const asked = chatBody("Which?", { response_format, stream, store: true });
    const response = await post(server, "/v1/chat/completions", asked);
    expect(response.headers.get("x-bunting-ignored")).toBe("store, format%20colour, requird");
    await response.text();
  }
});

test("choices, penalties, biases and logprobs go with a structure; fewest tokens give way to its end", async () => {
  const response = await client.chat.completions.create({
    model: "demo",
    messages,
    n: 4,
    seed: 3,
    logprobs: true,
    top_logprobs: 2,
    presence_penalty: 1,
    logit_bias: { "5": 3 },
    // @ts-expect-error fields of vLLM
    min_tokens: 50,
    structured_outputs: { choice: ["yes", "no", "maybe"] },
  });
  expect(response.choices).toHaveLength(4);
  for (const { message, finish_reason, logprobs } of response.choices) {
    expect(["yes", "no", "maybe"]).toContain(message.content!);
    expect(finish_reason).toBe("stop");
    expect(logprobs!.content!.length).toBeGreaterThan(0);
  }
});

test("what cannot be kept to is refused, with the place that is at fault", async () => {
  const refusal = async (
    fields: object,
  ): Promise<{ message: string; param: string | null; code: string | null }> =>
    JSON.parse(await complete(fields));
  const format = (schema: unknown): object => ({
    response_format: { type: "json_schema", json_schema: { name: "n", schema } },
  });
  expect(await refusal(format({ properties: { a: { type: "float128" } } }))).toMatchObject({
    code: "invalid_schema",
    param: "response_format.json_schema.schema#/properties/a/type",
  });
  expect((await refusal(format({ type: "array", items: {}, uniqueItems: true }))).message).toContain(
    "uniqueItems",
  );
  expect(await refusal({ guided_regex: "(a)\\1" })).toMatchObject({
    code: "invalid_schema",
    param: "guided_regex",
  });
  expect((await refusal({ guided_json: {}, guided_regex: "a" })).message).toBe(
    "only one of guided_json and guided_regex may be given",
  );
  expect((await refusal({ structured_outputs: { json: {}, regex: "a" } })).message).toContain(
    "one constraint only",
  );
  expect((await refusal({ structured_outputs: { jsn: {} } })).message).toContain("but holds jsn");
  expect((await refusal({ response_format: { type: "json_schema" } })).param).toBe(
    "response_format.json_schema",
  );
  expect((await refusal({ guided_choice: ["a"], ignore_eos: true })).param).toBe("ignore_eos");
});

const weather = {
  type: "object",
  properties: { city: { enum: ["Rome", "Oslo"] }, days: { type: "integer", minimum: 1, maximum: 14 } },
  required: ["city", "days"],
  additionalProperties: false,
};
const tools = ["weather", "forecast"].map((name) => ({
  type: "function" as const,
  function: { name, parameters: weather, strict: true },
}));

test("calls that are forced are made, and their arguments obey", async () => {
  const ask = async (more: object, seed: number) => {
    const request = { model: "demo", messages, tools, seed, temperature: 1.5, max_tokens: 300, ...more };
    return (await client.chat.completions.create(request)).choices[0]!;
  };
  const named = { tool_choice: { type: "function", function: { name: "forecast" } } };
  for (let seed = 0; seed < 6; seed++) {
    const required = await ask({ tool_choice: "required", parallel_tool_calls: false }, seed);
    const forced = await ask(named, seed);
    for (const { message, finish_reason } of [required, forced]) {
      expect(finish_reason).toBe("tool_calls");
      expect(message.content).toBeNull();
      expect(message.tool_calls).toHaveLength(1);
      const [call] = message.tool_calls!;
      if (call?.type !== "function") throw new Error("a call of a function was expected");
      expect(allows(weather, JSON.parse(call.function.arguments))).toBe(true);
    }
    expect(forced.message.tool_calls).toMatchObject([{ function: { name: "forecast" } }]);
  }
});

test("grammars of llama.cpp and of Lark", async () => {
  const sum = 'root ::= "(" root "+" root ")" | [0-9]{1,2}';
  expect(await complete({ grammar: 'root ::= "a" "b"{2}' })).toBe("abb");
  expect(await complete({ guided_grammar: 'start: "x"~3' })).toBe("xxx");
  expect(await complete({ structured_outputs: { grammar: sum }, max_tokens: 300 })).toMatch(/^[(+)0-9]+$/);
  expect(JSON.parse(await complete({ grammar: "root ::= other" }))).toMatchObject({
    code: "invalid_schema",
    param: "grammar",
  });
});
