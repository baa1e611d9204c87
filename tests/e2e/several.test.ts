/** Several models in one server: requests reach the model that they name, within memory for one. */

import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { type Config, makeConfig } from "../../server/config.ts";
import type { RunningServer } from "../../server/running-server.ts";
import { startServer } from "../../server/start.ts";
import { writeAdapter } from "../support/adapter-folder.ts";
import { writeEmbeddingModel } from "../support/embedding-model.ts";
import { demoFolder, readEvents } from "./server.ts";

setDefaultTimeout(60_000); // each load starts a thread

const scratch = mkdtempSync(join(tmpdir(), "bunting-several-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/** Size of the demo model's weights, which simulated engines plan with. */
const DEMO_BYTES = 11_549_832;

async function start(settings: Partial<Config>): Promise<RunningServer> {
  const config = makeConfig({ device: { kind: "simulated", engines: 1 }, port: 0, ...settings });
  return await startServer(config, null, { onPlan: () => {}, onProgress: () => {} });
}

const two = [`first=${demoFolder}`, `second=${demoFolder}`];

async function get(server: RunningServer, path: string): Promise<Record<string, unknown>> {
  return (await (await fetch(server.url + path)).json()) as Record<string, unknown>;
}

function ask(server: RunningServer, path: string, body: object): Promise<Response> {
  return fetch(server.url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

/** Names of the loaded models. */
async function loadedIn(server: RunningServer): Promise<string[]> {
  const { models } = (await get(server, "/api/ps")) as {
    readonly models: readonly { readonly name: string }[];
  };
  return models.map(({ name }) => name);
}

const chat = (model: string, more: object = {}) => ({
  model,
  messages: [{ role: "user", content: "hi" }],
  max_tokens: 4,
  ...more,
});

describe("memory for one of two models", () => {
  let server: RunningServer;
  beforeAll(async () => {
    server = await start({ model: two, memory: DEMO_BYTES });
  });
  afterAll(() => server.drain(0));

  test("nothing is loaded until a request names it, and then only that model", async () => {
    expect(await loadedIn(server)).toEqual([]);
    expect((await ask(server, "/v1/chat/completions", chat("second"))).status).toBe(200);
    expect(await loadedIn(server)).toEqual(["second"]);
    expect((await ask(server, "/v1/chat/completions", chat("first"))).status).toBe(200);
    expect(await loadedIn(server)).toEqual(["first"]);
  });

  test("requests that alternate are all answered, each by its own model", async () => {
    const answers: unknown[] = [];
    for (let at = 0; at < 6; at++) {
      const model = at % 2 === 0 ? "first" : "second";
      const answer = (await (await ask(server, "/v1/chat/completions", chat(model))).json()) as {
        model: string;
      };
      answers.push(answer.model);
      expect(await loadedIn(server)).toEqual([model]);
    }
    expect(answers).toEqual(Array.from({ length: 3 }, () => ["first", "second"]).flat());
  });

  test("a model that was loaded again says that its cached prompts were lost", async () => {
    const said = async (model: string): Promise<[string | null, unknown]> => {
      const response = await ask(server, "/v1/chat/completions", chat(model));
      const id = response.headers.get("x-request-id");
      const { prompts } = await get(server, `/v1/requests/${id}/cache`);
      const [{ ended }] = prompts as [{ readonly ended: string }];
      return [response.headers.get("x-bunting-cache")!.replace(/.*ended=/, ""), ended];
    };
    await said("first");
    expect(await said("first")).toEqual(["whole", "whole"]);
    await said("second");
    expect(await said("first")).toEqual(["lost@0", "lost@0"]);
  });

  test("requests for both at once are all answered, on every wire format", async () => {
    const input = { input: "hi", max_output_tokens: 16 };
    const each = ["first", "second"].flatMap((model) => [
      ask(server, "/v1/chat/completions", chat(model)),
      ask(server, "/v1/completions", { model, prompt: "hi", max_tokens: 4 }),
      ask(server, "/v1/messages", chat(model)),
      ask(server, "/v1/responses", { model, ...input }),
      ask(server, "/v1/responses", { model, ...input, stream: true }),
      ask(server, "/api/chat", {
        model,
        messages: [{ role: "user", content: "hi" }],
        options: { num_predict: 4 },
      }),
      ask(server, "/v1/embeddings", { model, input: "hi" }),
      ask(server, "/tokenize", { model, prompt: "hi" }),
      ask(server, "/completion", { model, prompt: "hi", n_predict: 4 }),
    ]);
    const answers = await Promise.all(each);
    const texts = await Promise.all(answers.map((answer) => answer.text()));
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    expect(texts.filter((text) => text.includes('"error":{'))).toEqual([]);
  });

  test("a model answers to the end before it goes", async () => {
    const stream = await ask(
      server,
      "/v1/chat/completions",
      chat("first", { stream: true, max_tokens: 400 }),
    );
    const other = ask(server, "/v1/chat/completions", chat("second"));
    const { events } = await readEvents(stream);
    expect(events.at(-1)).toBe("[DONE]");
    expect((await other).status).toBe(200);
    expect(await loadedIn(server)).toEqual(["second"]);
  });

  test("a session keeps its model, and goes on where it was opened", async () => {
    const opened = (await (await ask(server, "/v1/sessions", { model: "first" })).json()) as { id: string };
    const set = await fetch(`${server.url}/v1/sessions/${opened.id}/variables/x`, {
      method: "PUT",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ value: "kept" }),
    });
    expect(set.status).toBe(200);
    const waits = ask(server, "/v1/chat/completions", chat("second"));
    const read = await get(server, `/v1/sessions/${opened.id}/variables/x?timeout=0`);
    expect(read.value).toBe("kept");
    await fetch(`${server.url}/v1/sessions/${opened.id}`, { method: "DELETE" });
    expect((await waits).status).toBe(200);
  });

  test("the OpenAI client lists both models and talks to each", async () => {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
    const listed = await Array.fromAsync(client.models.list());
    expect(listed.map(({ id }) => id)).toEqual(["first", "second"]);
    for (const { id } of listed) {
      const answer = await client.chat.completions.create({
        model: id,
        messages: [{ role: "user", content: "hi" }],
        max_tokens: 4,
      });
      expect(answer.model).toBe(id);
    }
  });

  test("metrics carry the model's name, and each metric is described once", async () => {
    await ask(server, "/v1/chat/completions", chat("first"));
    await ask(server, "/v1/chat/completions", chat("second"));
    const text = await (await fetch(`${server.url}/metrics`)).text();
    const headings = text.match(/^# TYPE .*$/gm)!;
    expect(new Set(headings).size).toBe(headings.length);
    for (const name of ["first", "second"]) {
      expect(text).toContain(`vllm:request_success_total{model_name="${name}"`);
      expect(text).toMatch(new RegExp(`bunting_placements_total\\{[^}]*model_name="${name}"`));
    }
  });

  test("lists tell the truth of every model, loaded or not", async () => {
    await ask(server, "/v1/chat/completions", chat("second"));
    const { data } = (await get(server, "/v1/models")) as { data: { id: string; status: object }[] };
    expect(data.map(({ id, status }) => [id, status])).toEqual([
      ["first", { value: "unloaded" }],
      ["second", { value: "loaded" }],
    ]);
    expect((await get(server, "/v1/models/first")).id).toBe("first");
    const { models: tags } = (await get(server, "/api/tags")) as { models: { name: string; size: number }[] };
    expect(tags.map(({ name, size }) => [name, size])).toEqual([
      ["first", DEMO_BYTES],
      ["second", DEMO_BYTES],
    ]);
    const shown = (await (await ask(server, "/api/show", { model: "first:latest" })).json()) as {
      model_info: Record<string, unknown>;
    };
    expect(shown.model_info["general.basename"]).toBe("first:latest");
    expect(await loadedIn(server)).toEqual(["second"]);
  });

  test("every route is described", async () => {
    const { paths } = (await get(server, "/openapi.json")) as { readonly paths: object };
    expect(Object.keys(paths)).toContain("/v1/chat/completions");
  });

  test("an unknown name is refused with the names that there are", async () => {
    const answer = await ask(server, "/v1/chat/completions", chat("third"));
    expect(answer.status).toBe(404);
    expect(((await answer.json()) as { error: { message: string } }).error.message).toBe(
      'the model "third" does not exist; served here: first, second',
    );
    // Ollama's clients look for its own words.
    const asked = await ask(server, "/api/chat", chat("third"));
    expect([asked.status, await asked.json()]).toEqual([
      404,
      { error: 'model "third" not found; served here: first, second' },
    ]);
  });

  test("an answer of Ollama's tells the time of its load", async () => {
    const body = { prompt: "hi", stream: false, options: { num_predict: 2 } };
    const timesOf = async (path: string, more: object) =>
      (await (await ask(server, path, { ...body, ...more })).json()) as Record<string, number>;
    await timesOf("/api/generate", { model: "first" });
    const swapped = await timesOf("/api/generate", { model: "second" });
    expect(swapped.load_duration).toBeGreaterThan(0);
    expect(swapped.total_duration).toBeGreaterThan(swapped.load_duration!);
    expect((await timesOf("/api/generate", { model: "second" })).load_duration).toBe(0);
    const embedded = await timesOf("/api/embed", { model: "first", input: "hi", keep_alive: "1h" });
    expect(embedded.load_duration).toBeGreaterThan(0);
    expect(embedded.total_duration).toBeGreaterThan(embedded.load_duration!);
  });
});

test("a model that writes no text refuses chats before it takes the place of another", async () => {
  const model = [`chat=${demoFolder}`, `embed=${writeEmbeddingModel(join(scratch, "embed"))}`];
  const server = await start({ model, memory: DEMO_BYTES });
  await (await ask(server, "/v1/chat/completions", chat("chat"))).text();
  const refusals = [
    ask(server, "/v1/chat/completions", chat("embed", { stream: true })),
    ask(server, "/v1/completions", { model: "embed", prompt: "hi" }),
    ask(server, "/v1/messages", chat("embed")),
    ask(server, "/v1/responses", { model: "embed", input: "hi" }),
    ask(server, "/api/chat", chat("embed")),
    ask(server, "/api/generate", { model: "embed", prompt: "hi" }),
    ask(server, "/completion", { model: "embed", prompt: "hi" }),
  ];
  for (const answer of await Promise.all(refusals))
    expect([answer.status, await answer.text()]).toEqual([400, expect.stringContaining("writes no text")]);
  expect(await loadedIn(server)).toEqual(["chat"]);
  const embedded = await ask(server, "/api/embed", { model: "embed", input: "hi", keep_alive: "5m" });
  expect([embedded.status, embedded.headers.get("x-bunting-ignored")]).toEqual([200, null]);
  expect(await loadedIn(server)).toEqual(["embed"]);
  await server.drain(0);
});

describe("keep_alive", () => {
  test("0 drops the model after the answer; without a prompt it drops it at once, and loads none", async () => {
    const server = await start({ model: two });
    const unload = await ask(server, "/api/generate", { model: "first", keep_alive: 0 });
    expect(((await unload.json()) as { done_reason: string }).done_reason).toBe("unload");
    expect(await loadedIn(server)).toEqual([]);

    const options = { num_predict: 2 };
    const kept = await ask(server, "/api/generate", { model: "first", prompt: "hi", stream: false, options });
    await kept.text();
    const gone = { model: "second", prompt: "hi", stream: false, options, keep_alive: "0s" };
    const answer = await ask(server, "/api/generate", gone);
    await answer.text();
    expect(answer.headers.get("x-bunting-ignored")).toBe(null);
    while ((await loadedIn(server)).includes("second"));
    expect(await loadedIn(server)).toEqual(["first"]);
    await server.drain(0);
  });

  test("a time is told by /api/ps, and a value that is none is refused", async () => {
    const server = await start({ model: two });
    await (await ask(server, "/api/generate", { model: "first", prompt: "", keep_alive: "1h" })).text();
    const expiries = async () =>
      ((await get(server, "/api/ps")) as { models: { expires_at: string }[] }).models.map(({ expires_at }) =>
        Date.parse(expires_at),
      );
    const minutesLeft = async () => Math.round(((await expiries())[0]! - Date.now()) / 60_000);
    expect(await minutesLeft()).toBe(60);
    const opened = (await (await ask(server, "/v1/sessions", { model: "first" })).json()) as { id: string };
    expect(await minutesLeft()).toBe(60); // in use: its time begins at the end
    await fetch(`${server.url}/v1/sessions/${opened.id}`, { method: "DELETE" });
    await (await ask(server, "/api/generate", { model: "second", prompt: "", keep_alive: -1 })).text();
    // A date that clients can convert to every time zone.
    expect(new Date((await expiries())[1]!).getUTCFullYear()).toBe(new Date().getUTCFullYear() + 292);
    const wrong = await ask(server, "/api/generate", { model: "first", prompt: "hi", keep_alive: "soon" });
    expect(wrong.status).toBe(400);
    expect(((await wrong.json()) as { error: string }).error).toContain('"soon" was given');
    await server.drain(0);
  });
});

describe("a model that cannot be loaded", () => {
  test("is refused with the reason, and leaves the others as they are", async () => {
    const copy = join(scratch, "copy");
    mkdirSync(copy);
    for (const name of readdirSync(demoFolder)) {
      if (name !== "train") symlinkSync(join(demoFolder, name), join(copy, name));
    }
    const server = await start({ model: [`good=${demoFolder}`, `bad=${copy}`], memory: DEMO_BYTES });
    await (await ask(server, "/v1/chat/completions", chat("good"))).text();
    rmSync(join(copy, "model.safetensors"));
    writeFileSync(join(copy, "model.safetensors"), "");
    truncateSync(join(copy, "model.safetensors"), 4);
    const answer = await ask(server, "/v1/chat/completions", chat("bad"));
    expect(answer.status).toBe(503);
    expect(answer.headers.get("retry-after")).toBe("30");
    expect(((await answer.json()) as { error: { message: string } }).error.message).toStartWith(
      "the model bad cannot be loaded: ",
    );
    expect(await loadedIn(server)).toEqual(["good"]);
    expect((await ask(server, "/v1/chat/completions", chat("good"))).status).toBe(200);
    await server.drain(0);
  });
});

test("a request that gets no turn in time is refused with limit, values and a time", async () => {
  const server = await start({ model: two, memory: DEMO_BYTES, modelWaitS: 2 });
  const opened = (await (await ask(server, "/v1/sessions", { model: "first" })).json()) as { id: string };
  const answer = await ask(server, "/v1/chat/completions", chat("second"));
  expect(answer.status).toBe(503);
  expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0);
  expect(((await answer.json()) as { error: { message: string } }).error.message).toBe(
    "the model second takes 11.0 MiB and was not loaded within the 2 s of --model-wait-s; of the 11.0 MiB of --memory 11.0 MiB are taken by first",
  );
  await fetch(`${server.url}/v1/sessions/${opened.id}`, { method: "DELETE" });
  await server.drain(0);
});

test("a conversation goes on with another model", async () => {
  const server = await start({ model: two, memory: DEMO_BYTES });
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
  const { id: conversation } = await client.conversations.create();
  for (const model of ["first", "second"]) {
    const asked = { model, input: "Hi", conversation, max_output_tokens: 4 };
    expect(await client.responses.create(asked)).toMatchObject({ model, conversation: { id: conversation } });
  }
  expect((await client.conversations.items.list(conversation)).data.length).toBe(4);
  const cut = client.responses.compact({ model: "second", input: "Hi", max_output_tokens: 1 } as never);
  expect(String(await cut.catch((error: Error) => error))).toContain("did not end within 1 tokens");
  await server.drain(0);
});

test("two batches that name a model each are answered beside each other", async () => {
  const server = await start({ model: two, memory: DEMO_BYTES, data: { folder: join(scratch, "data") } });
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
  const results = ["first", "second"].map(async (model) => {
    const lines = ["0", "1"].map((custom_id) =>
      JSON.stringify({ custom_id, method: "POST", url: "/v1/chat/completions", body: chat(model) }),
    );
    const input = await client.files.create({
      purpose: "batch",
      file: new File([lines.join("\n")], "in.jsonl"),
    });
    const made = await client.batches.create({
      input_file_id: input.id,
      endpoint: "/v1/chat/completions",
      completion_window: "24h",
    });
    let batch = made;
    while (batch.status !== "completed" && batch.status !== "failed")
      batch = await client.batches.retrieve(made.id);
    const text = await (await client.files.content(batch.output_file_id!)).text();
    return text
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line).response.body.model as string);
  });
  const anthropic = new Anthropic({ baseURL: server.url, apiKey: "none" });
  const params = { model: "second", max_tokens: 4, messages: [{ role: "user" as const, content: "Hi" }] };
  const { id } = await anthropic.messages.batches.create({ requests: [{ custom_id: "0", params }] });
  while ((await anthropic.messages.batches.retrieve(id)).processing_status !== "ended");
  const messages = await Array.fromAsync(await anthropic.messages.batches.results(id));
  expect(messages).toMatchObject([{ result: { type: "succeeded", message: { model: "second" } } }]);
  expect(await Promise.all(results)).toEqual([
    ["first", "first"],
    ["second", "second"],
  ]);
  await server.drain(0);
});

