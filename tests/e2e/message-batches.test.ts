/** Batches of messages: Anthropic's official client, and raw requests that it would not make. */

import { expect, spyOn, test } from "bun:test";
import Anthropic from "@anthropic-ai/sdk";
import { JobsClient } from "../../server/cli/jobs-client.ts";
import { targetOf } from "../../server/cli/target.ts";
import { StoreError } from "../../server/jobs/store-error.ts";
import { jobsServer, clientOf as openaiClientOf } from "./jobs-server.ts";
import type { TestServer } from "./server.ts";

type Request = Anthropic.Messages.BatchCreateParams["requests"][number];
type Result = Anthropic.Messages.MessageBatchIndividualResponse;

const start = jobsServer();
const route = "/v1/messages/batches";

function clientOf({ origin }: TestServer, apiKey = "none"): Anthropic {
  return new Anthropic({ baseURL: origin, apiKey, maxRetries: 0 });
}

function request(customId: string, content: string, more: object = {}): Request {
  const params = { model: "demo", max_tokens: 8, messages: [{ role: "user", content }], seed: 1, ...more };
  return { custom_id: customId, params: params as Request["params"] };
}

function many(count: number): Request[] {
  return Array.from({ length: count }, (_, index) => request(`line-${index}`, `Line ${index}?`));
}

async function resultsOf(client: Anthropic, id: string): Promise<Result[]> {
  return await Array.fromAsync(await client.messages.batches.results(id));
}

/** Waits for the end of a batch. */
async function ended(server: TestServer, client: Anthropic, id: string) {
  await server.jobs!.runner.ended(id);
  return await client.messages.batches.retrieve(id);
}

/** Error that a promise is rejected with. */
async function failure(promise: PromiseLike<unknown>) {
  try {
    await promise;
  } catch (error) {
    return error as InstanceType<typeof Anthropic.APIError>;
  }
  throw new Error("expected a failure");
}

async function statusOf(promise: PromiseLike<unknown>): Promise<number | undefined> {
  return (await failure(promise)).status;
}

async function send(server: TestServer, body: string, headers: Record<string, string> = {}) {
  const response = await fetch(server.origin + route, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body,
  });
  const answer = (await response.json()) as { readonly error?: { type: string; message: string } };
  return { status: response.status, id: response.headers.get("request-id"), ...answer };
}

const kinds = (results: readonly Result[]) =>
  results.map(({ custom_id, result }) => [custom_id, result.type]);

