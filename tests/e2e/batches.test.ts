/** Files and batches over HTTP, with OpenAI's own client and with raw requests that it would not make. */

import { describe, expect, spyOn, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type OpenAI from "openai";
import { toFile } from "openai";
import { JobsClient } from "../../server/cli/jobs-client.ts";
import { StoreError } from "../../server/jobs/store-error.ts";
import { batchOf, begin, clientOf, jobsServer, upload } from "./jobs-server.ts";
import { startTestServer, type TestServer } from "./server.ts";

const start = jobsServer();

function chatLine(customId: string, content: string, more: object = {}): string {
  const body = { model: "demo", messages: [{ role: "user", content }], max_tokens: 8, seed: 1, ...more };
  return JSON.stringify({ custom_id: customId, method: "POST", url: "/v1/chat/completions", body });
}

/** Returns the client's error as text; its promises do not work with `rejects`. */
async function refusalOf(promise: PromiseLike<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    return (error as Error).message;
  }
  return "it was not refused";
}

type Endpoint = OpenAI.BatchCreateParams["endpoint"];

interface OutputLine {
  readonly custom_id: string;
  readonly response: {
    readonly status_code: number;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body: OpenAI.ChatCompletion;
  };
  readonly error: { readonly code: string; readonly message: string } | null;
}

async function linesOf(client: OpenAI, file: string | null | undefined): Promise<OutputLine[]> {
  if (file === null || file === undefined) return [];
  const text = await (await client.files.content(file)).text();
  return text
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as OutputLine);
}

async function run(server: TestServer, lines: readonly string[] | string): Promise<OpenAI.Batch> {
  const client = clientOf(server);
  const batch = await begin(client, lines);
  await server.jobs!.runner.ended(batch.id);
  return await client.batches.retrieve(batch.id);
}

test("a line's bound is none where it is beyond the context, and a prompt that leaves no room fails its line", async () => {
  const contextMax = 200;
  const server = start({ spec: { contextMax } });
  const endless = { ignore_eos: true };
  const { output_file_id, error_file_id } = await run(server, [
    chatLine("bounded", "Hello", { max_tokens: 32_000, ...endless }),
    chatLine("unbounded", "Hello", { max_tokens: -1, ...endless }),
    chatLine("long", "word ".repeat(contextMax)),
    chatLine("fewest", "Hello", { max_tokens: 32_000, min_tokens: contextMax }),
  ]);
  const told = await linesOf(clientOf(server), output_file_id);
  expect(told.map(({ custom_id }) => custom_id).sort()).toEqual(["bounded", "unbounded"]);
  for (const { response } of told) {
    const { choices, usage } = response.body;
    expect([choices[0]!.finish_reason, usage!.total_tokens]).toEqual(["length", contextMax]);
  }
  const failed = await linesOf(clientOf(server), error_file_id);
  expect(failed.map(({ custom_id, response }) => [custom_id, response.status_code]).sort()).toEqual([
    ["fewest", 400],
    ["long", 400],
  ]);
});

test("a line that names a program is refused, and says why", async () => {
  const programFolder = mkdtempSync(join(tmpdir(), "bunting-programs-"));
  const program = { input: "question", calls: [{ prompt: "Say {{question}}: {{said}}", output: "said" }] };
  writeFileSync(join(programFolder, "steps.json"), JSON.stringify(program));
  const server = start({ programFolder });
  rmSync(programFolder, { recursive: true });
  const { status, errors } = await run(server, [chatLine("only", "Hello", { model: "steps" })]);
  expect([status, errors!.data!.map(({ message }) => message)]).toEqual([
    "failed",
    [expect.stringContaining('"steps" does not exist, or is a program; for batches there are: demo')],
  ]);
});

