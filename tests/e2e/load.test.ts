/** Many clients, clients that leave, and clients that do not read: none of them leaves resources behind. */
import { heapStats } from "bun:jsc";
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import fc from "fast-check";
import type { EngineId } from "../../scheduler/core.ts";
import { largeBodies } from "../support/large-bodies.ts";
import {
  chatBody,
  chunksOf,
  contentOf,
  post,
  readEvents,
  startTestServer,
  type TestServer,
  type Wire,
} from "./server.ts";

const streamOf = (content: string, more: object = {}) =>
  chatBody(content, { stream: true, ignore_eos: true, ...more });

test("200 streams at once, half of which leave at a random moment, leave nothing behind", async () => {
  const server = startTestServer({ stepMs: 1 });
  const seed = 20_261_121;
  const round = async (seedOfRound: number) => {
    const leaves = fc.sample(fc.integer({ min: 0, max: 40 }), { numRuns: 200, seed: seedOfRound });
    const texts = await Promise.all(
      leaves.map(async (chunks, i) => {
        const body = streamOf(`Client ${i} says something of its own`, { max_tokens: 60, seed: i });
        if (i % 2 === 0)
          return contentOf((await readEvents(await post(server, "/v1/chat/completions", body))).events);
        await leaveAfter(server, body, chunks);
        return null;
      }),
    );
    await server.settled();
    return texts.filter((text) => text !== null);
  };
  const first = await round(seed);
  expect(first).toHaveLength(100);
  expect(await round(seed + 1)).toEqual(first);
  const before = memory();
  const [rounds, streams] = [8, 8 * 200];
  for (let i = 0; i < rounds; i++) expect(await round(seed + 2 + i)).toEqual(first);
  const after = memory();
  const more = (type: string) => (after.counts[type] ?? 0) - (before.counts[type] ?? 0);
  for (const type of STREAM_OBJECTS) expect(more(type), type).toBeLessThan(streams / 10);
  // The records of the last 10,000 requests hold some thirty objects each.
  expect(after.objects - before.objects).toBeLessThan(streams * 40);
  expect(after.bytesInUse - before.bytesInUse).toBeLessThan(streams * 16 * 1024);
  await server.close();
}, 30_000);

/** Objects of JavaScript that every stream makes, and that must go with it. */
const STREAM_OBJECTS = ["Promise", "Request", "Response", "ReadableStream", "AbortSignal", "Timeout"];

/**
 * Counts objects and bytes in use after a collection. Resident memory says less: allocators keep free pages,
 * and the tests before this one leave many.
 */
function memory() {
  Bun.gc(true);
  const { objectCount: objects, objectTypeCounts: counts, heapSize, extraMemorySize } = heapStats();
  return { objects, counts: counts as Record<string, number>, bytesInUse: heapSize + extraMemorySize };
}

/**
 * Starts a stream and cuts the connection after `chunks` chunks; 0 cuts it right after the request is sent.
 */
async function leaveAfter(server: TestServer, body: object, chunks: number): Promise<void> {
  const controller = new AbortController();
  const request = post(server, "/v1/chat/completions", body, { signal: controller.signal });
  if (chunks === 0) {
    queueMicrotask(() => controller.abort());
    await request.catch(() => {});
    return;
  }
  const reader = (await request).body!.getReader();
  for (let i = 0; i < chunks; i++) if ((await reader.read()).done) break;
  controller.abort();
  await reader.closed.catch(() => {});
}

test("a client that leaves has its pages back within a step or two", async () => {
  const server = startTestServer({ stepMs: 20 });
  const controller = new AbortController();
  const body = streamOf("A long story", { max_tokens: 1000 });
  const response = await post(server, "/v1/chat/completions", body, { signal: controller.signal });
  const reader = response.body!.getReader();
  await reader.read();
  await reader.read();
  const stepsBefore = server.fleet.loads()[0]!.stepsTotal;
  controller.abort();
  await server.settled();
  expect(server.fleet.loads()[0]!.stepsTotal - stepsBefore).toBeLessThanOrEqual(3);
  await server.close();
});

/**
 * Body whose answer far exceeds socket buffers: 8 choices of 1000 tokens with 20 alternatives each are some
 * 12 MB.
 */
const flood = { max_tokens: 1000, seed: 9, logprobs: true, top_logprobs: 20, n: 8 };