test("each request has the message that it would have alone, or its refusal", async () => {
  const server = start();
  const client = clientOf(server);
  const sea = "Tell me of the sea. ".repeat(20);
  const marked = [{ type: "text", text: sea, cache_control: { type: "ephemeral" } }];
  const requests = [
    request("good", sea),
    request("hot", "Hello", { temperature: 9 }),
    request("stream", "Hello", { stream: true }),
    request("endless", "Hello", { max_tokens: undefined }),
    request("odd", "Hello", { unheard_of: 1 }),
    {
      ...request("marked", ""),
      params: { ...request("", "").params, messages: [{ role: "user", content: marked }] },
    },
  ] as Request[];
  const begun = await client.messages.batches.create({ requests });
  const processing = { processing: 6, succeeded: 0, errored: 0, canceled: 0, expired: 0 };
  expect(begun).toMatchObject({
    type: "message_batch",
    processing_status: "in_progress",
    request_counts: processing,
    ...{ ended_at: null, archived_at: null, cancel_initiated_at: null, results_url: null },
  });
  expect(Date.parse(begun.expires_at) - Date.parse(begun.created_at)).toBe(24 * 3_600_000);
  const done = await ended(server, client, begun.id);
  expect(done).toMatchObject({
    processing_status: "ended",
    request_counts: { ...processing, processing: 0, succeeded: 3, errored: 3 },
    results_url: `/v1/messages/batches/${begun.id}/results`,
  });
  expect(Date.parse(done.ended_at!)).toBeGreaterThanOrEqual(Date.parse(done.created_at));
  const results = await resultsOf(client, begun.id);
  expect(kinds(results)).toEqual([
    ["good", "succeeded"],
    ["hot", "errored"],
    ["stream", "errored"],
    ["endless", "errored"],
    ["odd", "succeeded"],
    ["marked", "succeeded"],
  ]);
  const messageOf = (index: number) => (results[index]!.result as { message: Anthropic.Message }).message;
  const alone = await client.messages.create(requests[0]!.params);
  expect({ ...messageOf(0), id: "", usage: {} }).toEqual({
    ...alone,
    id: "",
    usage: {},
  } as Anthropic.Message);
  const { usage } = messageOf(5);
  expect(usage.cache_read_input_tokens! + usage.cache_creation_input_tokens!).toBeGreaterThan(100);
  for (const [index, { params }] of requests.entries()) {
    const { result } = results[index]!;
    if (result.type !== "errored" || params.stream !== undefined) continue;
    const { error, type } = (await failure(client.messages.create(params))).error as Anthropic.ErrorResponse;
    expect(result.error).toEqual({ type, error, request_id: expect.stringMatching(/^req_/) });
  }
  expect(results[4]).toMatchObject({ headers: { "x-bunting-ignored": "unheard_of" } });
  expect(results[2]!.result).toMatchObject({
    error: { error: { type: "invalid_request_error", message: expect.stringContaining("true in a batch") } },
  });
  await server.settled();
});

test("a batch is a job like others: OpenAI's routes and the command list it with its progress", async () => {
  const server = start();
  const client = clientOf(server);
  const { id } = await client.messages.batches.create({ requests: many(3) });
  await server.jobs!.runner.ended(id);
  const openai = openaiClientOf(server);
  const job = await openai.batches.retrieve(id);
  expect(job).toMatchObject({ endpoint: "/v1/messages", status: "completed", model: "demo" });
  expect(job.request_counts).toEqual({ total: 3, completed: 3, failed: 0 });
  const listed = await Array.fromAsync(new JobsClient(targetOf(server.origin, null)).batches());
  expect(listed.map((batch) => batch.id)).toEqual([id]);
  const output = await (await openai.files.content(job.output_file_id!)).text();
  const results = await resultsOf(client, id);
  expect(output).toBe(results.map((result) => `${JSON.stringify(result)}\n`).join(""));
});

test("pages go both ways, and hold batches of messages alone", async () => {
  const server = start();
  const client = clientOf(server);
  const { batches } = client.messages;
  const ids: string[] = [];
  for (let made = 0; made < 5; made++) ids.unshift((await batches.create({ requests: many(1) })).id);
  const openai = openaiClientOf(server);
  const file = new File(["{}"], "in.jsonl");
  const { id: input } = await openai.files.create({ file, purpose: "batch" });
  const other = { input_file_id: input, endpoint: "/v1/completions", completion_window: "24h" } as const;
  const { id: otherId } = await openai.batches.create(other);
  const idsOf = (page: { readonly data: readonly { readonly id: string }[] }) =>
    page.data.map(({ id }) => id);
  expect(idsOf(await batches.list())).toEqual(ids);
  const first = await batches.list({ limit: 2 });
  expect([idsOf(first), first.has_more, first.first_id, first.last_id]).toEqual([
    ids.slice(0, 2),
    true,
    ids[0]!,
    ids[1]!,
  ]);
  const last = await batches.list({ limit: 2, after_id: ids[2]! });
  expect([idsOf(last), last.has_more]).toEqual([ids.slice(3), false]);
  const before = await batches.list({ limit: 2, before_id: ids[3]! });
  expect([idsOf(before), before.has_more]).toEqual([ids.slice(1, 3), true]);
  const newest = await batches.list({ limit: 2, before_id: ids[1]! });
  expect([idsOf(newest), newest.has_more]).toEqual([ids.slice(0, 1), false]);
  expect((await Array.fromAsync(batches.list({ limit: 2 }))).map(({ id }) => id)).toEqual(ids);
  expect(await statusOf(batches.list({ limit: 0 }))).toBe(400);
  expect(await statusOf(batches.list({ limit: 1001 }))).toBe(400);
  expect(await statusOf(batches.list({ before_id: ids[0]!, after_id: ids[0]! }))).toBe(400);
  expect(await statusOf(batches.retrieve(otherId))).toBe(404);
});

