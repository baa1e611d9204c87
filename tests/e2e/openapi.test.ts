/** GET /openapi.json: valid, complete, and true of real requests and answers. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Validator } from "@seriousme/openapi-schema-validator";
import Ajv2020 from "ajv/dist/2020.js";
import { startTestServer, type TestServer } from "./server.ts";

interface Schema {
  readonly [keyword: string]: unknown;
}
interface Content {
  readonly content: Readonly<Record<string, { readonly schema: Schema }>>;
}
interface Operation {
  readonly requestBody?: Content;
  readonly responses: Readonly<Record<string, Content>>;
  readonly security?: readonly object[];
}
interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
}

const data = mkdtempSync(join(tmpdir(), "bunting-openapi-"));
let server: TestServer;
let document: Document;

beforeAll(async () => {
  server = await startTestServer({
    data,
    scoreWeights: new Float32Array(24),
    speaksParrot: true,
    answers: ["Yes."],
  });
  document = (await (await fetch(`${server.origin}/openapi.json`)).json()) as Document;
});

afterAll(async () => {
  await server.close();
  rmSync(data, { recursive: true });
});

const ajv = new Ajv2020({ strict: false });
ajv.addFormat("binary", true);

/** The schema, with every object closed: a field that it lacks is then an error. */
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed);
  if (typeof schema !== "object" || schema === null) return schema;
  const inner = Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, closed(value)]));
  return "properties" in schema ? { additionalProperties: false, ...inner } : inner;
}

/** Operation of a path of a request. */
function operationOf(method: string, path: string): Operation {
  const plain = path.replace(/\?.*/, "");
  const fits = (pattern: string): boolean =>
    new RegExp(`^${pattern.replace(/[.]/g, "\\.").replace(/\{\w+\}/g, "[^/]+")}$`).test(plain);
  const exact = document.paths[plain] === undefined ? Object.keys(document.paths).find(fits) : plain;
  const operation = document.paths[exact ?? ""]?.[method.toLowerCase()];
  if (operation === undefined) throw new Error(`nothing describes ${method} ${path}`);
  return operation;
}

