/** Records of requests: their time by cause on every wire format, in answers, lists and metrics, by key. */
import { afterEach, describe, expect, test } from "bun:test";
import { causes } from "../../scheduler/explain/causes.ts";
import {
  chatBody,
  post,
  readEvents,
  startTestServer,
  type TestServer,
  type TestServerOptions,
} from "./server.ts";
import { byPath, wires } from "./wires.ts";

let server: TestServer;
afterEach(async () => {
  await server.settled();
  await server.close();
});

function start(options: TestServerOptions = {}): void {
  server = startTestServer({ stepMs: 2, answers: ["It is sunny in the whole city today."], ...options });
}

interface Shown {
  readonly id: string;
  readonly model: string;
  readonly route: string;
  readonly status: string;
  readonly error: string | null;
  readonly total_ms: number;
  readonly first_token_ms: number | null;
  readonly causes: Readonly<Record<string, number>>;
  readonly first_token_causes: Readonly<Record<string, number>> | null;
  readonly tokens: { readonly prompt: number; readonly generated: number; readonly computed: number };
  readonly choices: number;
}

interface List {
  readonly data: readonly Shown[];
  readonly has_more: boolean;
}

const withKey = (key: string, more: Readonly<Record<string, string>> = {}) => ({
  headers: { authorization: `Bearer ${key}`, ...more },
});
const names = new Set<string>(causes.map(({ name }) => name));

function sumOf(parts: Readonly<Record<string, number>>): number {
  for (const [name, ms] of Object.entries(parts)) {
    expect(names).toContain(name);
    expect(ms).toBeGreaterThan(0);
  }
  return Object.values(parts).reduce((sum, ms) => sum + ms, 0);
}

/** Checks that a record's causes add up, to the end and to the first token. */
function expectWhole({ total_ms, first_token_ms, causes: parts, first_token_causes: first }: Shown): void {
  expect(Math.abs(sumOf(parts) - total_ms)).toBeLessThan(1);
  if (first_token_ms === null) expect(first).toBeNull();
  else {
    expect(Math.abs(sumOf(first!) - first_token_ms)).toBeLessThan(1);
    expect(first_token_ms).toBeLessThanOrEqual(total_ms + 1);
  }
}

async function read(path: string, key = "red"): Promise<Response> {
  return await fetch(server.origin + path, withKey(key));
}

const recordOf = async (id: string, key = "red"): Promise<Shown> =>
  (await (await read(`/v1/requests/${id}`, key)).json()) as Shown;

const listOf = async (query = "", key = "red"): Promise<List> =>
  (await (await read(`/v1/requests${query}`, key)).json()) as List;

describe.each(byPath)("%s", (path, wire) => {
  test("a record's causes add up to what the client saw", async () => {
    start();
    const response = await post(server, path, wire.body({ content: "Rome?", max: 4 }));
    await response.text();
    const record = await recordOf(response.headers.get("x-request-id")!);
    expectWhole(record);
    expect(record).toMatchObject({ status: "answered", error: null, route: path, model: "demo", choices: 1 });
    expect(record.tokens).toMatchObject({ generated: 4 });
    expect(record.causes.prompt).toBeGreaterThan(0);
    expect(record.causes.decode).toBeGreaterThan(0);
  });

  test("an answer holds its record if the client asks for it", async () => {
    start();
    const headers = { "x-bunting-why": "1" };
    const body = wire.body({ content: "Rome?", max: 4 });
    const whole = (await (await post(server, path, body, { headers })).json()) as {
      readonly bunting: { readonly why: Shown };
    };
    expectWhole(whole.bunting.why);
    const plain = (await (await post(server, path, body)).json()) as object;
    expect(plain).not.toHaveProperty("bunting");
    const response = await post(server, path, { ...body, stream: true }, { headers });
    const text = await response.text();
    const found = whyIn(text);
    expect(found).toHaveLength(1);
    expectWhole(found[0]!);
    expect(found[0]!.id).toBe(response.headers.get("x-request-id")!);
  });

  test("a stop string ends the record with the answer", async () => {
    start();
    const stop = path.startsWith("/v1/responses") ? {} : { stop: ["whole"] };
    const body = wire.body({ content: "Rome?", ...stop });
    const response = await post(server, path, body, { headers: { "x-bunting-why": "1" } });
    const { bunting } = (await response.json()) as { readonly bunting: { readonly why: Shown } };
    expectWhole(bunting.why);
    await server.settled();
    const record = await recordOf(response.headers.get("x-request-id")!);
    expectWhole(record);
    expect(record.status).toBe("answered");
  });
});