test("a reader that stops is paused, and goes on where it was when it reads again", async () => {
  const server = startTestServer({ stepMs: 0.2 });
  const body = streamOf("Tell me all", flood);
  const reference = await readEvents(await post(server, "/v1/chat/completions", body));
  const load = () => server.fleet.loads()[0]!;
  const tell = async () => {
    const quick = chatBody("Quick", { max_tokens: 1 });
    await (await post(server, "/v1/chat/completions", quick)).json();
  };

  const reader = slowReader(server, body);
  const tokensBefore = load().generatedTokensTotal;
  let told = 0;
  // The reader's system may accept more after the pause; the streams then continue for a moment.
  for (let tokensThen = -1; load().generatedTokensTotal !== tokensThen + 20; ) {
    tokensThen = load().generatedTokensTotal;
    for (let i = 0; i < 20; i++, told++) await tell();
  }
  expect(load().paused).toBe(8);
  expect(load().generatedTokensTotal - tokensBefore - told).toBeLessThan(4000);

  const events = await reader.readAll();
  for (let index = 0; index < 8; index++) {
    expect(contentOf(events, index)).toBe(contentOf(reference.events, index));
  }
  expect(events.at(-1)).toBe("[DONE]");
  await server.settled();
  await server.close();
}, 20_000);

test.skipIf(process.platform !== "linux")(
  "streams that nobody reads are computed no further than connections hold, hold little, and leave nothing",
  async () => {
    const server = startTestServer({ stepMs: 0.2 });
    const load = () => server.fleet.loads()[0]!;
    const tell = async () => {
      const quick = chatBody("Quick", { max_tokens: 1 });
      await (await post(server, "/v1/chat/completions", quick)).json();
    };
    const [streams, choices] = [16, 8];
    const tokens = { max_tokens: 1000, n: choices };
    const readers = Array.from({ length: streams }, (_, i) =>
      slowReader(server, streamOf("Tell me much", { ...tokens, seed: 100 * i })),
    );
    await until(() => server.fleet.active === streams * choices);
    while (load().paused < streams * choices && server.fleet.active > 0) await tell();
    const state = (await (await fetch(`${server.origin}/state`)).json()) as {
      engines: { load: { paused: number } }[];
    };
    expect(state.engines[0]!.load.paused).toBe(streams * choices);
    const paused = load();
    // Without a bound, Linux buffers some 11,000 tokens of a stream: all that this test requests.
    expect(paused.generatedTokensTotal / streams).toBeLessThan(2000);
    for (let i = 0; i < 20; i++) await tell();
    expect(load().generatedTokensTotal).toBe(paused.generatedTokensTotal + 20);
    // Bounds the unsent bytes (16 KiB and one write) plus the sent bytes without an acknowledgement.
    const held = unsentBytes(server);
    expect(held).toHaveLength(streams);
    for (const bytes of held) expect(bytes).toBeLessThan(128 * 1024);

    for (const { leave } of readers) leave();
    await server.settled();
    await Promise.all(readers.map(({ closed }) => closed));
    expect(load().paused).toBe(0);
    expect(unsentBytes(server)).toEqual([]);
    await server.close();
  },
  20_000,
);

/**
 * Returns the kernel's buffered bytes per server connection. Skips connections with only a short answer,
 * whose acknowledgement may be delayed.
 */
function unsentBytes(server: TestServer): number[] {
  const port = Number(new URL(server.origin).port).toString(16).toUpperCase().padStart(4, "0");
  const established = "01";
  return readFileSync("/proc/net/tcp", "utf8")
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([, local, , state]) => local?.endsWith(`:${port}`) === true && state === established)
    .map(([, , , , queues]) => Number.parseInt(queues!.split(":")[0]!, 16))
    .filter((bytes) => bytes > 4096);
}

test("a reader that never reads again is cut off, and holds nothing", async () => {
  const server = startTestServer({ stepMs: 0.2, limits: { stallMs: 200 } });
  const reader = slowReader(server, streamOf("Tell me all", flood));
  await until(() => server.fleet.active > 0);
  await server.settled();
  expect(await reader.closed).toBe("reset");
  await server.close();
}, 20_000);

test("a stream that waits is told so at once, and then by comments", async () => {
  const server = startTestServer({
    stepMs: 5,
    engine: { admission: { sequencesMax: 1 } },
    limits: { commitMs: 30, keepAliveMs: 40 },
  });
  const first = post(server, "/v1/chat/completions", streamOf("First", { max_tokens: 150 }));
  await until(() => server.fleet.active === 1);
  const second = await post(server, "/v1/chat/completions", streamOf("Second", { max_tokens: 3 }));
  expect([second.status, server.fleet.active]).toEqual([200, 2]);
  const { events, comments } = await readEvents(second);
  expect(comments).toBeGreaterThanOrEqual(3);
  expect(chunksOf(events).at(-1)!.choices[0]!.finish_reason).toBe("length");
  await (await first).text();
  await server.settled();
  await server.close();
});