test("a batch's lines may be responses, which are not kept", async () => {
  const server = start();
  const client = clientOf(server);
  const first = await client.responses.create({
    model: "demo",
    input: "Who is there?",
    max_output_tokens: 8,
  });
  const body = { model: "demo", input: "And now?", max_output_tokens: 8, previous_response_id: first.id };
  const direct = await client.responses.create(body);
  const bodies = [body, { ...body, background: true }, { ...body, input: [], previous_response_id: "none" }];
  const lines = bodies.map((body, index) =>
    JSON.stringify({ custom_id: String(index), method: "POST", url: "/v1/responses", body }),
  );
  const { id } = await begin(client, lines, { endpoint: "/v1/responses" });
  await server.jobs!.runner.ended(id);
  const { output_file_id, error_file_id, request_counts, usage } = await client.batches.retrieve(id);
  expect(request_counts).toEqual({ total: 3, completed: 1, failed: 2 });
  const [line] = await linesOf(client, output_file_id);
  const answer = line!.response.body as unknown as OpenAI.Responses.Response;
  const saysOf = ({ output }: OpenAI.Responses.Response): unknown =>
    output.map((item) => (item.type === "message" ? item.content : item));
  expect(saysOf(answer)).toEqual(saysOf(direct));
  expect(usage).toMatchObject({ input_tokens: direct.usage!.input_tokens, output_tokens: 8 });
  expect(await refusalOf(client.responses.retrieve(answer.id))).toContain("404");
  expect((await linesOf(client, error_file_id)).map(({ response }) => response.status_code)).toEqual([
    400, 404,
  ]);
});

test("a line's fields without effect are named in its result, as a header names them", async () => {
  const server = start();
  const client = clientOf(server);
  const namedIn = async (endpoint: Endpoint, bodies: readonly object[]) => {
    const lines = bodies.map((body, index) =>
      JSON.stringify({ custom_id: String(index), method: "POST", url: endpoint, body }),
    );
    const { id } = await begin(client, lines, { endpoint });
    await server.jobs!.runner.ended(id);
    const { output_file_id } = await client.batches.retrieve(id);
    return (await linesOf(client, output_file_id)).map(({ response }) => response.headers);
  };
  const user = [{ role: "user", content: "Hi" }];
  const odd = { priority: 3, unheard_of: 1 };
  const named = [{ "x-bunting-ignored": "priority, unheard_of" }, undefined];
  const chat = { messages: user, max_tokens: 4 };
  expect(await namedIn("/v1/chat/completions", [{ ...chat, ...odd }, chat])).toEqual(named);
  const text = { prompt: "Hi", max_tokens: 4 };
  expect(await namedIn("/v1/completions", [{ ...text, ...odd }, text])).toEqual(named);
  const response = { input: "Hi", max_output_tokens: 16 };
  expect(await namedIn("/v1/responses", [{ ...response, ...odd }, response])).toEqual(named);
  expect(await namedIn("/v1/embeddings", [{ input: "Hi", ...odd }, { input: "Hi" }])).toEqual(named);
}, 30_000);

test("a key has as many unfinished batches as it may, and other keys have their own", async () => {
  const keys = { keys: ["key-of-ann", "key-of-bob"] };
  const server = start({ stepMs: 3, unfinishedMax: 2, keys });
  const [ann, bob] = [clientOf(server, "key-of-ann"), clientOf(server, "key-of-bob")];
  const lines = Array.from({ length: 300 }, (_, index) => chatLine(String(index), `line ${index}`));
  const [first] = [await begin(ann, lines), await begin(ann, lines)];
  expect(await refusalOf(begin(ann, lines))).toContain(
    "429 this key has 2 unfinished batches, and 2 are allowed (--batches-max)",
  );
  await begin(bob, lines);
  await ann.batches.cancel(first.id);
  await server.jobs!.runner.ended(first.id);
  await begin(ann, chatLine("a", "x"));
}, 30_000);

