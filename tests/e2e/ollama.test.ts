/** Ollama's API on the wire: details that its own client (tests/suites/clients) does not check. */
import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FakeHub } from "../support/fake-hub.ts";
import { demoFolder, post, startTestServer, type TestServer } from "./server.ts";

const template = readFileSync(join(import.meta.dir, "../reference/tools/template.jinja"), "utf8");
const call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>';
/** Answers by seed. */
const answers = ["Just text, one two three.", `Look.\n${call}\n${call}`];
const tools = [{ type: "function", function: { name: "get_weather", parameters: { type: "object" } } }];

let server: TestServer;
beforeAll(() => {
  server = startTestServer({ template, answers });
});
afterEach(() => server.settled());
afterAll(() => server.close());

const messages = [{ role: "user", content: "Weather?" }];
const asking = (seed: number, more: object = {}) => ({ model: "demo", messages, options: { seed }, ...more });

interface Line {
  readonly message: { readonly content: string; readonly tool_calls?: readonly object[] };
  readonly response: string;
  readonly done: boolean;
  readonly logprobs?: readonly { readonly token: string }[];
}

async function linesOf(path: string, body: object): Promise<Line[]> {
  const response = await post(server, path, body);
  expect([response.status, response.headers.get("content-type")]).toEqual([200, "application/x-ndjson"]);
  const text = await response.text();
  expect(text).toEndWith("\n");
  return text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Line);
}

async function bodyOf(path: string, body: object): Promise<Line> {
  const response = await post(server, path, { ...body, stream: false });
  expect(response.status).toBe(200);
  return (await response.json()) as Line;
}

test("a stream is a line for each piece, of which only the last is done", async () => {
  const lines = await linesOf("/api/chat", asking(0));
  expect(lines.map(({ done }) => done)).toEqual(lines.map((_, index) => index === lines.length - 1));
  const whole = await bodyOf("/api/chat", asking(0));
  expect(lines.map(({ message }) => message.content).join("")).toBe(answers[0]!);
  const generated = await linesOf("/api/generate", {
    model: "demo",
    prompt: "Weather?",
    options: { seed: 0 },
  });
  expect(generated.map(({ response }) => response).join("")).toBe(answers[0]!);
  expect<unknown>(whole).toEqual({
    model: "demo",
    created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    message: { role: "assistant", content: answers[0] },
    done: true,
    done_reason: "stop",
    total_duration: expect.any(Number),
    load_duration: 0,
    prompt_eval_count: expect.any(Number),
    prompt_eval_duration: expect.any(Number),
    eval_count: expect.any(Number),
    eval_duration: expect.any(Number),
  });
});

test("calls come whole, in a stream as in a body", async () => {
  const told = [0, 1].map((index) => ({
    function: { index, name: "get_weather", arguments: { city: "Rome" } },
  }));
  const whole = await bodyOf("/api/chat", asking(1, { tools }));
  expect(whole.message).toEqual({ role: "assistant", content: "Look.", tool_calls: told } as never);
  const lines = await linesOf("/api/chat", asking(1, { tools }));
  const streamed = lines.flatMap(({ message }) => message.tool_calls ?? []);
  expect(streamed.map((one) => (one as (typeof told)[0]).function.arguments)).toEqual([
    { city: "Rome" },
    { city: "Rome" },
  ]);
});

test("log probabilities are told where they are asked for", async () => {
  const { message, logprobs } = await bodyOf("/api/chat", asking(0, { logprobs: true }));
  expect(logprobs!.map(({ token }) => token).join("")).toBe(message.content);
});

test("what changes nothing is named, and what cannot be done refused by its name", async () => {
  const options = { seed: 0, num_ctx: 4096, num_gpu: 1, repeat_penalty: 1.1, stop: ["two"] };
  const response = await post(server, "/api/chat", asking(0, { options, keep_alive: "5m", stream: false }));
  expect(response.headers.get("x-bunting-ignored")).toBe("keep_alive, options.num_ctx, options.num_gpu");
  expect(((await response.json()) as Line).message.content).toBe("Just text, one ");
  const refused: [string, object, number, string][] = [
    ["/api/chat", asking(0, { options: { mirostat: 1 } }), 400, "options.mirostat"],
    ["/api/chat", asking(0, { options: { num_predict: 0 } }), 400, "options.num_predict"],
    ["/api/chat", asking(0, { options: { temperature: -1 } }), 400, "options.temperature"],
    ["/api/chat", asking(0, { format: "xml" }), 400, "format"],
    ["/api/chat", asking(0, { think: "much" }), 400, "think"],
    ["/api/chat", asking(0, { messages: [{ role: "narrator", content: "x" }] }), 400, "messages[0].role"],
    ["/api/generate", { model: "demo", prompt: "x", suffix: "y" }, 400, "suffix"],
    ["/api/generate", { model: "demo", prompt: "x", images: ["aGk="] }, 400, "images"],
    ["/api/generate", { model: "other", prompt: "x" }, 404, '"other"'],
    ["/api/show", {}, 400, "model"],
    ["/api/pull", { model: "other" }, 404, "Served here: demo"],
    ["/api/blobs/sha256:00", {}, 501, "models are not made"],
    ["/api/create", { model: "mine", from: "demo" }, 501, "models are not made"],
    [
      "/api/chat",
      asking(0, { messages: [{ role: "user", content: "word ".repeat(2100) }] }),
      400,
      "maximum context length",
    ],
  ];
  for (const [path, body, status, word] of refused) {
    const refusal = await post(server, path, body);
    const { error } = (await refusal.json()) as { readonly error: string };
    expect([refusal.status, error.includes(word), word]).toEqual([status, true, word]);
  }
});