test("a cancelled batch keeps its answers, and the other requests are canceled", async () => {
  const server = start({ stepMs: 5, spec: { stepChunksMax: 2 } });
  const client = clientOf(server);
  const { batches } = client.messages;
  const { id } = await batches.create({ requests: many(50) });
  expect(await statusOf(batches.delete(id))).toBe(400);
  expect(await statusOf(fetchResults(server, id))).toBe(400);
  while ((await openaiClientOf(server).batches.retrieve(id)).request_counts!.completed === 0);
  const canceling = await batches.cancel(id);
  expect([canceling.processing_status, canceling.cancel_initiated_at]).toEqual([
    "canceling",
    expect.any(String),
  ]);
  const done = await ended(server, client, id);
  const { succeeded, canceled, errored, expired, processing } = done.request_counts;
  expect([succeeded + canceled, errored, expired, processing]).toEqual([50, 0, 0, 0]);
  const results = await resultsOf(client, id);
  expect(results.map(({ custom_id }) => custom_id)).toEqual(many(50).map(({ custom_id }) => custom_id));
  const withType = (type: string) => results.filter(({ result }) => result.type === type);
  expect([withType("succeeded").length, withType("canceled").length]).toEqual([succeeded, canceled]);
  expect(withType("canceled")[0]!.result).toEqual({ type: "canceled" });
  expect((await batches.cancel(id)).processing_status).toBe("ended");
  expect(await batches.delete(id)).toEqual({ id, type: "message_batch_deleted" });
  expect(await statusOf(batches.retrieve(id))).toBe(404);
  const { data: files } = await openaiClientOf(server).files.list();
  expect([files, (await openaiClientOf(server).batches.list()).data]).toEqual([[], []]);
  await server.settled();
});

/** Rejects as the client would; its own method asks for the batch first. */
async function fetchResults(server: TestServer, id: string): Promise<void> {
  const { status } = await fetch(`${server.origin}${route}/${id}/results`);
  if (status !== 200) throw Object.assign(new Error(), { status });
}

test("a batch that is cancelled before its requests are read has a result for each of them", async () => {
  const first = start({ answersToAny: true });
  const requests = many(3).map(({ custom_id, params }) => ({
    custom_id,
    params: { ...params, model: "gone" },
  }));
  const { id } = await clientOf(first).messages.batches.create({ requests });
  await first.jobs!.runner.ended(id);
  const { store } = first.jobs!;
  for (const end of "01") store.putBatch({ ...store.batch("", id)!, ...unread, id: `${id}${end}` });
  first.jobs!.runner.begin(store.batch("", `${id}0`)!);
  const client = clientOf(first);
  expect((await client.messages.batches.cancel(`${id}0`)).processing_status).toBe("canceling");
  await expectCanceled(first, `${id}0`);
  await first.close();
  const other = start();
  expect((await openaiClientOf(other).batches.retrieve(`${id}1`)) as object).toMatchObject({
    paused_by: "its model gone is not served now",
  });
  await clientOf(other).messages.batches.cancel(`${id}1`);
  await expectCanceled(other, `${id}1`);
});

async function expectCanceled(server: TestServer, id: string): Promise<void> {
  const client = clientOf(server);
  const { request_counts: counts } = await ended(server, client, id);
  expect(counts).toEqual({ processing: 0, canceled: 3, succeeded: 0, errored: 0, expired: 0 });
  const types = kinds(await resultsOf(client, id)).map(([, type]) => type);
  expect(types).toEqual(Array(3).fill("canceled"));
}

