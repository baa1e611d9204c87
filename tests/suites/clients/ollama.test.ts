/** Official client of Ollama. */
import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Ollama } from "ollama";
import { startTestServer, type TestServer } from "../../e2e/server.ts";

const template = readFileSync(join(import.meta.dir, "../../reference/tools/template.jinja"), "utf8");
/** Answers by seed. */
const answers = [
  "Just text, one two three.",
  `Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>`,
  '{"city":"Rome"}',
];

let server: TestServer;
let client: Ollama;
beforeAll(() => {
  server = startTestServer({ template, answers });
  client = new Ollama({ host: server.origin });
});
afterEach(() => server.settled());
afterAll(() => server.close());

const messages = [{ role: "user", content: "Weather?" }];
const tools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather of a city",
      parameters: { type: "object", properties: { city: { type: "string" } } },
    },
  },
];

test("texts are embedded, one and several", async () => {
  const both = await client.embed({ model: "demo", input: ["one", "two"], dimensions: 8 });
  const one = await client.embed({ model: "demo", input: "one", dimensions: 8 });
  expect(both.embeddings.map(({ length }) => length)).toEqual([8, 8]);
  expect(one.embeddings).toEqual([both.embeddings[0]!]);
  const old = await client.embeddings({ model: "demo", prompt: "one" });
  expect(old.embedding.length).toBeGreaterThan(8);
});

test("a chat is the same whole and as a stream", async () => {
  const whole = await client.chat({ model: "demo:latest", messages, options: { seed: 0 } });
  expect(whole.message).toEqual({ role: "assistant", content: answers[0]! });
  expect([whole.done, whole.done_reason, whole.model]).toEqual([true, "stop", "demo:latest"]);
  let text = "";
  let last = null;
  for await (const part of await client.chat({
    model: "demo",
    messages,
    options: { seed: 0 },
    stream: true,
  })) {
    text += part.message.content;
    last = part;
  }
  expect(text).toBe(answers[0]!);
  expect([last!.done, last!.eval_count, last!.prompt_eval_count]).toEqual([
    true,
    whole.eval_count,
    whole.prompt_eval_count,
  ]);
  expect(last!.total_duration).toBeGreaterThan(0);
  const cut = await client.chat({ model: "demo", messages, options: { seed: 0, num_predict: 2 } });
  expect([cut.done_reason, cut.eval_count]).toEqual(["length", 2]);
});

test("calls are values, and their results are read", async () => {
  const asked = { model: "demo", messages, tools, options: { seed: 1 } };
  const { message } = await client.chat(asked);
  expect(message.content).toBe("Let me look.");
  expect(message.tool_calls).toMatchObject([
    { function: { name: "get_weather", arguments: { city: "Rome" } } },
  ]);
  const streamed = [];
  for await (const part of await client.chat({ ...asked, stream: true }))
    streamed.push(...(part.message.tool_calls ?? []));
  expect(streamed).toMatchObject([{ function: { name: "get_weather", arguments: { city: "Rome" } } }]);
  const more = [...messages, message, { role: "tool", content: "sunny", tool_name: "get_weather" }];
  const next = await client.chat({ model: "demo", messages: more, tools, options: { seed: 0 } });
  expect(next.message.content).toBe(answers[0]!);
});

test("a text is generated, with a system message or as it is", async () => {
  const options = { seed: 0 };
  const plain = await client.generate({ model: "demo", prompt: "Weather?", options });
  expect(plain.response).toBe(answers[0]!);
  const system = await client.generate({ model: "demo", prompt: "Weather?", system: "Be brief.", options });
  const raw = await client.generate({ model: "demo", prompt: "Weather?", raw: true, options });
  expect(system.prompt_eval_count).toBeGreaterThan(plain.prompt_eval_count);
  expect(raw.prompt_eval_count).toBeLessThan(plain.prompt_eval_count);
});

test("an answer is held to a format", async () => {
  const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  for (const format of ["json", schema]) {
    const { message } = await client.chat({ model: "demo", messages, format, options: { seed: 2 } });
    expect(JSON.parse(message.content)).toEqual({ city: "Rome" });
  }
});

test("models are listed, shown and loaded", async () => {
  const { models } = await client.list();
  expect(models.map(({ name }) => name)).toEqual(["demo", "also/demo"]);
  const shown = await client.show({ model: "demo" });
  expect(shown.capabilities).toContain("tools");
  expect(shown.details.family).not.toBe("");
  expect((await client.ps()).models.length).toBe(2);
  const loaded = await client.generate({ model: "demo", prompt: "", keep_alive: "5m" });
  expect([loaded.done, loaded.done_reason]).toEqual([true, "load"]);
});

test("a refusal reaches the caller with its sentence", async () => {
  const failure = async (asked: Promise<unknown>) => String(await asked.catch((error: unknown) => error));
  const images = [{ role: "user", content: "What is it?", images: ["aGk="] }];
  expect(await failure(client.chat({ model: "other", messages }))).toContain('model "other" not found');
  expect(await failure(client.chat({ model: "demo", messages: images }))).toContain("reads text only");
  expect(await failure(client.chat({ model: "demo", messages, think: true }))).toContain(
    "no thinking to turn on",
  );
});
