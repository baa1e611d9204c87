/** Urgency of requests, as clients set it. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { Chunk, Service, Step } from "../../scheduler/core.ts";
import { unknownCost } from "../../scheduler/cost/linear.ts";
import { optionsOf } from "../../scheduler/engine/engine-options.ts";
import { ours } from "../../scheduler/policies.ts";
import { deviceSpec } from "../../simulation/factories.ts";
import { bodyOf, chatBody, chunksOf, post, readEvents, startTestServer, type TestServer } from "./server.ts";

const route = "/v1/chat/completions";
const spec = deviceSpec({ pages: 4096, stepTokensMax: 1024, stepChunksMax: 256, contextMax: 2048 });
const steps: Step[] = [];
const services: Service[] = [];

let server: TestServer;
beforeAll(() => {
  server = startTestServer({
    engine: optionsOf(ours(null), spec, 1),
    fault: (step) => {
      steps.push(step);
      return null;
    },
  });
  const { submit } = server.fleet;
  server.fleet.submit = (sequence, listener) => {
    services.push(sequence.service);
    return submit.call(server.fleet, sequence, listener);
  };
});
afterEach(() => server.settled());
afterAll(() => server.close());

const headers = (given: Readonly<Record<string, string>>) => ({ headers: given });

describe("what a request asks for", () => {
  test("reaches the scheduler, and its answer names the tier that was used", async () => {
    services.length = 0;
    const ask = async (more: object, given: Readonly<Record<string, string>> = {}): Promise<unknown> => {
      const response = await post(server, route, chatBody("Hi", { max_tokens: 1, ...more }), headers(given));
      expect(response.headers.get("x-bunting-ignored")).toBeNull();
      return ((await bodyOf(response)) as { service_tier?: unknown }).service_tier;
    };
    expect([
      await ask({}),
      await ask({ service_tier: "auto" }),
      await ask({ service_tier: "flex" }),
      await ask({ service_tier: "priority" }, { "x-slo-ttft-ms": "300" }),
      await ask({ priority: 3 }, { "x-bunting-tbt-ms": "40" }),
    ]).toEqual([undefined, "default", "flex", "priority", undefined]);
    const usual: Service = {
      objective: "latency",
      tenant: "",
      tbtMs: null,
      ttftMs: null,
      priority: 0,
      taskGroup: null,
      program: null,
      session: { id: 0, parent: null },
    };
    expect(services).toEqual([
      usual,
      usual,
      { ...usual, objective: "throughput", session: null },
      { ...usual, priority: -1, ttftMs: 300 },
      { ...usual, priority: 3, tbtMs: 40 },
    ]);
  });

  test("is named in every chunk of a stream", async () => {
    const response = await post(
      server,
      route,
      chatBody("Hi", { stream: true, service_tier: "flex", max_tokens: 3 }),
    );
    const tiers = chunksOf((await readEvents(response)).events).map(
      (chunk) => (chunk as { service_tier?: string }).service_tier,
    );
    expect(new Set(tiers)).toEqual(new Set(["flex"]));
  });

  test("is refused with the value that was given", async () => {
    const messageOf = async (
      more: object,
      given: Readonly<Record<string, string>> = {},
    ): Promise<unknown> => {
      const response = await post(server, route, chatBody("Hi", { ...more }), headers(given));
      expect(response.status).toBe(400);
      return ((await response.json()) as { error: { message: string } }).error.message;
    };
    expect([
      await messageOf({ service_tier: "scale" }),
      await messageOf({}, { "x-bunting-tbt-ms": "-1" }),
    ]).toEqual([
      'service_tier must be auto, default, flex or priority, but "scale" was given',
      'the header x-bunting-tbt-ms must be milliseconds from 1 to 60000, but is "-1"',
    ]);
  });
});

/**
 * Returns the most tokens in a step that also decodes a chat, while prompts of 600 tokens arrive beside it.
 */
async function mostBesideChat(tier: string, firstToken: number): Promise<number> {
  steps.length = 0;
  const reader = new AbortController();
  const init = { signal: reader.signal };
  const chat = chatBody("Tell me a story.", { stream: true, max_tokens: 1500, ignore_eos: true });
  const response = await post(server, route, chat, init);
  const body = response.body!.getReader();
  while (steps.length === 0) await body.read();
  const chatId = steps.at(-1)!.chunks[0]!.sequence;
  const prompts = [1, 2, 3].map((first) =>
    Array.from({ length: 600 }, (_, i) => firstToken + ((i * first) % 1000)),
  );
  await Promise.all(
    prompts.map(async (prompt) => {
      const more = { prompt, max_tokens: 2, ignore_eos: true, service_tier: tier };
      await bodyOf(await post(server, "/v1/completions", more));
    }),
  );
  reader.abort();
  await server.settled();
  const undrafted = ({ tokens, drafted = 0 }: Chunk): number => tokens.length - drafted;
  const beside = steps.filter(
    ({ chunks }) =>
      chunks.length > 1 && chunks.some((chunk) => chunk.sequence === chatId && undrafted(chunk) === 1),
  );
  return Math.max(...beside.map(({ chunks }) => chunks.reduce((sum, chunk) => sum + undrafted(chunk), 0)));
}

test("flex requests beside a chat leave its steps as they were, up to a sixteenth; usual ones do not", async () => {
  const { stepMs, tokenMs } = unknownCost.state;
  const alone = stepMs + tokenMs;
  expect(await mostBesideChat("flex", 100)).toBeLessThanOrEqual((alone * 1.0625 - stepMs) / tokenMs);
  expect(await mostBesideChat("default", 1500)).toBeGreaterThan(100);
});
