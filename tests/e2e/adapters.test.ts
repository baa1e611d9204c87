/** LoRA adapters over HTTP: requests choose them by name on every route, and share no cached prefix with others. */

import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ServedAdapters } from "../../server/request/served-model.ts";
import { begin, clientOf } from "./jobs-server.ts";
import { contentOf, post, readEvents, startTestServer, type TestServer } from "./server.ts";

/** Adapters whose ids differ in their high bits alone. */
const adapters: ServedAdapters = new Map([
  ["sql", { id: 1, path: "/adapters/sql", rank: 8, bytes: 4096 }],
  ["law", { id: 1 + 2 ** 40, path: "/adapters/law.gguf", rank: 16, bytes: 8192 }],
]);
const models = ["demo", "sql", "law"];

const template =
  "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant: ";
const question = "Which of the words that stand here is the longest one, and which one is the last?";
const messages = [{ role: "user", content: question }];
const drawing = { max_tokens: 8, temperature: 0, ignore_eos: true };
const scoreWeights = Float32Array.from({ length: 24 }, (_, i) => Math.sin(i));

let server: TestServer;
let data: string;
beforeAll(() => {
  data = mkdtempSync(join(tmpdir(), "bunting-adapters-"));
  server = startTestServer({ adapters, template, scoreWeights, data, stepMs: 0 });
});
afterEach(() => server.settled());
afterAll(async () => {
  await server.close();
  rmSync(data, { recursive: true });
});

type Body = Readonly<Record<string, unknown>>;

async function ask(path: string, body: object): Promise<Body> {
  const response = await post(server, path, body);
  const answer = (await response.json()) as Body;
  expect([response.status, answer.error ?? null]).toEqual([200, null]);
  return answer;
}

async function get(path: string): Promise<Body> {
  return (await (await fetch(server.origin + path)).json()) as Body;
}

const chat = (model: string, more: object = {}) => ({ model, messages, ...drawing, ...more });

/** Text of a chat's answer. */
async function textOf(body: object): Promise<string> {
  const { choices } = (await ask("/v1/chat/completions", body)) as {
    choices: [{ message: { content: string } }];
  };
  return choices[0].message.content;
}

describe("the name chooses the adapter, on", () => {
  const input = [question];
  const documents = ["One word.", "Two or three words."];
  const routes: readonly (readonly [string, object, (answer: Body) => unknown])[] = [
    ["/v1/chat/completions", { messages, ...drawing }, ({ choices }) => choices],
    ["/v1/completions", { prompt: question, ...drawing }, ({ choices }) => choices],
    [
      "/v1/responses",
      { input: question, max_output_tokens: 8, temperature: 0, ignore_eos: true },
      ({ output }) => (output as [{ content: object }])[0].content,
    ],
    ["/v1/messages", { messages, ...drawing }, ({ content }) => content],
    [
      "/api/chat",
      { messages, stream: false, options: { num_predict: 8, temperature: 0 } },
      ({ message }) => message,
    ],
    [
      "/api/generate",
      { prompt: question, stream: false, options: { num_predict: 8, temperature: 0 } },
      ({ response }) => response,
    ],
    ["/v1/embeddings", { input }, ({ data }) => data],
    ["/api/embed", { input }, ({ embeddings }) => embeddings],
    ["/v1/rerank", { query: question, documents }, ({ results }) => results],
    ["/v1/score", { text_1: question, text_2: documents }, ({ data }) => data],
    ["/completion", { prompt: question, n_predict: 8, temperature: 0 }, ({ content }) => content],
  ];

  test.each(routes)("%s", async (path, body, resultOf) => {
    const answers: unknown[] = [];
    for (const model of models) {
      const answer = await ask(path, { ...body, model });
      expect(answer.model).toBe(model);
      answers.push(resultOf(answer));
      expect(resultOf(await ask(path, { ...body, model }))).toEqual(answers.at(-1)!);
    }
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(3);
  });

  test("/embedding of llama-server, whose answer names no model", async () => {
    const answers: string[] = [];
    for (const model of models) {
      const response = await post(server, "/embedding", { content: question, model });
      expect(response.status).toBe(200);
      answers.push(await response.text());
    }
    expect(new Set(answers).size).toBe(3);
  });

  test("routes about text, which accept it and answer as for the model", async () => {
    for (const [path, body] of [
      ["/tokenize", { prompt: question }],
      ["/v1/messages/count_tokens", { messages }],
      ["/v1/chat/completions/input_tokens", { messages }],
      ["/v1/estimate", { messages }],
    ] as const) {
      const { model: _, ...known } = await ask(path, { ...body, model: "sql" });
      expect(Object.keys(known).length).toBeGreaterThan(0);
    }
  });

  test("programs, with all of their calls", async () => {
    const calls = [
      { prompt: question, output: "first", ...drawing },
      { prompt: "And now? {{first}}", output: "second", ...drawing },
    ];
    const values: string[] = [];
    for (const model of models) {
      const { variables } = await ask("/v1/programs", { model, calls });
      values.push(JSON.stringify(variables));
    }
    expect(new Set(values).size).toBe(3);
  });

  test("batches, each of which names one", async () => {
    const client = clientOf(server);
    for (const model of models) {
      const line = { custom_id: model, method: "POST", url: "/v1/chat/completions", body: chat(model) };
      const { id } = await begin(client, [JSON.stringify(line)]);
      await server.jobs!.runner.ended(id);
      const batch = await client.batches.retrieve(id);
      const { response } = JSON.parse(await (await client.files.content(batch.output_file_id!)).text());
      const { body } = response;
      expect([batch.model, body.model, body.choices[0].message.content]).toEqual([
        model,
        model,
        await textOf(chat(model)),
      ]);
    }
  });
});

