/** Streams that go on after a lost connection. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { bodyOf, chatBody, post, startTestServer, type TestServer } from "./server.ts";

let server: TestServer;
beforeAll(() => {
  server = startTestServer({
    stepMs: 5,
    keys: { keys: ["ann", "bob"] },
    limits: { readerlessMs: 150, keptStreamsMax: 2, keptBytesMax: 64 * 1024 },
  });
});
afterEach(() => server.settled());
afterAll(() => server.close());

const ann = { authorization: "Bearer ann" };
const long = (more: object = {}) =>
  chatBody("Tell me", { stream: true, max_tokens: 60, ignore_eos: true, seed: 3, ...more });

/** Event of a stream: its number, and its data. */
interface Numbered {
  readonly id: number | null;
  readonly data: string;
}

function eventsIn(text: string): Numbered[] {
  return [...text.matchAll(/(?:id: (\d+)\n)?(?:event: [^\n]*\n)?data: ([^\n]*)\n\n/g)].map(
    ([, id, data]) => ({
      id: id === undefined ? null : Number(id),
      data: data!,
    }),
  );
}

/** The stream without what differs between two answers: id and time. */
function contents(events: readonly Numbered[]): string[] {
  return events.map(({ data }) => data.replace(/"id":"[^"]*"|"created":\d+/g, ""));
}

function begin(
  name: string,
  body: unknown,
  path = "/v1/chat/completions",
  headers = ann,
  signal?: AbortSignal,
) {
  const init = {
    headers: { ...headers, "x-conversation-id": name },
    ...(signal === undefined ? {} : { signal }),
  };
  return post(server, path, body, init);
}

function resume(name: string, after: number | null, headers: object = ann): Promise<Response> {
  const lastId = after === null ? {} : { "last-event-id": String(after) };
  return fetch(`${server.origin}/v1/stream?conv_id=${name}`, { headers: { ...headers, ...lastId } });
}

/** Begins a stream, reads until it has some events, and disconnects. */
async function loseAfter(count: number, name: string, body: unknown, path?: string): Promise<Numbered[]> {
  const leaving = new AbortController();
  const reader = (await begin(name, body, path, ann, leaving.signal)).body!.getReader();
  let text = "";
  while (eventsIn(text).length < count) text += new TextDecoder().decode((await reader.read()).value);
  leaving.abort();
  return eventsIn(text);
}

describe("a stream with a name", () => {
  const formats: [string, unknown][] = [
    ["/v1/chat/completions", long()],
    [
      "/v1/completions",
      { model: "demo", prompt: "Tell", stream: true, max_tokens: 60, ignore_eos: true, seed: 3 },
    ],
    ["/v1/messages", { ...long({ ignore_eos: undefined }), top_k: 1 }],
    [
      "/v1/responses",
      { model: "demo", input: "Tell me", stream: true, max_output_tokens: 60, seed: 3, store: false },
    ],
    ["/completion", { prompt: "Tell", stream: true, n_predict: 60, ignore_eos: true, seed: 3 }],
  ];
  test.each(formats)("goes on where the connection was lost: %s", async (path, body) => {
    const whole = eventsIn(await (await begin("whole", body, path)).text());
    expect(whole.map(({ id }) => id)).toEqual(whole.map((_, at) => at));
    const had = await loseAfter(4, "lost", body, path);
    const rest = await resume("lost", had.at(-1)!.id);
    expect(rest.headers.get("content-type")).toStartWith("text/event-stream");
    const all = [...had, ...eventsIn(await rest.text())];
    expect(all.map(({ id }) => id)).toEqual(whole.map(({ id }) => id));
    expect(contents(all).length).toBe(contents(whole).length);
    expect(eventsIn(await (await resume("lost", null)).text())).toEqual(all);
    await fetch(`${server.origin}/v1/stream?conv_id=lost`, { method: "DELETE", headers: ann });
    expect((await resume("lost", null)).status).toBe(404);
  });

  test("has the text of a stream without one", async () => {
    const plain = eventsIn(
      await (await post(server, "/v1/chat/completions", long(), { headers: ann })).text(),
    );
    expect(plain.every(({ id }) => id === null)).toBe(true);
    const had = await loseAfter(3, "same", long());
    const rest = eventsIn(await (await resume("same", had.at(-1)!.id)).text());
    expect(contents([...had, ...rest])).toEqual(contents(plain));
  });

  test("may have a name with slashes, as llama-server's clients give it", async () => {
    const name = "conversation::some/model:Q8_0";
    const whole = eventsIn(await (await begin(name, long({ max_tokens: 4 }))).text());
    const replayed = await resume(`${encodeURIComponent(name)}&from=0`, null);
    expect(eventsIn(await replayed.text())).toEqual(whole);
  });

  test("is read by an official client, and by two at once", async () => {
    const client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "ann", maxRetries: 0 });
    const headers = { "x-conversation-id": "two" };
    const stream = await client.chat.completions.create(
      {
        model: "demo",
        messages: [{ role: "user", content: "Tell me" }],
        stream: true,
        max_tokens: 30,
        seed: 3,
      },
      { headers },
    );
    const other = resume("two", null).then((response) => response.text());
    let text = "";
    for await (const { choices } of stream) text += choices[0]?.delta.content ?? "";
    const read = eventsIn(await other).filter(({ data }) => data !== "[DONE]");
    const parts = read.map(({ data }) => JSON.parse(data).choices[0]?.delta.content ?? "");
    expect(parts.join("")).toBe(text);
  });

  test("is cancelled when nobody comes back in time, or at once by DELETE", async () => {
    await loseAfter(2, "left", long({ max_tokens: 1500 }));
    await server.settled(); // 1,500 steps would take eight seconds
    expect((await resume("left", 0)).status).toBe(404);
    await loseAfter(2, "ended", long({ max_tokens: 1500 }));
    const end = () => fetch(`${server.origin}/v1/stream?conv_id=ended`, { method: "DELETE", headers: ann });
    for (const _ of [1, 2]) expect((await end()).status).toBe(204);
  });

  test("belongs to its key", async () => {
    const had = await loseAfter(2, "mine", long());
    const foreign = await resume("mine", 0, { authorization: "Bearer bob" });
    expect([foreign.status, (await bodyOf(foreign)).error.message]).toEqual([
      404,
      expect.stringContaining('no stream "mine" of this key'),
    ]);
    expect((await resume("mine", had.at(-1)!.id)).status).toBe(200);
  });

  test("gives its name to the next one, and ends if nobody reads it", async () => {
    await loseAfter(2, "again", long({ max_tokens: 1500 }));
    const second = eventsIn(await (await begin("again", long({ max_tokens: 3 }))).text());
    await server.settled();
    expect(eventsIn(await (await resume("again", null)).text())).toEqual(second);
  });

  test("is refused as it would be without a name, and so is a bad name or number", async () => {
    const refused = await begin("bad", long({ temperature: 9 }));
    expect([refused.status, (await bodyOf(refused)).error.param]).toEqual([400, "temperature"]);
    const named = await begin("a b", long());
    expect([named.status, (await bodyOf(named)).error.param]).toEqual([400, "x-conversation-id"]);
    await (await begin("short", long({ max_tokens: 2 }))).text();
    const far = await resume("short", 99);
    expect([far.status, (await bodyOf(far)).error.message]).toEqual([
      400,
      expect.stringContaining("number 99"),
    ]);
    const bytes = await fetch(`${server.origin}/v1/stream?conv_id=short&from=17`, { headers: ann });
    expect([bytes.status, (await bodyOf(bytes)).error.param]).toEqual([400, "from"]);
  });

  test("takes a place of its key's, and bytes, both of which are bounded", async () => {
    await loseAfter(2, "one", long({ max_tokens: 1500 }));
    await loseAfter(2, "two", long({ max_tokens: 1500 }));
    const third = await begin("three", long());
    expect([third.status, (await bodyOf(third)).error.code]).toEqual([429, "too_many_resumable_streams"]);
    await server.settled();
    await (await begin("large", long({ max_tokens: 400 }))).text();
    const gone = await resume("large", 0);
    expect([gone.status, (await bodyOf(gone)).error.code]).toEqual([410, "events_gone"]);
  });
});