test("a full queue is a 503 with a time to try again, in a stream too", async () => {
  const server = startTestServer({ stepMs: 5, engine: { queueMax: 1, admission: { sequencesMax: 1 } } });
  const running = post(server, "/v1/chat/completions", streamOf("First", { max_tokens: 30 }));
  await until(() => server.fleet.active === 1);
  const waiting = post(server, "/v1/chat/completions", streamOf("Second", { max_tokens: 3 }));
  await until(() => server.fleet.active === 2);
  for (const stream of [true, false]) {
    const refused = await post(server, "/v1/chat/completions", chatBody("Third", { stream }));
    expect(refused.status).toBe(503);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    const { error } = (await refused.json()) as Wire;
    expect<unknown>([error.type, error.code]).toEqual(["overloaded_error", "server_overloaded"]);
  }
  await (await running).text();
  await (await waiting).text();
  await server.settled();
  await server.close();
});

test("draining finishes what runs, refuses what is new, and cuts what takes too long", async () => {
  const server = startTestServer({ stepMs: 2 });
  const long = await post(server, "/v1/chat/completions", streamOf("Long", { max_tokens: 2000 }));
  const short = post(server, "/v1/chat/completions", chatBody("Short", { max_tokens: 10, ignore_eos: true }));
  await until(() => server.fleet.active === 2);
  const drained = server.lifecycle.drain(400);

  const refused = await post(server, "/v1/chat/completions", chatBody("New"));
  expect([refused.status, ((await refused.json()) as Wire).error.code]).toEqual([503, "draining"]);
  expect((await fetch(`${server.origin}/health/ready`)).status).toBe(503);
  expect((await fetch(`${server.origin}/health`)).status).toBe(200);

  expect((await short).status).toBe(200);
  const { events } = await readEvents(long);
  expect((JSON.parse(events.at(-1)!) as Wire).error.code).toBe("draining");
  expect(events).not.toContain("[DONE]");
  expect(await drained).toBe(1);
  await server.settled();
  await server.close();
});

test("an engine that is lost ends its streams with an error that invites another try", async () => {
  const server = startTestServer({ stepMs: 5 });
  const stream = await post(server, "/v1/chat/completions", streamOf("One", { max_tokens: 1000 }));
  const whole = post(server, "/v1/chat/completions", chatBody("Two", { max_tokens: 1000, ignore_eos: true }));
  await until(() => server.fleet.active === 2);
  server.lifecycle.becomeLost("the device does not answer");
  server.fleet.lost(0 as EngineId, "the device does not answer");

  const { events } = await readEvents(stream);
  expect((JSON.parse(events.at(-1)!) as Wire).error.code).toBe("engine_lost");
  for (const response of [await whole, await fetch(`${server.origin}/health`)]) {
    expect(response.status).toBe(503);
    expect(response.headers.get("retry-after")).not.toBeNull();
    expect(((await response.json()) as Wire).error.code).toBe("engine_lost");
  }
  expect([server.lifecycle.active, server.generator.active]).toEqual([0, 0]);
  await server.close();
});