/** Records in the data of a stream's events or lines. */
function whyIn(text: string): Shown[] {
  const found: Shown[] = [];
  const look = (value: unknown): void => {
    if (typeof value !== "object" || value === null) return;
    for (const [name, member] of Object.entries(value)) {
      if (name === "bunting") found.push((member as { readonly why: Shown }).why);
      else look(member);
    }
  };
  for (const line of text.split("\n")) {
    const json = line.replace(/^data: /, "");
    if (json.startsWith("{")) look(JSON.parse(json));
  }
  return found;
}

test("several choices have one record, of the one that ended last", async () => {
  start();
  const response = await post(
    server,
    "/v1/chat/completions",
    chatBody("Rome?", { n: 3, seed: 0, max_tokens: 5 }),
  );
  await response.text();
  const record = await recordOf(response.headers.get("x-request-id")!);
  expectWhole(record);
  expect(record).toMatchObject({ choices: 3, tokens: { generated: expect.any(Number) } });
});

test("lists are sorted and cut, and show the slow alone", async () => {
  start();
  for (const max of [2, 12, 6]) {
    const body = chatBody(`Rome ${max}?`, { max_tokens: max, seed: 0, min_tokens: max });
    await (await post(server, "/v1/chat/completions", body)).text();
  }
  const generated = ({ data }: List) => data.map(({ tokens }) => tokens.generated);
  expect(generated(await listOf())).toEqual([6, 12, 2]);
  for (const [order, field] of [
    ["duration", "total_ms"],
    ["first_token", "first_token_ms"],
  ] as const) {
    const times = (await listOf(`?sort=${order}`)).data.map((one) => one[field]!);
    expect(times).toEqual(times.toSorted((a, b) => b - a));
  }
  const first = await listOf("?sort=duration&limit=1");
  expect([first.data.length, first.has_more]).toEqual([1, true]);
  const slowest = Math.floor(first.data[0]!.total_ms);
  expect((await listOf(`?slow=${slowest}`)).data[0]!.id).toBe(first.data[0]!.id);
  expect(generated(await listOf(`?slow=${slowest + 1}`))).toEqual([]);
  for (const query of ["?slow=fast", "?limit=0", "?limit=1001", "?sort=name"]) {
    const refused = await read(`/v1/requests${query}`);
    expect([query, refused.status]).toEqual([query, 400]);
    expect(await refused.text()).toContain(query.slice(1).split("=")[0]!);
  }
});

test("each key sees its own requests, an operator all", async () => {
  start({ keys: { keys: ["red", "blue"], adminKeys: ["boss"] } });
  const response = await post(
    server,
    "/v1/chat/completions",
    chatBody("Rome?", { max_tokens: 2 }),
    withKey("red"),
  );
  await response.text();
  const id = response.headers.get("x-request-id")!;
  expect((await listOf("", "red")).data.map((one) => one.id)).toEqual([id]);
  expect((await listOf("", "blue")).data).toEqual([]);
  expect((await listOf("", "boss")).data.map((one) => one.id)).toEqual([id]);
  expect((await read(`/v1/requests/${id}`, "red")).status).toBe(200);
  expect((await read(`/v1/requests/${id}`, "boss")).status).toBe(200);
  const foreign = await read(`/v1/requests/${id}`, "blue");
  expect(foreign.status).toBe(404);
  expect(await foreign.text()).toBe(
    (await (await read("/v1/requests/req_none", "blue")).text()).replace("req_none", id),
  );
  expect((await fetch(`${server.origin}/v1/requests`)).status).toBe(401);
});