describe("a batch", () => {
  test("answers every line once, as a request would be answered, and refuses as a request is refused", async () => {
    const server = start();
    const client = clientOf(server);
    const sea = "Tell me of the sea. ".repeat(20);
    const batch = await run(server, [
      chatLine("a", sea),
      chatLine("b", "Tell me of the sun.", { temperature: 9 }),
      chatLine("c", sea),
      chatLine("d", "Streams?", { stream: true }),
    ]);
    expect(batch.status).toBe("completed");
    expect(batch.request_counts).toEqual({ total: 4, completed: 2, failed: 2 });
    const outputs = await linesOf(client, batch.output_file_id);
    const errors = await linesOf(client, batch.error_file_id);
    expect(outputs.map((line) => line.custom_id)).toEqual(["a", "c"]);
    expect(errors.map((line) => [line.custom_id, line.response.status_code])).toEqual([
      ["b", 400],
      ["d", 400],
    ]);
    const alone = await client.chat.completions.create({
      model: "demo",
      messages: [{ role: "user", content: sea }],
      max_tokens: 8,
      seed: 1,
    });
    const { choices, usage } = outputs[0]!.response.body;
    expect(choices).toEqual(alone.choices);
    expect(usage!.total_tokens).toBe(alone.usage!.total_tokens);
    // Two lines are equal: the prompt is computed once, except for its last page.
    const cachedOf = ({ response }: OutputLine) => response.body.usage!.prompt_tokens_details!.cached_tokens!;
    const cached = outputs.map(cachedOf).sort((a, b) => a - b);
    expect(cached[1]).toBeGreaterThanOrEqual(usage!.prompt_tokens - 16);
    expect(batch.usage).toMatchObject({
      input_tokens: 2 * usage!.prompt_tokens,
      input_tokens_details: { cached_tokens: cached[0]! + cached[1]! },
      output_tokens: outputs.reduce((sum, { response }) => sum + response.body.usage!.completion_tokens, 0),
    });
    const refused = await fetch(`${server.origin}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "demo", messages: [{ role: "user", content: "x" }], temperature: 9 }),
    });
    expect(errors[0]!.response.body as unknown).toEqual(await refused.json());
    await server.settled();
  });

  test("keeps nothing of lines that are done: no signal has the listeners of two", async () => {
    const listeners = new Map<unknown, number>();
    const count = (signal: unknown, more: number): void => {
      listeners.set(signal, (listeners.get(signal) ?? 0) + more);
    };
    const { addEventListener, removeEventListener } = AbortSignal.prototype;
    const spies = [
      spyOn(AbortSignal.prototype, "addEventListener").mockImplementation(function (
        this: AbortSignal,
        ...given: Parameters<AbortSignal["addEventListener"]>
      ) {
        count(this, 1);
        addEventListener.apply(this, given);
      } as typeof addEventListener),
      spyOn(AbortSignal.prototype, "removeEventListener").mockImplementation(function (
        this: AbortSignal,
        ...given: Parameters<AbortSignal["removeEventListener"]>
      ) {
        count(this, -1);
        removeEventListener.apply(this, given);
      } as typeof removeEventListener),
    ];
    const lines = Array.from({ length: 20 }, (_, index) => chatLine(String(index), `line ${index}`));
    const { status } = await run(start(), lines);
    for (const spy of spies) spy.mockRestore();
    expect([status, listeners.size > 0]).toEqual(["completed", true]);
    expect(Math.max(...listeners.values())).toBeLessThanOrEqual(1);
  });

  test("holds its lines to what their answers must be, and refuses what cannot be kept to", async () => {
    const format = (schema: object) => ({
      response_format: { type: "json_schema", json_schema: { name: "n", schema } },
    });
    const server = start();
    const batch = await run(server, [
      chatLine("a", "How many?", format({ type: "integer", minimum: 2, maximum: 2 })),
      chatLine("b", "Which?", { guided_choice: ["red"] }),
      chatLine("c", "How many?", format({ type: "float128" })),
    ]);
    const client = clientOf(server);
    const outputs = await linesOf(client, batch.output_file_id);
    expect(outputs.map(({ response }) => response.body.choices[0]!.message.content)).toEqual(["2", "red"]);
    const [refused] = await linesOf(client, batch.error_file_id);
    expect(refused).toMatchObject({
      custom_id: "c",
      response: {
        status_code: 400,
        body: { error: { code: "invalid_schema", param: "response_format.json_schema.schema#/type" } },
      },
    });
  });

  test("runs completions, too", async () => {
    const server = start();
    const client = clientOf(server);
    const body = { model: "demo", prompt: "Once upon", max_tokens: 4 };
    const echoed = { ...body, max_tokens: 0, echo: true };
    const lines = [body, echoed].map((body, index) =>
      JSON.stringify({ custom_id: String(index), method: "POST", url: "/v1/completions", body }),
    );
    const batch = await begin(client, lines, { endpoint: "/v1/completions", metadata: { what: "a test" } });
    await server.jobs!.runner.ended(batch.id);
    const done = await client.batches.retrieve(batch.id);
    expect([done.status, done.metadata]).toEqual(["completed", { what: "a test" }]);
    const answered = await linesOf(client, done.output_file_id);
    const alone = [await client.completions.create(body), await client.completions.create(echoed)];
    expect(answered.map(({ response }) => response.body.choices as unknown)).toEqual(
      alone.map(({ choices }) => choices),
    );
    const tokens = alone.map(({ usage }) => usage!.completion_tokens);
    expect([tokens, done.usage!.output_tokens]).toEqual([[4, 0], 4]);
  });

  test("of another model runs where any model's name is answered to", async () => {
    const server = start({ answersToAny: true });
    const client = clientOf(server);
    const line = chatLine("a", "Count to three.", { model: "gpt-4o-mini" });
    const { id } = await begin(client, line);
    await server.jobs!.runner.ended(id);
    const { status, request_counts } = await client.batches.retrieve(id);
    expect([status, request_counts]).toEqual(["completed", { total: 1, completed: 1, failed: 0 }]);
  });

  test("that cannot be is refused with what is wrong, and an input stays while it is read", async () => {
    const server = start({ stepMs: 3 });
    const client = clientOf(server);
    const lines = Array.from({ length: 50 }, (_, index) => chatLine(String(index), `line ${index}`));
    const input = await upload(client, lines.join("\n"));
    const good = batchOf(input);
    const refusals: readonly (readonly [object, string])[] = [
      [{ input_file_id: "file-none" }, 'there is no file "file-none"'],
      [{ endpoint: "/v1/images" }, "endpoint must be /v1/chat/completions or"],
      [{ completion_window: "soon" }, "completion_window must be a number of hours or days"],
      [{ completion_window: "9000h" }, "up to 8760 hours"],
      [{ priority: 1.5 }, "priority"],
      [{ output_expires_after: { anchor: "created_at", seconds: 1 } }, "between 3600 and 2592000"],
      [{ colour: "red" }, 'a batch has no field "colour"'],
    ];
    for (const [changes, message] of refusals) {
      expect(await refusalOf(client.batches.create({ ...good, ...changes } as typeof good))).toContain(
        message,
      );
    }
    expect((await client.batches.list()).data).toEqual([]);

    const expires = { anchor: "created_at", seconds: 7200 } as const;
    const { id } = await client.batches.create({ ...good, output_expires_after: expires });
    expect(await refusalOf(client.files.delete(input))).toContain(
      `is the input of ${id}, which has not ended`,
    );
    await server.jobs!.runner.ended(id);
    const { output_file_id: output } = await client.batches.retrieve(id);
    const { created_at: created, expires_at: until } = await client.files.retrieve(output!);
    expect(until).toBe(created + 7200);
    expect(await refusalOf(client.batches.create({ ...good, input_file_id: output! }))).toContain(
      "not batch",
    );
    expect((await client.files.delete(input)).deleted).toBe(true);
  });

  const broken: readonly (readonly [string, string, string, number | null])[] = [
    ["not JSON", "{", "invalid_json_line", 2],
    ["not an object", "[1]", "invalid_json_line", 2],
    ["a custom_id twice", chatLine("first", "x"), "duplicate_custom_id", 2],
    ["no custom_id", '{"method":"POST"}', "invalid_custom_id", 2],
    ["another url", chatLine("b", "x").replace("chat/", ""), "invalid_url", 2],
    ["another method", chatLine("b", "x").replace("POST", "GET"), "invalid_method", 2],
    ["an unknown model", chatLine("b", "x", { model: "gpt-9" }), "model_not_found", 2],
    ["two models", chatLine("b", "x", { model: "also/demo" }), "mismatched_model", 2],
    ["no body", '{"custom_id":"b","method":"POST","url":"/v1/chat/completions"}', "invalid_body", 2],
    ["a key twice", '{"custom_id":"b","custom_id":"c"}', "invalid_json_line", 2],
  ];

  test.each(broken)("with %s fails as a whole, and says where", async (_what, line, code, number) => {
    const batch = await run(start(), [chatLine("first", "x"), line, chatLine("last", "x")]);
    expect(batch.status).toBe("failed");
    expect(batch.errors?.data?.map((error) => [error.code, error.line])).toEqual([[code, number]]);
    expect(batch.output_file_id).toBeNull();
  });

  test("of an empty file, of bytes that are no text, of too many lines fails", async () => {
    const server = start();
    const codes = async (text: string | Uint8Array) => {
      const client = clientOf(server);
      const batch = await client.batches.create(batchOf(await upload(client, text)));
      await server.jobs!.runner.ended(batch.id);
      return (await client.batches.retrieve(batch.id)).errors?.data?.map(({ code }) => code);
    };
    expect(await codes(Buffer.from("\n \n"))).toEqual(["empty_file"]);
    expect(await codes(Buffer.from([0xff, 0xfe, 0x0a]))).toEqual(["invalid_json_line"]);
    const many = Array.from({ length: 5001 }, (_, index) => chatLine(String(index), "x", { pad: "" }));
    expect(await codes(Buffer.from(many.join("\n")))).toEqual(["too_many_tasks"]);
  });

  test("comes before those that were created earlier, within a second too, page by page", async () => {
    const server = start();
    const client = clientOf(server);
    const body = batchOf(await upload(client, chatLine("a", "x")));
    const created: string[] = [];
    for (let index = 0; index < 101; index++) created.push((await client.batches.create(body)).id);
    const listed: string[] = [];
    for await (const { id } of client.batches.list({ limit: 35 })) listed.push(id);
    expect(listed).toEqual(created.toReversed());
    // Lists batches as `bunting jobs list` does.
    const all = await Array.fromAsync(new JobsClient({ url: server.origin, apiKey: null }).batches());
    expect(all.map(({ id }) => id)).toEqual(listed);
  }, 30_000);

  test("that is cancelled keeps what is done, and says of each other line that it did not run", async () => {
    const server = start({ stepMs: 3 });
    const client = clientOf(server);
    const lines = Array.from({ length: 400 }, (_, index) => chatLine(String(index), `line ${index}`));
    const { id } = await begin(client, lines);
    for (;;) {
      const { request_counts: counts } = await client.batches.retrieve(id);
      if (counts!.completed > 0) break;
    }
    expect((await client.batches.cancel(id)).status).toBe("cancelling");
    await server.jobs!.runner.ended(id);
    const batch = await client.batches.retrieve(id);
    expect(batch.status).toBe("cancelled");
    const done = await linesOf(client, batch.output_file_id);
    const left = await linesOf(client, batch.error_file_id);
    expect(done.length).toBe(batch.request_counts!.completed);
    expect(new Set(left.map((line) => line.error?.code))).toEqual(new Set(["batch_cancelled"]));
    const ids = [...done, ...left].map((line) => Number(line.custom_id));
    expect(ids.sort((a, b) => a - b)).toEqual(lines.map((_, index) => index));
    await server.settled();
  });

  test("goes on after the server was stopped, and a line that has an answer keeps it", async () => {
    const first = start({ stepMs: 3 });
    const client = clientOf(first);
    const lines = Array.from({ length: 300 }, (_, index) => chatLine(String(index), `line ${index}`));
    const { id } = await begin(client, lines);
    for (;;) {
      if ((await client.batches.retrieve(id)).request_counts!.completed > 0) break;
    }
    await first.close();
    const second = start();
    await second.jobs!.runner.ended(id);
    const again = clientOf(second);
    const batch = await again.batches.retrieve(id);
    expect([batch.status, batch.request_counts]).toEqual([
      "completed",
      { total: 300, completed: 300, failed: 0 },
    ]);
    const outputs = await linesOf(again, batch.output_file_id);
    expect(outputs.map((line) => line.custom_id)).toEqual(lines.map((_, index) => String(index)));
    const tokens = outputs.map((line) => line.response.body.usage!.completion_tokens);
    expect(batch.usage!.output_tokens).toBe(tokens.reduce((a, b) => a + b, 0));
  });

  test("waits while the disk is full, says so, and goes on when there is room", async () => {
    let isFull = false;
    const full = Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
    const server = start({
      onWrite: () => {
        if (isFull) throw full;
      },
    });
    const client = clientOf(server);
    const body = batchOf(await upload(client, chatLine("a", "x")));
    isFull = true;
    expect(await refusalOf(client.batches.create(body))).toContain("507");
    expect(
      await refusalOf(client.files.create({ file: await toFile(Buffer.from("x")), purpose: "batch" })),
    ).toContain("507");
    isFull = false;
    const { id } = await client.batches.create(body);
    isFull = true;
    for (;;) {
      const { paused_by: pausedBy } = (await client.batches.retrieve(id)) as { paused_by?: string | null };
      if (pausedBy === "the disk takes no more: no space left on device") break;
    }
    isFull = false;
    await server.jobs!.runner.ended(id);
    expect((await client.batches.retrieve(id)).status).toBe("completed");
  });
});

test("files are listed page by page, also by one who deletes them meanwhile, and are kept as long as results", async () => {
  const server = start();
  const client = clientOf(server);
  const made: string[] = [];
  for (let index = 0; index < 5; index++) {
    const file = await toFile(Buffer.from("x"));
    const { id, created_at, expires_at } = await client.files.create({ file, purpose: "batch" });
    expect(expires_at).toBe(created_at + server.jobs!.settings.retentionSeconds);
    made.unshift(id);
  }
  const seen: string[] = [];
  for await (const { id } of client.files.list({ limit: 2, purpose: "batch" })) {
    seen.push(id);
    if (seen.length % 2 === 0) await client.files.delete(id);
  }
  expect(seen).toEqual(made);
});

test("what is damaged in the store is told by name, whatever asks for it", async () => {
  const { origin, jobs } = start();
  const damaged = new StoreError("The record batch_1 of batches in the store is not what was written.");
  const spies = (["batch", "batches", "file", "files"] as const).map((name) =>
    spyOn(jobs!.store, name).mockImplementation(() => {
      throw damaged;
    }),
  );
  for (const path of ["batches", "batches/batch_1", "files", "files/file-1", "files/file-1/content"]) {
    const response = await fetch(`${origin}/v1/${path}`);
    const { error } = (await response.json()) as { readonly error: object };
    expect([response.status, error]).toEqual([
      500,
      expect.objectContaining({ message: damaged.message, code: "store_damaged" }),
    ]);
  }
  for (const spy of spies) spy.mockRestore();
});

test("a file that is damaged at its end is told of, and none of it given out", async () => {
  const server = start();
  const { origin, jobs } = server;
  const id = await upload(clientOf(server), "x".repeat(1000));
  const damaged = new StoreError(`The file ${id} is not what was written.`);
  const spy = spyOn(jobs!.store, "content").mockImplementation(function* () {
    yield Buffer.from("x".repeat(999));
    throw damaged;
  });
  const response = await fetch(`${origin}/v1/files/${id}/content`);
  expect([response.status, await response.json()]).toEqual([
    500,
    { error: expect.objectContaining({ message: damaged.message, code: "store_damaged" }) },
  ]);
  spy.mockRestore();
});

describe("files", () => {
  test("are listed newest first, read, and deleted", async () => {
    const client = clientOf(start());
    const one = await client.files.create({
      file: await toFile(Buffer.from("one"), "1.jsonl"),
      purpose: "batch",
    });
    const two = await client.files.create({
      file: await toFile(Buffer.from("two"), "2.jsonl"),
      purpose: "batch",
    });
    expect([one.bytes, one.filename, one.object, one.purpose]).toEqual([3, "1.jsonl", "file", "batch"]);
    expect((await client.files.list()).data.map(({ id }) => id)).toEqual([two.id, one.id]);
    expect(await (await client.files.content(two.id)).text()).toBe("two");
    expect(await client.files.delete(one.id)).toEqual({ id: one.id, object: "file", deleted: true });
    expect(await refusalOf(client.files.retrieve(one.id))).toContain("404");
    expect((await client.files.list({ limit: 1 })).data.map(({ id }) => id)).toEqual([two.id]);
    expect((await client.files.list({ purpose: "batch" })).data.map(({ id }) => id)).toEqual([two.id]);
    expect((await client.files.list({ purpose: "batch_output" })).data).toEqual([]);
  });

  test("and batches are their owner's alone", async () => {
    const server = start({ keys: { keys: ["key-of-ann", "key-of-bob"] } });
    const [ann, bob] = [clientOf(server, "key-of-ann"), clientOf(server, "key-of-bob")];
    const id = await upload(ann, chatLine("a", "x"));
    expect(await refusalOf(bob.files.content(id))).toContain("404");
    expect(await refusalOf(bob.files.delete(id))).toContain("404");
    expect(await refusalOf(bob.batches.create(batchOf(id)))).toContain("there is no file");
    const batch = await ann.batches.create(batchOf(id));
    expect(await refusalOf(bob.batches.retrieve(batch.id))).toContain("404");
    expect(await refusalOf(bob.batches.cancel(batch.id))).toContain("404");
    expect((await bob.batches.list()).data).toEqual([]);
    expect((await ann.batches.list()).data.map((one) => one.id)).toEqual([batch.id]);
    await server.jobs!.runner.ended(batch.id);
  });

  test("that are too large, of another purpose, or sent in another way are refused, and leave nothing", async () => {
    const server = start();
    const client = clientOf(server);
    const large = await toFile(Buffer.alloc(2 ** 20 + 1, "x"));
    expect(await refusalOf(client.files.create({ file: large, purpose: "batch" }))).toContain(
      "1048576 bytes at most",
    );
    expect(
      await refusalOf(client.files.create({ file: await toFile(Buffer.from("x")), purpose: "fine-tune" })),
    ).toContain('purpose must be "batch"');
    const json = { method: "POST", body: "{}", headers: { "content-type": "application/json" } };
    expect((await fetch(`${server.origin}/v1/files`, json)).status).toBe(415);
    const form = new FormData();
    form.set("purpose", "batch");
    expect((await fetch(`${server.origin}/v1/files`, { method: "POST", body: form })).status).toBe(400);
    expect((await client.files.list()).data).toEqual([]);
    expect((await fetch(`${server.origin}/v1/files`, { method: "PATCH" })).headers.get("allow")).toBe(
      "POST, GET, HEAD",
    );
  });

  test("are refused where nothing is kept", async () => {
    const server = startTestServer();
    expect(await refusalOf(clientOf(server).files.list())).toContain("--data");
    await server.close();
  });
});

test("files and results of all keys have a bound on the disk, which refusals name with its value", async () => {
  const first = start({ storageBytesMax: 200_000 });
  const client = clientOf(first);
  const send = async (text: string) =>
    client.files.create({ file: await toFile(Buffer.from(text)), purpose: "batch" });
  const { id } = await send(chatLine("a", "x".repeat(90_000)));
  const { bytes } = first.jobs!.store;
  expect(bytes).toBeGreaterThan(90_000);
  const refusal = await refusalOf(send("y".repeat(110_000)));
  expect(refusal).toContain("may take 200000 bytes of the disk (--batch-storage-gib), and would take 2");
  expect(refusal).toContain("507");
  expect(first.jobs!.store.bytes).toBe(bytes);
  await first.close();

  const second = start({ storageBytesMax: bytes - 1 });
  const again = clientOf(second);
  expect(second.jobs!.store.bytes).toBe(bytes);
  const batch = { input_file_id: id, endpoint: "/v1/chat/completions", completion_window: "24h" } as const;
  expect(await refusalOf(again.batches.create(batch))).toContain(`may take ${bytes - 1} bytes`);
  await again.files.delete(id);
  expect((await again.files.create({ file: await toFile(Buffer.from("z")), purpose: "batch" })).bytes).toBe(
    1,
  );
});