test("a model that is served need not be pulled", async () => {
  const pulled = await post(server, "/api/pull", { model: "demo:latest" });
  expect(await pulled.json()).toEqual({ status: "success" });
});

test("another model is pulled to the cache, with lines as Ollama writes them", async () => {
  const hub = new FakeHub();
  const names = ["config.json", "tokenizer.json", "model.safetensors"];
  const files = names.map((name) => [name, readFileSync(join(demoFolder, name))] as const);
  hub.commit("Tiny/Demo", Object.fromEntries(files));
  const cache = mkdtempSync(join(tmpdir(), "bunting-pull-"));
  const before = { HF_ENDPOINT: process.env.HF_ENDPOINT, HF_HUB_CACHE: process.env.HF_HUB_CACHE };
  Object.assign(process.env, { HF_ENDPOINT: hub.endpoint, HF_HUB_CACHE: cache });
  try {
    const lines: unknown[] = await linesOf("/api/pull", { model: "Tiny/Demo" });
    const hash = createHash("sha256").update(files[2]![1]).digest("hex");
    const total = files[2]![1].length;
    const end = ["verifying sha256 digest", "writing manifest", "success"].map((status) => ({ status }));
    expect(lines[0]).toEqual({ status: "pulling manifest" });
    expect(lines.slice(-4)).toEqual([
      { status: `pulling ${hash.slice(0, 12)}`, digest: `sha256:${hash}`, total, completed: total },
      ...end,
    ]);
    expect(await bodyOf("/api/pull", { model: "Tiny/Demo" })).toEqual({ status: "success" } as never);
    const failed: unknown[] = await linesOf("/api/pull", { model: "Tiny/Other" });
    expect(failed.at(-1)).toEqual({ error: expect.stringContaining("does not exist") });
    const refusal = await post(server, "/api/pull", { model: "Tiny/Other", stream: false });
    expect([refusal.status, await refusal.json()]).toEqual([502, failed.at(-1)]);
  } finally {
    for (const [name, value] of Object.entries(before)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    await hub.stop();
    rmSync(cache, { recursive: true });
  }
});

test("with keys, only an operator's key pulls", async () => {
  const keyed = startTestServer({ keys: { keys: ["one"], adminKeys: ["two"] } });
  const asked = (key: string, model: string) =>
    post(keyed, "/api/pull", { model, stream: false }, { headers: { authorization: `Bearer ${key}` } });
  const refused = await asked("one", "Tiny/Demo");
  expect([refused.status, ((await refused.json()) as { error: string }).error]).toEqual([
    403,
    expect.stringContaining("--admin-key"),
  ]);
  expect((await asked("one", "demo")).status).toBe(200);
  expect((await asked("two", "nothing")).status).toBe(404);
  await keyed.close();
});

test("the version and the models are told", async () => {
  const get = async (path: string) =>
    (await (await fetch(server.origin + path)).json()) as Record<string, never>;
  expect(await get("/api/version")).toEqual({ version: "0.12.11" } as never);
  const details = {
    parent_model: "",
    format: "safetensors",
    family: expect.any(String),
    families: [expect.any(String)],
    parameter_size: expect.stringMatching(/^[\d.]+[KMB]$/),
    quantization_level: "BF16",
  };
  const entry = { size: expect.any(Number), digest: expect.stringMatching(/^[0-9a-f]{64}$/), details };
  const { models } = await get("/api/tags");
  expect<unknown>(models).toEqual(
    ["demo", "also/demo"].map((name) => ({ ...entry, name, model: name, modified_at: expect.any(String) })),
  );
});

test("a body is taken as curl -d sends it; other formats want its type", async () => {
  const body = { model: "demo", messages: [{ role: "user", content: "Hi" }], stream: false };
  const headers = { "content-type": "application/x-www-form-urlencoded" };
  expect((await post(server, "/api/chat", body, { headers })).status).toBe(200);
  expect((await post(server, "/v1/chat/completions", body, { headers })).status).toBe(415);
});
