/** Estimates of when an answer begins: before it is asked for, and while it waits. */
import { afterEach, expect, test } from "bun:test";
import { chatBody, post, startTestServer, type TestServer, type TestServerOptions } from "./server.ts";

let server: TestServer;
afterEach(async () => {
  await server.settled();
  await server.close();
});

function start(options: TestServerOptions = {}): void {
  server = startTestServer({ stepMs: 2, answers: ["It is sunny in the whole city today."], ...options });
}

interface Estimated {
  readonly position: number;
  readonly prompt_tokens: number;
  readonly first_token_ms: { readonly expected: number; readonly low: number; readonly high: number };
  readonly end_ms: { readonly expected: number; readonly low: number; readonly high: number };
}

test("the same body as a chat's has an estimate, and asks nothing of the model", async () => {
  start();
  const body = chatBody("What is the weather like in Rome?", { max_tokens: 20 });
  const response = await post(server, "/v1/estimate", body);
  expect(response.status).toBe(200);
  const estimate = (await response.json()) as Estimated;
  expect(estimate).toMatchObject({ object: "estimate", model: "demo", position: 0 });
  for (const { low, expected, high } of [estimate.first_token_ms, estimate.end_ms]) {
    expect(low).toBeLessThanOrEqual(expected);
    expect(expected).toBeLessThanOrEqual(high);
  }
  expect(estimate.end_ms.expected).toBeGreaterThanOrEqual(estimate.first_token_ms.expected);
  expect(server.fleet.loads()[0]!.stepsTotal).toBe(0);
  const chat = (await (await post(server, "/v1/chat/completions", body)).json()) as {
    readonly usage: { readonly prompt_tokens: number };
  };
  expect(estimate.prompt_tokens).toBe(chat.usage.prompt_tokens);
});

test("a body that a chat refuses is refused alike", async () => {
  start();
  const body = chatBody("Rome?", { temperature: -1 });
  const [estimate, chat] = await Promise.all(
    ["/v1/estimate", "/v1/chat/completions"].map((path) => post(server, path, body)),
  );
  expect([estimate!.status, await estimate!.text()]).toEqual([chat!.status, await chat!.text()]);
});

test("a stream that waits has its place and its time in its head, and in comments", async () => {
  start({ stepMs: 4, limits: { commitMs: 20 }, spec: { stepChunksMax: 1 } });
  const leaving = new AbortController();
  const long = chatBody("Rome?", { stream: true, max_tokens: 4000, ignore_eos: true });
  const first = await post(server, "/v1/chat/completions", long, { signal: leaving.signal });
  await first.body!.getReader().read();
  const response = await post(
    server,
    "/v1/chat/completions",
    chatBody("Paris?", { stream: true, max_tokens: 2 }),
  );
  expect(response.headers.get("x-bunting-eta")).toMatch(
    /^position=0; first_token_s=[\d.]+; low=[\d.]+; high=[\d.]+$/,
  );
  const waiting = (await (await post(server, "/v1/estimate", chatBody("Oslo?"))).json()) as Estimated;
  expect(waiting.position).toBe(1);
  leaving.abort();
  const text = await response.text();
  expect(text).toMatch(/^: position 0, first token in [\d.]+ s \([\d.]+ to [\d.]+\)$/m);
  expect(text).toEndWith("data: [DONE]\n\n");
});

test("an answer that need not wait has no such header", async () => {
  start();
  const response = await post(
    server,
    "/v1/chat/completions",
    chatBody("Rome?", { stream: true, max_tokens: 2 }),
  );
  expect(response.headers.get("x-bunting-eta")).toBeNull();
  expect(await response.text()).not.toContain(": position");
});