const unread = {
  status: "validating",
  ...{ inProgressAt: null, finalizingAt: null, completedAt: null, outputFile: null },
  ...{ completed: 0, failed: 0 },
} as const;

test("a batch goes on after a restart, and one whose time is over has expired results", async () => {
  const first = start({ stepMs: 20, spec: { stepChunksMax: 2 } });
  const client = clientOf(first);
  const { id } = await client.messages.batches.create({ requests: many(20) });
  const { id: late } = await client.messages.batches.create({ requests: many(20) });
  while ((await openaiClientOf(first).batches.retrieve(late)).request_counts!.completed === 0);
  await first.close();
  const idle = start({ stepMs: 1000 });
  const { store } = idle.jobs!;
  const record = store.batch("", late)!;
  await idle.jobs!.runner.stop();
  store.putBatch({ ...store.batch("", late)!, expiresAt: record.createdAt });
  await idle.close();
  const server = start();
  const again = clientOf(server);
  expect((await ended(server, again, id)).request_counts).toMatchObject({ succeeded: 20, errored: 0 });
  const { request_counts: counts } = await ended(server, again, late);
  expect(counts.succeeded).toBeGreaterThan(0);
  expect(counts.expired).toBe(20 - counts.succeeded);
  const results = await resultsOf(again, late);
  expect(results.filter(({ result }) => result.type === "expired").length).toBe(counts.expired);
});

test("a batch whose store is damaged ends, and says so for each request without a result", async () => {
  const server = start({ stepMs: 5, spec: { stepChunksMax: 2 } });
  const client = clientOf(server);
  const { id } = await client.messages.batches.create({ requests: many(20) });
  const openLine = server.jobs!.store.openLine.bind(server.jobs!.store);
  const damage = new StoreError("Line 7 is not what was written.");
  server.jobs!.store.openLine = (batch, line) => {
    if (line === 7) throw damage;
    return openLine(batch, line);
  };
  const log = spyOn(console, "error").mockImplementation(() => {});
  const { processing_status, request_counts: counts } = await ended(server, client, id);
  log.mockRestore();
  expect([processing_status, counts.succeeded + counts.errored]).toEqual(["ended", 20]);
  const results = await resultsOf(client, id);
  const errored = results.filter(({ result }) => result.type === "errored");
  expect(errored.length).toBe(counts.errored);
  expect(errored[0]!.result).toMatchObject({
    error: { error: { type: "api_error", message: damage.message } },
  });
});

test("results that are deleted are archived", async () => {
  const server = start();
  const client = clientOf(server);
  const { id } = await client.messages.batches.create({ requests: many(2) });
  const { results_url: url } = await ended(server, client, id);
  const openai = openaiClientOf(server);
  await openai.files.delete((await openai.batches.retrieve(id)).output_file_id!);
  const { archived_at, results_url, request_counts } = await client.messages.batches.retrieve(id);
  expect([archived_at, results_url]).toEqual([expect.any(String), null]);
  expect(request_counts.succeeded).toBe(2);
  expect((await fetch(server.origin + url)).status).toBe(404);
});

test("keys have batches of their own", async () => {
  const keys = { keys: ["key-of-ann", "key-of-bob"] };
  const server = start({ keys, stepMs: 3, unfinishedMax: 1 });
  const [ann, bob] = [clientOf(server, "key-of-ann"), clientOf(server, "key-of-bob")];
  const { id } = await ann.messages.batches.create({ requests: many(300) });
  const { batches } = bob.messages;
  for (const one of [batches.retrieve(id), batches.cancel(id), batches.delete(id), batches.results(id)])
    expect(await statusOf(one)).toBe(404);
  expect((await batches.list()).data).toEqual([]);
  const refusal = await failure(ann.messages.batches.create({ requests: many(1) }));
  expect([refusal.status, refusal.message]).toEqual([429, expect.stringContaining("1 unfinished batches")]);
  expect((refusal.error as Anthropic.ErrorResponse).error.type).toBe("rate_limit_error");
  await batches.create({ requests: many(1) });
  expect((await send(server, "{}")).status).toBe(401);
  await ann.messages.batches.cancel(id);
}, 30_000);

