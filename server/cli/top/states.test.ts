import { afterEach, expect, test } from "bun:test";
import { ConnectionLost, ServerError } from "../client.ts";
import type { TopState } from "./frame.ts";
import { lastingStates, passes, pauseMsBefore } from "./states.ts";

const FACTS = { version: "1", model: "demo", contextMax: 256, status: "ready", refusal: null, isAdmin: true };
let server: Bun.Server<undefined> | undefined;
afterEach(() => server?.stop(true));

/** Starts a server whose connections are answered in turn: a text is a whole stream, a number a refusal. */
function answering(...answers: readonly (string | number)[]): string {
  const left = [...answers];
  server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: () => {
      const answer = left.shift() ?? 404;
      if (typeof answer === "number")
        return Response.json({ error: { message: `no ${answer}` } }, { status: answer });
      return new Response(answer, { headers: { "content-type": "text/event-stream" } });
    },
  });
  return server.url.href;
}

const event = (version: string): string =>
  `data: ${JSON.stringify({ kind: "facts", facts: { ...FACTS, version } })}\n\n`;

/** States as "version" or "version: reason", then the error that ends them. */
async function toldBy(url: string): Promise<string[]> {
  const told: string[] = [];
  const tell = ({ facts, lost }: TopState): number =>
    told.push(lost === null ? facts!.version : `${facts!.version}: ${lost.reason}`);
  try {
    for await (const state of lastingStates({ url, apiKey: null }, new AbortController().signal)) tell(state);
  } catch (error) {
    told.push(`end: ${(error as Error).message}`);
  }
  return told;
}

test("pauses double up to half a minute", () => {
  expect([0, 1, 2, 3, 5, 6, 7, 100].map(pauseMsBefore)).toEqual([
    500, 1000, 2000, 4000, 16_000, 30_000, 30_000, 30_000,
  ]);
});

test("a broken connection keeps the last state, and the next one goes on, until an error that stays", async () => {
  expect(await toldBy(answering(event("1"), event("2"), 404))).toEqual([
    "1",
    "1: The server has ended, or broke off.",
    "2",
    "2: The server has ended, or broke off.",
    "end: no 404",
  ]);
});

test("an error before the first state ends at once, also one that passes", async () => {
  expect(await toldBy(answering(503))).toEqual(["end: no 503"]);
});

test("only errors of a server that is away or busy pass", () => {
  const error = (status: number): ServerError => new ServerError(status, "x");
  expect([408, 429, 500, 502, 503].map((status) => passes(error(status)))).toEqual(Array(5).fill(true));
  expect([0, 400, 401, 403, 404, 405].map((status) => passes(error(status)))).toEqual(Array(6).fill(false));
  expect(passes(new ConnectionLost(0, "x"))).toBe(true);
  expect(passes(new Error("a bug"))).toBe(false);
});