test("embeddings and scores have records", async () => {
  start();
  for (const [path, body] of [
    ["/v1/embeddings", { model: "demo", input: ["Rome", "Paris and more"] }],
    ["/api/embed", { model: "demo", input: "Rome" }],
  ] as const) {
    const response = await post(server, path, body);
    expect([path, response.status]).toEqual([path, 200]);
    await response.text();
    const record = await recordOf(response.headers.get("x-request-id")!);
    expectWhole(record);
    expect(record).toMatchObject({ status: "answered", route: path, first_token_ms: null });
    expect(record.causes.prompt).toBeGreaterThan(0);
  }
});

test("records hold no text", async () => {
  start();
  await (await post(server, "/v1/chat/completions", chatBody("Secretville?", { max_tokens: 8 }))).text();
  const text = await (await read("/v1/requests")).text();
  expect(text).not.toContain("Secretville");
  expect(text).not.toContain("sunny");
});

test("a running request is listed, and one that its client leaves is cancelled", async () => {
  start({ stepMs: 5 });
  const leaving = new AbortController();
  const body = chatBody("Rome?", { stream: true, max_tokens: 2000, ignore_eos: true });
  const response = await post(server, "/v1/chat/completions", body, { signal: leaving.signal });
  const reader = response.body!.getReader();
  await reader.read();
  const [running] = (await listOf()).data;
  expect(running).toMatchObject({ status: "running", id: response.headers.get("x-request-id") });
  expectWhole(running!);
  leaving.abort();
  await server.settled();
  const [ended] = (await listOf()).data;
  expect(ended!.status).toBe("cancelled");
  expectWhole(ended!);
});

test("a request that fails says so, with the reason", async () => {
  start({ fault: () => ({ kind: "retry", reason: "no device" }), engine: { retriesMax: 0 } });
  const response = await post(server, "/v1/chat/completions", chatBody("Rome?", { max_tokens: 2 }));
  expect(response.status).toBe(500);
  const [record] = (await listOf()).data;
  expect(record).toMatchObject({ status: "failed", error: expect.stringContaining("no device") });
  expectWhole(record!);
});

test("metrics count seconds by cause", async () => {
  start();
  const response = await post(server, "/v1/chat/completions", chatBody("Rome?", { max_tokens: 6 }));
  await response.text();
  const { total_ms: totalMs } = await recordOf(response.headers.get("x-request-id")!);
  const metrics = await (await fetch(`${server.origin}/metrics`)).text();
  const rows = [...metrics.matchAll(/^bunting_request_seconds_total\{cause="(\w+)"\} (\S+)$/gm)];
  const seconds = Object.fromEntries(rows.map(([, name, value]) => [name!, 1000 * Number(value)]));
  expect(Math.abs(sumOf(seconds) - totalMs)).toBeLessThan(1);
});

test("a stream with usage has one last chunk for both", async () => {
  start();
  const body = chatBody("Rome?", {
    stream: true,
    seed: 0,
    max_tokens: 3,
    stream_options: { include_usage: true },
  });
  const headers = { "x-bunting-why": "1" };
  const { events } = await readEvents(await post(server, "/v1/chat/completions", body, { headers }));
  expect(events.at(-1)).toBe("[DONE]");
  const last = JSON.parse(events.at(-2)!) as Record<string, unknown>;
  expect(last).toMatchObject({ choices: [], usage: { completion_tokens: 3 }, bunting: { why: {} } });
});

test("Responses and Messages carry the record in their last events", async () => {
  start();
  const eventOf = async (path: string, name: string): Promise<unknown> => {
    const wire = wires.find((one) => one.path === path)!;
    const body = { ...wire.body({ content: "Rome?", max: 3 }), stream: true };
    const text = await (await post(server, path, body, { headers: { "x-bunting-why": "1" } })).text();
    const data = text.split("\n").filter((line) => line.startsWith("data: "));
    return data.map((line) => JSON.parse(line.slice(6))).find(({ type }) => type === name);
  };
  const why = { why: { object: "request" } };
  expect(await eventOf("/v1/messages", "message_delta")).toMatchObject({ bunting: why });
  expect(await eventOf("/v1/responses", "response.incomplete")).toMatchObject({ response: { bunting: why } });
});