test("what is wrong is refused before a batch is made, in Anthropic's form, and leaves nothing", async () => {
  const server = start();
  const good = request("a", "Hello");
  const bodyOf = (...requests: unknown[]) => JSON.stringify({ requests });
  const long = (mib: number) => request("b", "x".repeat(mib * 2 ** 20));
  const refusals: readonly (readonly [string, string, string, number?])[] = [
    ["", "not valid JSON", "invalid_request_error"],
    ["[]", "must be a JSON object", "invalid_request_error"],
    ["{}", "requests must be a list of at least one request, but is missing", "invalid_request_error"],
    [bodyOf(), "requests must be a list of at least one request", "invalid_request_error"],
    ['{"requests": {}}', "requests must be an array", "invalid_request_error"],
    [bodyOf(good, 5), "requests[1] must be an object", "invalid_request_error"],
    [bodyOf(good).replace("}]}", "}}"), "requests[1] must be an object", "invalid_request_error"],
    [bodyOf(good).slice(0, -20), "not valid JSON", "invalid_request_error"],
    [
      bodyOf(good).replace("Hello", "Hel\nlo"),
      "requests[0]: The line is not valid JSON",
      "invalid_request_error",
    ],
    [bodyOf(good, request("b", ""), good), "custom_id", "invalid_request_error"],
    [bodyOf(request("a b", "")), "requests[0].custom_id must be 1 to 64 letters", "invalid_request_error"],
    [
      bodyOf({ params: {} }),
      "requests[0].custom_id must be a string, but is missing",
      "invalid_request_error",
    ],
    [
      bodyOf({ custom_id: "a" }),
      "requests[0].params must be an object, but is missing",
      "invalid_request_error",
    ],
    [bodyOf({ ...good, colour: "red" }), "requests[0].colour is not a field", "invalid_request_error"],
    [bodyOf(request("a", "", { model: "gpt-9" })), '"gpt-9" does not exist', "not_found_error", 404],
    [JSON.stringify({ requests: [good], colour: "red" }), "colour is not a field", "invalid_request_error"],
    [
      JSON.stringify({ requests: [good], completion_window: "1s" }),
      "completion_window",
      "invalid_request_error",
    ],
    [bodyOf(...many(5001)), "5000 requests at most (--batch-lines-max)", "invalid_request_error"],
    [bodyOf(good, long(5)), "requests[1] may have 4194304 bytes at most", "request_too_large", 413],
    [bodyOf(good, long(1)), "1048576 bytes at most (--batch-file-mib)", "request_too_large", 413],
  ];
  for (const [body, message, type, expected = 400] of refusals) {
    const { status, id, error } = await send(server, body);
    expect([body.slice(0, 100), status, error, id]).toEqual([
      body.slice(0, 100),
      expected,
      { type, message: expect.stringContaining(message) },
      expect.any(String),
    ]);
  }
  expect((await send(server, bodyOf(good), { "content-type": "text/plain" })).status).toBe(415);
  expect((await clientOf(server).messages.batches.list()).data).toEqual([]);
  expect([server.jobs!.store.files("", { after: null, limit: 9, order: "asc" }).records]).toEqual([[]]);
  expect(
    (await send(server, JSON.stringify({ requests: [good], completion_window: "7d", priority: 2 }))).status,
  ).toBe(200);
});

test("a server without a folder for jobs says so", async () => {
  const { status, error } = await send(start({ data: undefined as never }), "{}");
  expect([status, error!.message]).toEqual([501, expect.stringContaining("runs no batches")]);
});