test("without a name a stream ends with its connection", async () => {
  const leaving = new AbortController();
  const body = long({ max_tokens: 1500 });
  const answer = await post(server, "/v1/chat/completions", body, { headers: ann, signal: leaving.signal });
  await answer.body!.getReader().read();
  leaving.abort();
  await server.settled();
});

describe("a response in the background", () => {
  const asked = { model: "demo", input: "Tell me", stream: true, background: true, seed: 3 } as const;

  test("is streamed, goes on without its reader, and is streamed again from any event", async () => {
    const client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "ann", maxRetries: 0 });
    const stream = await client.responses.create({ ...asked, max_output_tokens: 80 });
    const had: OpenAI.Responses.ResponseStreamEvent[] = [];
    for await (const event of stream) {
      had.push(event);
      if (had.length === 6) break; // disconnects
    }
    const [created] = had;
    if (created?.type !== "response.created") throw new Error("the first event tells of no response");
    const { id } = created.response;
    const after = had.at(-1)!.sequence_number;
    const rest = await client.responses.retrieve(id, { stream: true, starting_after: after });
    for await (const event of rest) had.push(event);
    expect(had.map(({ sequence_number: number }) => number)).toEqual(had.map((_, at) => at));
    const done = had.find(({ type }) => type === "response.output_text.done");
    const kept = await client.responses.retrieve(id);
    expect(["completed", "incomplete"]).toContain(kept.status!);
    expect(kept.output_text).toBe(done?.type === "response.output_text.done" ? done.text : "");
  });

  test("is cancelled by its id", async () => {
    const client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "ann", maxRetries: 0 });
    const body = { ...asked, max_output_tokens: 1500, ignore_eos: true };
    let id = "";
    for await (const event of await client.responses.create(body)) {
      if (event.type !== "response.created") continue;
      id = event.response.id;
      break;
    }
    expect((await client.responses.cancel(id)).status).toBe("cancelled");
    await server.settled();
  });
});