function resolved(schema: Schema): Schema {
  const { $ref } = schema;
  return typeof $ref === "string" ? document.components.schemas[$ref.replace(/.*\//, "")]! : schema;
}

/** Sends a request and holds it and its answer to the description. */
async function ask(
  method: string,
  path: string,
  body?: object,
  status = 200,
): Promise<Readonly<Record<string, unknown>>> {
  const operation = operationOf(method, path);
  const form = body instanceof FormData;
  const init = form
    ? { body }
    : { headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(
    `${server.origin}${path}`,
    body === undefined ? { method } : { method, ...init },
  );
  const text = await response.text();
  expect([path, response.status, text]).toEqual([path, status, text]);
  if (body !== undefined && !form && status < 400)
    hold(body, resolved(operation.requestBody!.content["application/json"]!.schema));
  if (status === 204) {
    expect(operation.responses[status]?.content).toEqual({});
    return {};
  }
  const type = response.headers.get("content-type")!.replace(/;.*/, "");
  const described = operation.responses[status] ?? operation.responses.default!;
  const media = described.content[type];
  expect([path, type, media !== undefined]).toEqual([path, type, true]);
  if (type !== "application/json") return {};
  const answer = JSON.parse(text) as Readonly<Record<string, unknown>>;
  hold(answer, resolved(media!.schema));
  return answer;
}

/** Expects a value with no field that its description lacks. */
function hold(value: object, schema: Schema): void {
  const isValid = ajv.compile(closed({ ...schema, components: document.components }) as Schema);
  expect([value, isValid(value), isValid.errors]).toEqual([value, true, null]);
}

const messages = [{ role: "user", content: "Hi" }];
const tool = { name: "weather", description: "Weather", parameters: { type: "object", properties: {} } };

test("the document is valid, is public, and describes each route once", async () => {
  const { valid, errors } = await new Validator().validate({ ...document });
  expect([valid, errors]).toEqual([true, undefined]);
  const ids = Object.values(document.paths).flatMap((operations) =>
    Object.values(operations).map(
      (operation) => (operation as unknown as { operationId: string }).operationId,
    ),
  );
  expect(new Set(ids).size).toBe(ids.length);
  expect(operationOf("GET", "/openapi.json").security).toEqual([]);
  expect(operationOf("GET", "/health").security).toEqual([]);
  expect(operationOf("POST", "/v1/chat/completions").security).toBeUndefined();
});

test("OpenAI's requests and answers are as described", async () => {
  await ask("GET", "/v1/models");
  await ask("GET", "/models/demo");
  const drawn = {
    max_tokens: 3,
    logprobs: true,
    top_logprobs: 2,
    return_token_ids: true,
    timings_per_token: true,
  };
  await ask("POST", "/v1/chat/completions", { messages, ...drawn });
  await ask("POST", "/chat/completions", {
    messages,
    max_completion_tokens: 3,
    n: 2,
    stop: ["x"],
    service_tier: "flex",
  });
  const tools = [{ type: "function", function: tool }];
  await ask("POST", "/v1/chat/completions", { messages, tools, tool_choice: "none", stream: true });
  const either = { type: "or", elements: [{ type: "const_string", value: "Yes." }] };
  const format = { type: "sequence", elements: [either] };
  await ask("POST", "/v1/chat/completions", {
    messages,
    response_format: { type: "structural_tag", format },
  });
  await ask("POST", "/v1/chat/completions", { messages, temperature: 9 }, 400);
  await ask("POST", "/v1/chat/completions/input_tokens", { messages });
  await ask("POST", "/v1/completions", {
    prompt: ["Hi", "Ho"],
    max_tokens: 3,
    logprobs: 1,
    prompt_logprobs: 1,
  });
  await ask("POST", "/v1/completions", {
    prompt: [1, 2],
    max_tokens: 3,
    echo: true,
    logprobs: 1,
    return_token_ids: true,
  });
  await ask("POST", "/v1/estimate", { messages, max_tokens: 3 });
  await ask("POST", "/v1/embeddings", { input: ["Hi", "Ho"], dimensions: 2 });
  await ask("POST", "/v1/embeddings", { input: [[1, 2]], encoding_format: "base64" });
  await ask("POST", "/v1/rerank", { query: "Hi", documents: ["a", { text: "b" }], top_n: 1 });
  await ask("POST", "/v1/score", { text_1: "Hi", text_2: ["a", "b"] });
  await ask("POST", "/tokenize", { prompt: "Hi", return_token_strs: true });
  await ask("POST", "/tokenize", { messages });
  await ask("POST", "/tokenize", { content: "Hi", with_pieces: true });
  await ask("POST", "/detokenize", { tokens: [1, 2] });
  await ask("POST", "/apply-template", { messages });
});

test("Responses are as described", async () => {
  const asked = {
    input: "Hi",
    max_output_tokens: 3,
    include: ["message.output_text.logprobs"],
    metadata: { a: "b" },
  };
  const { id } = await ask("POST", "/v1/responses", asked);
  const next = {
    previous_response_id: id,
    input: [{ role: "user", content: [{ type: "input_text", text: "Ho" }] }],
  };
  await ask("POST", "/v1/responses", {
    ...next,
    tools: [{ type: "function", ...tool }],
    text: { verbosity: "low" },
  });
  await ask("POST", "/v1/responses", { ...next, stream: true });
  await ask("GET", `/v1/responses/${id}`);
  await ask("GET", `/v1/responses/${id}/input_items?order=asc`);
  await ask("POST", "/v1/responses/input_tokens", { input: "Hi" });
  await ask("POST", `/v1/responses/${id}/cancel`, undefined, 400);
  await ask("DELETE", `/v1/responses/${id}`);
  await ask("GET", `/v1/responses/${id}`, undefined, 404);
});

test("files and batches are as described", async () => {
  const line = {
    custom_id: "a",
    method: "POST",
    url: "/v1/chat/completions",
    body: { messages, max_tokens: 3 },
  };
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new Blob([`${JSON.stringify(line)}\n`]), "in.jsonl");
  const { id } = await ask("POST", "/v1/files", form);
  await ask("GET", "/v1/files?purpose=batch&limit=2");
  await ask("GET", `/v1/files/${id}`);
  await ask("GET", `/v1/files/${id}/content`);
  const asked = {
    input_file_id: id,
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
    metadata: { a: "b" },
  };
  const batch = await ask("POST", "/v1/batches", asked);
  await ask("GET", "/v1/batches");
  await ask("GET", `/v1/batches/${batch.id}`);
  await ask("POST", `/v1/batches/${batch.id}/cancel`);
  await ask("POST", "/v1/batches", { ...asked, endpoint: "/v1/none" }, 400);
});

test("Anthropic's, Ollama's and llama-server's requests and answers are as described", async () => {
  const { parameters: input_schema, ...named } = tool;
  await ask("POST", "/v1/messages", {
    messages,
    max_tokens: 3,
    system: "Be brief.",
    tools: [{ ...named, input_schema }],
  });
  await ask("POST", "/v1/messages", { messages, max_tokens: 3, stop_sequences: ["x"], stream: true });
  await ask("POST", "/v1/messages", { messages }, 400);
  await ask("POST", "/v1/messages/count_tokens", { messages });
  for (const path of ["version", "tags", "ps"]) await ask("GET", `/api/${path}`);
  await ask("POST", "/api/show", { model: "demo" });
  await ask("POST", "/api/pull", { model: "demo", stream: false });
  await ask("POST", "/api/copy", {}, 501);
  const asked = { model: "demo", stream: false, options: { num_predict: 3, temperature: 0 } };
  await ask("POST", "/api/chat", { ...asked, messages, logprobs: true, top_logprobs: 2 });
  await ask("POST", "/api/chat", { model: "demo", messages });
  await ask("POST", "/api/generate", { ...asked, prompt: "Hi", keep_alive: "5m" });
  await ask("POST", "/api/generate", { model: "demo", stream: false });
  await ask("POST", "/api/embed", { model: "demo", input: ["Hi"] });
  await ask("POST", "/api/embeddings", { model: "demo", prompt: "Hi" });
  for (const path of ["props", "slots"]) await ask("GET", `/${path}`);
  await ask("POST", "/embedding", { content: "Hi" });
  await ask("POST", "/completion", { prompt: "Hi", n_predict: 3, n_probs: 2, return_tokens: true });
  await ask("POST", "/completion", { prompt: ["Hi", "Ho"], n_predict: 3, response_fields: ["content"] });
});

test("Parrot's requests and answers are as described", async () => {
  const { session_id } = await ask("POST", "/v1/session", { api_key: "key" });
  await ask("GET", `/v1/session/${session_id}`);
  const { var_id: text } = await ask("POST", "/v1/semantic_var", { session_id, var_name: "text" });
  const sampling_config = { temperature: 0, max_gen_length: 3, stop_str: null, n: 1 };
  const called = await ask("POST", "/v1/semantic_call", {
    session_id,
    template: "{{text}} {{word}} Summary: {{out}}",
    parameters: [
      { name: "text", is_output: false, var_id: text },
      { name: "word", is_output: false, value: "Hi" },
      { name: "out", is_output: true, sampling_config },
    ],
    output_criteria: "LATENCY",
  });
  const [, , { var_id: out }] = called.param_info as readonly [object, object, { readonly var_id: string }];
  await ask("POST", `/v1/semantic_var/${text}`, { content: "Ho" });
  await ask("GET", `/v1/semantic_var/${out}?criteria=throughput`);
  const placeholders = [
    { name: "task", in_out: "in", semantic_var_id: "task", transforms: ["strip", { truncate: 2 }] },
    { name: "code", in_out: true, transforms: "strip", sampling_config },
  ];
  const prompt = "Write {{task}}: {{code}}";
  await ask("POST", "/v1/submit", { session_id: `${session_id}`, prompt, placeholders });
  await ask("POST", "/v1/set", { session_id, semantic_var_id: "task", content: "a game" });
  await ask("POST", "/v1/get", { session_id, semantic_var_id: "code", criteria: "latency" });
  const wrong = { name: "code", in_out: true, sampling_config: { max_gen_length: "3" } };
  const refused = await ask("POST", "/v1/submit", { session_id, prompt, placeholders: [wrong] }, 500);
  expect(refused.error).toStartWith("placeholders[0].sampling_config.max_gen_length must be an integer");
  await ask("POST", "/v1/py_native_call", undefined, 500);
  await ask("DELETE", `/v1/session/${session_id}`);
});

test("programs, records and the server's state are as described", async () => {
  const asked = { variables: { q: "Hi" }, calls: [{ prompt: "{{q}}", output: "a", max_tokens: 3 }] };
  await ask("POST", "/v1/programs", { ...asked, explain: true });
  await ask("POST", "/v1/programs", { ...asked, stream: true });
  const said = { calls: [{ prompt: "{{part}}", output: "b", max_tokens: 3 }], result: "b" };
  const chosen = { choose: "part", cases: [{ equals: "Hi", ...said }], otherwise: said, output: "c" };
  const nested = {
    variables: { q: ["Hi"] },
    calls: [{ map: "q", item: "part", calls: [chosen], result: "c", output: "a" }],
  };
  await ask("POST", "/v1/programs", nested);
  const { id } = await ask("POST", "/v1/sessions", asked, 201);
  await ask("POST", `/v1/sessions/${id}/calls`, { prompt: "So {{a}}", output: "b", max_tokens: 3 });
  await ask("PUT", `/v1/sessions/${id}/variables/c`, { value: ["x"] });
  await ask("GET", `/v1/sessions/${id}/variables/b?timeout=30`);
  await ask("GET", `/v1/sessions/${id}/graph`);
  const failing = { prompt: "{{b}}", outputs: { d: { transforms: [{ enum: ["no"] }] } }, max_tokens: 3 };
  await ask("POST", `/v1/sessions/${id}/calls`, { variables: { later: null }, calls: [failing] });
  await ask("GET", `/v1/sessions/${id}/variables/d?timeout=30`, undefined, 424);
  await ask("GET", `/v1/sessions/${id}/variables/later?timeout=0`, undefined, 202);
  await ask("GET", "/v1/programs");
  await ask("DELETE", `/v1/sessions/${id}/variables/c`);
  await ask("DELETE", `/v1/sessions/${id}`);
  for (const path of [
    "/health",
    "/health/ready",
    "/ping",
    "/version",
    "/state",
    "/v1/usage?days=2",
    "/metrics",
    "/",
  ])
    await ask("GET", path);
  const requests = await ask("GET", "/v1/requests?slow=0&limit=3&sort=duration");
  const [first] = requests.data as readonly { readonly id: string }[];
  await ask("GET", `/v1/requests/${first!.id}`);
  await ask("GET", `/v1/requests/${first!.id}/cache`);
  await ask("GET", "/v1/requests?sort=none", undefined, 400);
  await ask("DELETE", "/v1/stream?conv_id=none", undefined, 204);
  await ask("GET", "/v1/stream?conv_id=none", undefined, 404);
});