test("metrics count what happened", async () => {
  const server = startTestServer();
  const metrics = async () => {
    const response = await fetch(`${server.origin}/metrics`);
    expect(response.headers.get("content-type")).toStartWith("text/plain; version=0.0.4");
    return parseMetrics(await response.text());
  };
  const before = await metrics();
  await (
    await post(server, "/v1/chat/completions", chatBody("One", { max_tokens: 20, ignore_eos: true, n: 2 }))
  ).json();
  await readEvents(await post(server, "/v1/chat/completions", streamOf("Two", { max_tokens: 10 })));
  await leaveAfter(server, streamOf("Three", { max_tokens: 1000 }), 2);
  await server.settled();
  const after = await metrics();
  const grew = (name: string) => (after.get(name) ?? Number.NaN) - (before.get(name) ?? 0);
  const engine = `model_name="demo",engine="0"`;

  expect(grew(`vllm:request_success_total{${engine},finished_reason="length"}`)).toBe(3);
  expect(grew(`vllm:request_success_total{${engine},finished_reason="abort"}`)).toBe(1);
  expect(grew(`vllm:generation_tokens_total{${engine}}`)).toBeGreaterThanOrEqual(50);
  expect(grew(`vllm:time_to_first_token_seconds_count{${engine}}`)).toBe(3);
  expect(grew(`vllm:e2e_request_latency_seconds_count{${engine}}`)).toBe(3);
  expect(grew(`vllm:inter_token_latency_seconds_count{${engine}}`)).toBeGreaterThan(20);
  expect(grew(`vllm:iteration_tokens_total_count{${engine}}`)).toBe(grew(`bunting_steps_total{${engine}}`));
  expect(
    grew(`http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx",code="200"}`),
  ).toBe(3);
  expect(grew(`bunting_placements_total{engine="0",reason="only"}`)).toBe(4);
  expect(grew(`bunting_steps_over_target_total{${engine}}`)).toBe(0);
  expect(after.get(`bunting_step_prediction_error{${engine}}`)).toBe(0.05);
  expect(after.get(`bunting_engine_restarts_total{engine="0"}`)).toBe(0);
  expect(after.get(`vllm:num_requests_running{${engine}}`)).toBe(0);
  expect(after.get(`vllm:num_requests_waiting{${engine}}`)).toBe(0);
  expect(after.get(`vllm:kv_cache_usage_perc{${engine}}`)).toBe(0);
  expect(after.get(`vllm:cache_config_info{${engine},block_size="16",num_gpu_blocks="4096"}`)).toBe(1);
  await server.close();
});

/** Parses the exposition; every line must be a comment or a sample. */
function parseMetrics(text: string): Map<string, number> {
  const samples = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("# HELP ") || line.startsWith("# TYPE ")) continue;
    const [, name, value] = /^([a-zA-Z_:][\w:]*(?:\{.*\})?) (\S+)$/.exec(line) ?? [];
    expect(name, line).toBeString();
    samples.set(name!, Number(value));
  }
  return samples;
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1));
}

/** Client that requests a stream and, after its first bytes, reads no more until resumed. */
function slowReader(server: TestServer, body: object) {
  const socket: Socket = connect(Number(new URL(server.origin).port), "127.0.0.1");
  const text = JSON.stringify(body);
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n` +
      `Connection: close\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
  );
  const parts: Buffer[] = [];
  const closed = new Promise<"reset" | "ended">((resolve) => {
    socket.once("error", () => resolve("reset"));
    socket.once("close", () => resolve("ended"));
  });
  socket.on("data", (part: Buffer) => parts.push(part));
  socket.once("data", () => socket.pause());
  return {
    closed,
    leave: () => socket.destroy(),
    async readAll(): Promise<string[]> {
      socket.resume();
      await closed;
      const answer = dechunk(Buffer.concat(parts));
      return answer
        .split("\n\n")
        .filter((frame) => frame.startsWith("data: "))
        .map((frame) => frame.slice(6));
    },
  };
}

/** Decodes the body of an HTTP/1.1 answer in chunked transfer encoding. */
function dechunk(answer: Buffer): string {
  let at = answer.indexOf("\r\n\r\n") + 4;
  const parts: Buffer[] = [];
  for (;;) {
    const lineEnd = answer.indexOf("\r\n", at);
    const size = Number.parseInt(answer.toString("latin1", at, lineEnd), 16);
    if (!(size > 0)) return Buffer.concat(parts).toString();
    parts.push(answer.subarray(lineEnd + 2, lineEnd + 2 + size));
    at = lineEnd + 2 + size + 2;
  }
}

test("bodies as large as may be are refused one and all, beside streams that get every token", async () => {
  const server = startTestServer({ stepMs: 1 });
  const stream = async (seed: number): Promise<string> => {
    const response = await post(
      server,
      "/v1/chat/completions",
      streamOf("Go on", { max_tokens: 1500, seed }),
    );
    return contentOf((await readEvents(response)).events);
  };
  const alone = await Promise.all([1, 2, 3].map(stream));
  const streams = Promise.all([1, 2, 3].map(stream));
  for (const { route, text, status, says } of largeBodies) {
    const body = text();
    const answers = await Promise.all([1, 2].map(() => post(server, route, body)));
    expect(answers.map((answer) => answer.status)).toEqual([status, status]);
    for (const answer of answers) expect(await answer.text()).toMatch(says);
  }
  expect(await streams).toEqual(alone);
  await server.settled();
  await server.close();
}, 60_000);