describe("starting", () => {
  test("a folder of models and a file with settings of each", async () => {
    const models = join(scratch, "models");
    mkdirSync(models);
    symlinkSync(demoFolder, join(models, "in-folder"));
    writeFileSync(join(models, "README.md"), "no model");
    const file = join(scratch, "bunting.toml");
    writeFileSync(
      file,
      `[model.short]
path = ${JSON.stringify(demoFolder)}
max-model-len = 512
pin = true
sampling = { temperature = 0.5 }
`,
    );
    const server = await start({ models, config: file });
    expect(await loadedIn(server)).toEqual(["short"]);
    const { data } = (await get(server, "/v1/models")) as { data: { id: string; max_model_len: number }[] };
    expect(data.map(({ id, max_model_len }) => [id, max_model_len])).toEqual([
      ["short", 512],
      ["in-folder", 2048],
    ]);
    const props = (await get(server, "/props?model=short")) as {
      default_generation_settings: { params: { temperature: number } };
    };
    expect(props.default_generation_settings.params.temperature).toBe(0.5);
    await server.drain(0);
  });

  test("adapters belong to the model of their table, which their names load", async () => {
    writeAdapter(demoFolder, join(scratch, "sql"), { seed: 1, rank: 4, alpha: 8 });
    const file = join(scratch, "adapters.toml");
    const table = (name: string): string => `[model.${name}]\npath = ${JSON.stringify(demoFolder)}\n`;
    writeFileSync(file, `${table("plain")}${table("base")}lora = ["sql=./sql"]\n`);
    const server = await start({ config: file, memory: DEMO_BYTES });
    const nameOf = async (model: string) =>
      ((await (await ask(server, "/v1/chat/completions", chat(model))).json()) as { model: string }).model;
    expect([await nameOf("plain"), await loadedIn(server)]).toEqual(["plain", ["plain"]]);
    expect([await nameOf("sql"), await loadedIn(server)]).toEqual(["sql", ["base", "sql"]]);
    const { data } = (await get(server, "/v1/models")) as {
      data: readonly { id: string; root: string; parent: string | null; status: { value: string } }[];
    };
    expect(data.map(({ id, root, parent, status }) => [id, root, parent, status.value])).toEqual([
      ["plain", "plain", null, "unloaded"],
      ["base", "base", null, "loaded"],
      ["sql", join(scratch, "sql"), "base", "loaded"],
    ]);
    expect(await (await ask(server, "/v1/chat/completions", chat("law"))).json()).toMatchObject({
      error: { message: 'the model "law" does not exist; served here: plain, base, sql' },
    });
    const metrics = await (await fetch(`${server.url}/metrics`)).text();
    expect(metrics).toMatch(
      /^vllm:lora_requests_info\{max_lora="1",running_lora_adapters="",waiting_lora_adapters="",model_name="base"\} \d/m,
    );
    await server.drain(0);
  });

  test.each([
    [{ model: two, memory: 1000 }, "The model first takes 11.0 MiB, and --memory is 1000 bytes."],
    [
      { model: two, memory: DEMO_BYTES, pin: ["first"] },
      "The model second takes 11.0 MiB beside 11.0 MiB of pinned models, and --memory is 11.0 MiB.",
    ],
    [{ model: [...two, two[0]!] }, "Two models or adapters have the name first."],
    [{ model: two, pin: ["third"] }, "--pin third: no model has that name; there are first, second."],
    [{ memory: 5 }, "--memory is for several models: name them with --model or --models."],
    [
      { model: two, servedModelName: ["x"] },
      "--served-model-name is for a server of one model, and this one has several.",
    ],
  ] as const)("%j is refused", async (settings, message) => {
    await expect(start(settings)).rejects.toThrow(message);
  });
});
