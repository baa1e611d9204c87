import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { apiBase, eventData } from "./client.ts";
import { type LoadPlan, runLoad } from "./load.ts";
import { table } from "./table.ts";

const plan: LoadPlan = {
  model: "m",
  requests: 6,
  arrivals: { kind: "closed", clients: 3 },
  promptTokens: 40,
  sharedPrefixTokens: 20,
  outputTokens: 5,
  ignoreEos: true,
  seed: 7,
};

test("events are read whole however the bytes are cut", async () => {
  const text = ': ping\n\ndata: {"a":"ü€😀"}\r\n\ndata:second\n\ndata: [DONE]\n\n';
  const bytes = new TextEncoder().encode(text);
  for (const size of [1, 2, 3, 7, bytes.length]) {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size));
        controller.close();
      },
    });
    expect(await Array.fromAsync(eventData(body))).toEqual(['{"a":"ü€😀"}', "second", "[DONE]"]);
  }
});

test("a base URL may be given with or without scheme and path", () => {
  expect(["localhost:8000", "http://localhost:8000/", "http://localhost:8000/v1/"].map(apiBase)).toEqual(
    Array(3).fill("http://localhost:8000/v1"),
  );
  expect(apiBase("https://host/api/openai/v1")).toBe("https://host/api/openai/v1");
});

test("tables set numbers to the right and say where there are none", () => {
  const text = table(
    ["name", "count"],
    [
      ["a", 7],
      ["long", 1234],
      ["none", null],
    ],
  );
  expect(text).toBe("name  count\na         7\nlong   1234\nnone      –");
});

describe("a run", () => {
  // Server that counts one token per word plus two, and fails every request with max_tokens 13.
  let server: ReturnType<typeof Bun.serve>;
  let openNow = 0;
  let openMost = 0;
  /** Number of requests that are answered together, once as many are open. A calibrating request is answered alone. */
  let together = 1;
  const waiting: (() => void)[] = [];
  const chunk = (body: unknown): string => `data: ${JSON.stringify(body)}\n\n`;

  beforeAll(() => {
    server = Bun.serve({
      port: 0,
      async fetch(request) {
        const body = (await request.json()) as { messages: { content: string }[]; max_tokens: number };
        if (body.max_tokens === 13) return Response.json({ error: { message: "thirteen" } }, { status: 400 });
        openMost = Math.max(openMost, ++openNow);
        await new Promise<void>((resume) => {
          waiting.push(resume);
          if (body.max_tokens === plan.outputTokens && waiting.length < together) return;
          for (const resume of waiting.splice(0)) resume();
        });
        openNow--;
        const prompt = body.messages[0]!.content.split(" ").length + 2;
        const pieces = Array.from({ length: body.max_tokens }, (_, i) =>
          chunk({ choices: [{ delta: { content: `${i} ` } }] }),
        );
        const usage = {
          prompt_tokens: prompt,
          completion_tokens: body.max_tokens,
          prompt_tokens_details: { cached_tokens: 10 },
        };
        const end =
          chunk({ choices: [{ delta: {}, finish_reason: "length" }] }) + chunk({ choices: [], usage });
        return new Response(`${pieces.join("")}${end}data: [DONE]\n\n`);
      },
    });
  });
  afterAll(() => server.stop(true));

  const run = (changes: Partial<LoadPlan>) =>
    runLoad(
      { url: server.url.href, apiKey: null },
      { ...plan, ...changes },
      () => {},
      new AbortController().signal,
    );

  test("of clients that wait counts every request, token and cached token", async () => {
    openMost = 0;
    together = 3;
    const report = await run({});
    expect(report).toMatchObject({
      completed: 6,
      failed: 0,
      outputTokens: 30,
      promptTokens: 240,
      cachedShare: 0.25,
    });
    expect(openMost).toBe(3);
    expect(report.perTokenMs!.max).toBeLessThan(report.endToEndMs!.max / 4);
    expect(report.ttftMs!.p50).toBeGreaterThan(0);
  });

  test("by Poisson arrivals sends all of them, without waiting for answers", async () => {
    openMost = 0;
    together = 20;
    const report = await run({ arrivals: { kind: "poisson", perSecond: 1e6 }, requests: 20 });
    expect(report).toMatchObject({ completed: 20, failed: 0 });
    expect(openMost).toBe(20);
  });

  test("tells what failed", async () => {
    const report = await run({ outputTokens: 13 });
    expect(report).toMatchObject({ completed: 0, failed: 6, errors: { thirteen: 6 }, ttftMs: null });
  });
});
