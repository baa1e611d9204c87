/** AI SDK of Vercel with OpenAI's own provider, which uses the Responses API by default. */
import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";
import { startTestServer, type TestServer } from "../../e2e/server.ts";

const template = readFileSync(join(import.meta.dir, "../../reference/tools/template.jinja"), "utf8");
const answers = [
  `<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>`,
  "It is sunny in Rome.",
  '{"city":"Rome"}',
];

let server: TestServer;
beforeAll(() => {
  server = startTestServer({ template, answers });
});
afterEach(() => server.settled());
afterAll(() => server.close());

/**
 * Makes a model that gives these answers, one request after the other: it inserts their seeds into the SDK's
 * requests.
 */
function modelSaying(...seeds: readonly number[]) {
  const left = [...seeds];
  const seeded = (url: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const body = { ...JSON.parse(String(init!.body)), seed: left.shift() };
    return fetch(url, { ...init, body: JSON.stringify(body) });
  };
  const fetchOfSdk = Object.assign(seeded, { preconnect: fetch.preconnect });
  return createOpenAI({ baseURL: `${server.origin}/v1`, apiKey: "none", fetch: fetchOfSdk })("demo");
}

const request = { prompt: "Weather?", maxRetries: 0 };
const asked: string[] = [];
const tools = {
  get_weather: tool({
    description: "The weather of a city",
    inputSchema: jsonSchema<{ city: string }>({ type: "object", properties: { city: { type: "string" } } }),
    execute: ({ city }) => {
      asked.push(city);
      return "sunny";
    },
  }),
};

test("generateText and streamText give the same text and usage", async () => {
  const whole = await generateText({ model: modelSaying(1), system: "Be brief.", ...request });
  const streamed = streamText({ model: modelSaying(1), system: "Be brief.", ...request });
  expect(await streamed.text).toBe(answers[1]!);
  expect(whole.text).toBe(answers[1]!);
  expect(await streamed.finishReason).toBe("stop");
  expect((await streamed.usage).totalTokens).toBe(whole.usage.totalTokens!);
  const cut = await generateText({ model: modelSaying(1), maxOutputTokens: 2, ...request });
  expect(cut.finishReason).toBe("length");
});

test("a tool is called, and its result read, by the ids of kept items", async () => {
  for (const store of [true, false]) {
    const options = { model: modelSaying(0, 1), tools, stopWhen: stepCountIs(3), ...request };
    const providerOptions = { openai: { store } };
    const whole = await generateText({ ...options, providerOptions });
    expect([whole.text, whole.steps.length]).toEqual([answers[1]!, 2]);
    const streamed = streamText({ ...options, model: modelSaying(0, 1), providerOptions });
    expect(await streamed.text).toBe(answers[1]!);
  }
  expect(asked).toEqual(["Rome", "Rome", "Rome", "Rome"]);
});

test("an answer is held to a schema", async () => {
  const schema = jsonSchema<{ city: string }>({
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  });
  const { output } = await generateText({
    model: modelSaying(2),
    output: Output.object({ schema }),
    ...request,
  });
  expect(output).toEqual({ city: "Rome" });
});

test("a refusal reaches the caller with its message and status", async () => {
  const failed = await generateText({ model: modelSaying(1), ...request, prompt: "Hey ".repeat(5000) }).catch(
    (error: unknown) => error,
  );
  expect(APICallError.isInstance(failed)).toBe(true);
  expect((failed as APICallError).statusCode).toBe(400);
  expect((failed as APICallError).message).toContain("maximum context length");
});