test("a stream is the whole answer, and names the adapter", async () => {
  const response = await post(server, "/v1/chat/completions", chat("law", { stream: true }));
  const { events } = await readEvents(response);
  expect(contentOf(events)).toBe(await textOf(chat("law")));
  expect(new Set(events.slice(0, -1).map((event) => JSON.parse(event).model))).toEqual(new Set(["law"]));
});

test("lora_path of SGLang chooses too", async () => {
  const sql = await textOf(chat("sql"));
  expect(await textOf(chat("demo", { lora_path: "sql" }))).toBe(sql);
  expect(await textOf(chat("sql", { lora_path: "sql" }))).toBe(sql);
  expect(await textOf(chat("demo", { lora_path: null }))).toBe(await textOf(chat("demo")));
  const refused = async (body: object): Promise<unknown> => {
    const response = await post(server, "/v1/chat/completions", body);
    const { error } = (await response.json()) as { error: { message: string } };
    return [response.status, error.message];
  };
  expect(await refused(chat("demo", { lora_path: "tax" }))).toEqual([
    400,
    'lora_path must be the name of an adapter (sql, law), but "tax" was given',
  ]);
  expect(await refused(chat("law", { lora_path: "sql" }))).toEqual([
    400,
    "model and lora_path name two adapters, law and sql",
  ]);
  expect(await refused(chat("tax"))).toEqual([
    404,
    'the model "tax" does not exist; served here: demo, also/demo, sql, law',
  ]);
});

test("a prompt finds what its own adapter computed, and the account says why the rest is missing", async () => {
  const fresh = chat("sql", { messages: [{ role: "user", content: `${question} Again: ${question}` }] });
  const outcomeOf = async (model: string) => {
    const response = await post(server, "/v1/chat/completions", { ...fresh, model });
    await response.text();
    const { prompts, model: named } = await get(`/v1/requests/${response.headers.get("x-request-id")}/cache`);
    const [{ misses }] = prompts as [{ misses: readonly { reason: string }[] }];
    expect(named).toBe(model);
    return misses.map(({ reason }) => reason);
  };
  await outcomeOf("sql");
  expect(await outcomeOf("sql")).toEqual([]);
  for (const model of ["law", "demo"]) {
    expect(await outcomeOf(model)).toContain("adapter");
    expect(await outcomeOf(model)).toEqual([]);
  }
});

test("lists name the adapters, with their model", async () => {
  const { data } = (await get("/v1/models")) as { data: readonly Body[] };
  expect(data.map(({ id, root, parent }) => [id, root, parent])).toEqual([
    ["demo", "demo", null],
    ["also/demo", "demo", null],
    ["sql", "/adapters/sql", "demo"],
    ["law", "/adapters/law.gguf", "demo"],
  ]);
  expect(await get("/v1/models/law")).toEqual(data[3]!);
  for (const path of ["/api/tags", "/api/ps"]) {
    const { models: listed } = (await get(path)) as {
      models: readonly { name: string; size: number; digest: string; details: { parent_model: string } }[];
    };
    const weights = listed[0]!.size;
    expect(listed.map(({ name, size, details }) => [name, size - weights, details.parent_model])).toEqual([
      ["demo", 0, ""],
      ["also/demo", 0, ""],
      ["sql", 4096, "demo"],
      ["law", 8192, "demo"],
    ]);
    expect(new Set(listed.map(({ digest }) => digest)).size).toBe(4);
  }
  const { details } = (await ask("/api/show", { model: "sql:latest" })) as {
    details: { parent_model: string };
  };
  expect(details.parent_model).toBe("demo");
});

test("Ollama's suffix is allowed", async () => {
  const body = { messages, stream: false, options: { num_predict: 8, temperature: 0 } };
  const { message } = await ask("/api/chat", { ...body, model: "sql" });
  expect(await ask("/api/chat", { ...body, model: "sql:latest" })).toMatchObject({ message });
});

test("records of requests and a metric of vLLM name them", async () => {
  await ask("/v1/chat/completions", chat("law"));
  const { data } = (await get("/v1/requests?limit=1")) as { data: readonly Body[] };
  expect(data.map(({ model }) => model)).toEqual(["law"]);
  const infoOf = async (): Promise<string[]> => {
    const text = await (await fetch(`${server.origin}/metrics`)).text();
    return text.split("\n").filter((line) => line.startsWith("vllm:lora_requests_info{"));
  };
  const idle = 'vllm:lora_requests_info{max_lora="2",running_lora_adapters="",waiting_lora_adapters=""} ';
  const [line = "", ...others] = await infoOf();
  expect([line.slice(0, idle.length), others]).toEqual([idle, []]);
  expect(Math.abs(Number(line.slice(idle.length)) - Date.now() / 1000)).toBeLessThan(10);
  const response = await post(
    server,
    "/v1/chat/completions",
    chat("law", { stream: true, max_tokens: 1900 }),
  );
  expect((await infoOf()).join()).toContain('running_lora_adapters="law",waiting_lora_adapters=""');
  await response.body!.cancel();
});
