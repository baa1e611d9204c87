/** Streams of requests that wait for their model: comments tell of progress, and refusals are events. */

import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { CacheRecords } from "../../server/api/cache-records.ts";
import { refusalOn } from "../../server/api/refusals.ts";
import { KeptResponses } from "../../server/api/responses/kept.ts";
import type { ModelHost } from "../../server/api/several.ts";
import { severalRoutes } from "../../server/api/several.ts";
import { RequestRecords } from "../../server/explain/request-records.ts";
import { createApp } from "../../server/http/app.ts";
import { ApiKeys } from "../../server/http/auth.ts";
import { BodyReader } from "../../server/http/body.ts";
import { badRequest } from "../../server/http/errors.ts";
import { JsonReader } from "../../server/http/json/reader.ts";
import { KeptStreams } from "../../server/http/kept-streams.ts";
import { Lifecycle } from "../../server/http/lifecycle.ts";
import { defaultHttpLimits } from "../../server/http/limits.ts";
import type { Call } from "../../server/http/route.ts";
import { HttpServer } from "../../server/http/server.ts";
import { ResponseStream, sseFraming } from "../../server/http/stream.ts";
import { Telemetry } from "../../server/http/telemetry.ts";
import { ModelSet, type OnLoading } from "../../server/models/model-set.ts";
import { UsageLedger } from "../../server/usage/ledger.ts";

/** Load that the test ends. */
interface Load {
  readonly tell: OnLoading;
  readonly end: (host: ModelHost) => void;
  readonly fail: (error: Error) => void;
}

let begun = Promise.withResolvers<Load>();
beforeEach(() => {
  begun = Promise.withResolvers();
});

/** A model whose chats stream one event. */
const host = {
  routes: [
    {
      method: "POST",
      path: "/v1/chat/completions",
      isPublic: false,
      handler: async (call: Call) => {
        const { messages } = await call.readWork();
        if (messages === undefined)
          throw badRequest("messages must be an array, but nothing was given", "messages");
        const stream = new ResponseStream(call.reply, sseFraming, defaultHttpLimits, {
          pause: () => {},
          resume: () => {},
          abort: () => {},
        });
        stream.write("data: hello\n\n");
        stream.end();
        return stream.response();
      },
    },
  ],
  programs: { has: () => false },
  whenIdle: () => Promise.resolve(),
  lost: new Promise<string>(() => {}),
  close: () => Promise.resolve(),
} as unknown as ModelHost;

const set = new ModelSet<ModelHost>(
  [
    {
      name: "slow",
      bytes: 1,
      loadMs: 1,
      isPinned: false,
      keepAliveMs: 0,
      check: () => {},
      load: (tell) => {
        const { promise, resolve, reject } = Promise.withResolvers<ModelHost>();
        begun.resolve({ tell, end: resolve, fail: reject });
        return promise;
      },
    },
  ],
  { memoryBytes: 1, waitMs: 60_000, waitingMax: 9 },
);
let server: HttpServer;
const json = new JsonReader(new URL("../../server/http/json/worker.ts", import.meta.url).href);
const responses = new KeptResponses(null);

beforeAll(() => {
  const lifecycle = new Lifecycle();
  const telemetry = new Telemetry({
    ledger: new UsageLedger(null),
    modelName: "",
    version: "0",
    scope: "server",
    specs: [],
    loads: () => [],
    predictionErrors: () => [],
    gap: () => ({ wholeMs: 0, computingMs: 0 }),
  });
  const routes = severalRoutes({
    set,
    models: [
      { name: "slow", about: { isHeadless: false }, model: { names: ["slow"] } },
    ] as unknown as Parameters<typeof severalRoutes>[0]["models"],
    answersToAny: false,
    requestRecords: new RequestRecords(),
    ledger: new UsageLedger(null),
    lifecycle,
    version: "0",
    responses,
    streams: new KeptStreams(defaultHttpLimits),
    cacheRecords: new CacheRecords(),
    jobs: null,
    metrics: async () => new Response(),
    state: () => ({}),
    stateStream: () => new Response(),
    beginsMs: 0,
    limits: { ...defaultHttpLimits, keepAliveMs: 60_000 },
  });
  const app = createApp({
    routes,
    telemetry,
    lifecycle,
    keys: new ApiKeys({ keys: [], file: null }),
    origins: { loopbackOnly: true, hosts: [], origins: [] },
    bodies: new BodyReader(defaultHttpLimits, json),
    limits: defaultHttpLimits,
    refuse: refusalOn,
  });
  server = new HttpServer("127.0.0.1", 0, app.fetch);
});
afterAll(async () => {
  await set.close();
  await server.kill();
  json.close();
  responses.close();
});

function stream(body: object, init: { headers?: object; signal?: AbortSignal } = {}): Promise<Response> {
  return fetch(`${server.origin}/v1/chat/completions`, {
    method: "POST",
    ...init,
    headers: { "content-type": "application/json", ...init.headers },
    body: JSON.stringify({ model: "slow", stream: true, ...body }),
  });
}

test("a stream begins before its model is loaded, tells of progress, and goes on with the answer", async () => {
  const answer = await stream({ messages: [] });
  expect([answer.status, answer.headers.get("content-type")]).toEqual([
    200,
    "text/event-stream; charset=utf-8",
  ]);
  const load = await begun.promise;
  load.tell(0.25);
  load.tell(0.255);
  load.tell(1);
  load.end(host);
  expect(await answer.text()).toBe(
    ": open\n\n: waiting for slow\n\n: loading slow: 25 %\n\n: loading slow: 100 %\n\n: open\n\ndata: hello\n\n",
  );
});

test("a refusal after the head is an event of the stream", async () => {
  const answer = await stream({});
  (await begun.promise).end(host);
  const error = {
    message: "messages must be an array, but nothing was given",
    type: "invalid_request_error",
    param: "messages",
    code: null,
  };
  expect(await answer.text()).toBe(`: open\n\n: waiting for slow\n\ndata: ${JSON.stringify({ error })}\n\n`);
});

test("a load that fails is told in the stream", async () => {
  const answer = await stream({ messages: [] });
  (await begun.promise).fail(new Error("the file ends early"));
  expect(await answer.text()).toContain('"message":"the model slow cannot be loaded: the file ends early"');
});

test("a stream with a name goes on though its client left while the model was loaded", async () => {
  const leaving = new AbortController();
  const init = { headers: { "x-conversation-id": "mine" }, signal: leaving.signal };
  await stream({ messages: [] }, init);
  const load = await begun.promise;
  leaving.abort();
  const resumed = await fetch(`${server.origin}/v1/stream?conv_id=mine`);
  const reader = resumed.body!.getReader();
  let text = "";
  while (!text.includes(": open")) text += new TextDecoder().decode((await reader.read()).value);
  load.end(host);
  for (let read = await reader.read(); !read.done; read = await reader.read())
    text += new TextDecoder().decode(read.value);
  expect(text).toEndWith("id: 0\ndata: hello\n\n");
});
