/** Programs served as models, with the official client. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import OpenAI from "openai";
import { readProgramModels } from "../../server/api/programs/files.ts";
import { post, startTestServer, type TestServer } from "./server.ts";

const folder = mkdtempSync(join(tmpdir(), "bunting-programs-"));
let server: TestServer;
let client: OpenAI;

const ask = (content: string, output: string, seed: number): object => ({
  messages: [{ role: "user", content }],
  outputs: { [output]: { seed } },
});

beforeAll(() => {
  writeFileSync(
    join(folder, "two-steps.yaml"),
    `input: question
calls:
  - name: think
    prompt: "Think about {{question}}: {{thought}}"
    outputs: { thought: { seed: 0 } }
  - name: say
    messages: [{ role: user, content: "Say {{thought}}" }]
    outputs: { said: { seed: 1 } }
`,
  );
  const calls = [ask("{{before}} | {{input}}", "all", 2)];
  const shown = {
    ...ask("Show {{all}}", "shown", 3),
    outputs: { shown: { seed: 3, transforms: [{ number: null }] } },
  };
  writeFileSync(join(folder, "with-history.json"), JSON.stringify({ history: "before", calls }));
  writeFileSync(
    join(folder, "number.json"),
    JSON.stringify({ output: "shown", variables: { all: "x" }, calls: [shown] }),
  );
  server = startTestServer({
    answers: ["a thought", "said and done", "all of it", "42"],
    programFolder: folder,
  });
  client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "none", maxRetries: 0 });
});
afterAll(async () => {
  await server.settled();
  expect(server.programs.active).toBe(0);
  await server.close();
  rmSync(folder, { recursive: true });
});

const question = { role: "user" as const, content: "What?" };

test("they are listed, and looked up", async () => {
  const ids = (await client.models.list()).data.map(({ id }) => id);
  expect(ids).toEqual(["demo", "also/demo", "number", "two-steps", "with-history"]);
  expect((await client.models.retrieve("two-steps")).id).toBe("two-steps");
});

test("routes that run no programs say so", async () => {
  const message = 'the model "two-steps" is a program: only POST /v1/chat/completions takes it';
  const asked = [
    client.completions.create({ model: "two-steps", prompt: "What?" }),
    client.responses.create({ model: "two-steps", input: "What?" }),
  ];
  for (const answer of asked)
    expect(await answer.catch((error) => error)).toMatchObject({ status: 400, error: { message } });
  const pulled = await post(server, "/api/pull", { model: "two-steps:latest" });
  expect([pulled.status, await pulled.json()]).toEqual([400, { error: message }]);
});

test("the refusal of an unknown name lists the programs beside the model", async () => {
  const message =
    'the model "none" does not exist; served here: demo, also/demo, number, two-steps, with-history';
  const refused = await client.chat.completions
    .create({ model: "none", messages: [question] })
    .catch((error) => error);
  expect(refused).toMatchObject({ status: 404, error: { message, code: "model_not_found" } });
  const ollama = await post(server, "/api/chat", { model: "none", messages: [question] });
  expect(await ollama.json()).toEqual({
    error: 'model "none" not found; served here: demo, also/demo, number, two-steps, with-history',
  });
});

test("the user's message goes in, the answer comes out, and usage counts all calls", async () => {
  const { data, response } = await client.chat.completions
    .create({ model: "two-steps", messages: [question], temperature: 0.5 })
    .withResponse();
  expect(data.model).toBe("two-steps");
  expect(data.choices).toMatchObject([
    { message: { role: "assistant", content: "said and done" }, finish_reason: "stop" },
  ]);
  expect(response.headers.get("x-bunting-ignored")).toBe("temperature");
  const tokens = async (body: object): Promise<number> =>
    (
      (await (
        await fetch(`${server.origin}/tokenize`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify(body),
        })
      ).json()) as { count: number }
    ).count;
  const prompts =
    (await tokens({ prompt: "Think about What?: " })) +
    (await tokens({ messages: [{ role: "user", content: "Say a thought" }] }));
  const drawn = (await tokens({ prompt: "a thought" })) + (await tokens({ prompt: "said and done" })) + 2;
  expect(data.usage).toMatchObject({ prompt_tokens: prompts, completion_tokens: drawn });
});

test("a stream has the same text, and the usage at its end", async () => {
  const stream = await client.chat.completions.create({
    model: "two-steps",
    messages: [question],
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  let pieces = 0;
  let last: OpenAI.ChatCompletionChunk | null = null;
  for await (const chunk of stream) {
    const piece = chunk.choices[0]?.delta.content ?? "";
    text += piece;
    if (piece !== "") pieces++;
    last = chunk;
  }
  expect(text).toBe("said and done");
  expect(pieces).toBeGreaterThan(1);
  expect(last!.usage!.completion_tokens).toBeGreaterThan(4);
});

test("messages before the last go to the program that reads them, and are named where they do not", async () => {
  const messages = [{ role: "system" as const, content: "Be kind." }, question];
  const read = await client.chat.completions.create({ model: "with-history", messages });
  expect(read.choices[0]!.message.content).toBe("all of it");
  const { response } = await client.chat.completions.create({ model: "two-steps", messages }).withResponse();
  expect(response.headers.get("x-bunting-ignored")).toBe("messages before the last");
});

test("an output with transforms comes at once", async () => {
  const stream = await client.chat.completions.create({
    model: "number",
    messages: [question],
    stream: true,
  });
  const pieces = [];
  for await (const chunk of stream) pieces.push(chunk.choices[0]?.delta.content ?? "");
  expect(pieces.filter((piece) => piece !== "")).toEqual(["42"]);
});

test("what a program does not do is refused", async () => {
  const refused = async (more: object): Promise<string> =>
    client.chat.completions.create({ model: "two-steps", messages: [question], ...more } as never).then(
      () => "taken",
      (error: Error) => error.message,
    );
  expect(await refused({ n: 2 })).toContain("a program gives one answer");
  expect(await refused({ tools: [{ type: "function", function: { name: "f" } }] })).toContain(
    "takes no tools",
  );
  expect(await refused({ messages: [question, { role: "assistant", content: "x" }] })).toContain(
    "a program answers a user",
  );
  const long = [{ role: "user", content: "x".repeat(2 ** 20 + 1) }];
  for (const stream of [false, true])
    expect(await refused({ messages: long, stream })).toContain("question has 1048577 characters");
});

test.each([
  ["not.yaml", "calls: [", /not\.yaml: /],
  [
    "field.json",
    '{"calls": [{"prompt": "{{input}}", "output": "a", "temprature": 1}]}',
    /field\.json: calls\[0\]\.temprature is not a field/,
  ],
  [
    "graph.json",
    '{"calls": [{"prompt": "{{other}}", "output": "a"}]}',
    /graph\.json: .* reads other, which nothing declares/,
  ],
  [
    "sinks.json",
    '{"calls": [{"prompt": "a", "output": "a"}, {"prompt": "b", "output": "b"}]}',
    /sinks\.json: name its output: 2 variables/,
  ],
  [
    "output.json",
    '{"output": "z", "calls": [{"prompt": "a", "output": "a"}]}',
    /output\.json: no call writes its output, z/,
  ],
  [
    "unset.json",
    '{"variables": {"x": null}, "calls": [{"prompt": "{{x}}", "output": "a"}]}',
    /unset\.json: variables\.x has no value, and nothing sets it/,
  ],
  [
    "demo.json",
    '{"calls": [{"prompt": "a", "output": "a"}]}',
    /demo\.json: the model itself has the name demo/,
  ],
  ["readme.txt", "nothing", /^--programs .* has no program/],
])("a file that is no program stops the start: %s", (name, text, message) => {
  const own = join(folder, `own-${name}`);
  mkdirSync(own);
  writeFileSync(join(own, name), text);
  const generationDefaults = {
    temperature: null,
    topP: null,
    topK: null,
    minP: null,
    repetitionPenalty: null,
  };
  const tokensOf = () => [];
  const served = { names: ["demo"], contextMax: 2048, vocabSize: 4096, tokensOf, generationDefaults };
  expect(() => readProgramModels(own, served)).toThrow(message);
});
