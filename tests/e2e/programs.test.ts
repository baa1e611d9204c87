/** Programs over HTTP: their values are those of the same calls made one by one, and nothing outlives them. */
import { afterEach, describe, expect, test } from "bun:test";
import { programLimits } from "../../scheduler/program/limits.ts";
import { valueLimits } from "../../scheduler/program/transforms/value.ts";
import { bodyOf, post, startTestServer, type TestServer, type TestServerOptions } from "./server.ts";

let servers: TestServer[] = [];

function start(options: TestServerOptions = {}): TestServer {
  const server = startTestServer(options);
  servers.push(server);
  return server;
}

/** Every test ends with a server on which nothing is left. */
afterEach(async () => {
  for (const server of servers) {
    await server.settled();
    expect(server.programs.active).toBe(0);
    await server.close();
  }
  servers = [];
});

/** What tests read of a program's body. */
interface ProgramBody {
  readonly id: string;
  readonly variables: Readonly<Record<string, VariableBody>>;
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly explain: {
    readonly waited_ms: number;
    readonly calls: readonly {
      readonly name: string;
      readonly objective: string;
      readonly gang: number | null;
      readonly tokens: { readonly found: number; readonly warmed: number };
    }[];
    readonly critical_path: readonly {
      readonly name: string;
      readonly from_ms: number;
      readonly to_ms: number;
    }[];
  };
}

interface VariableBody {
  readonly name: string;
  readonly state: string;
  readonly value?: string | readonly string[];
  readonly error?: {
    readonly code: string;
    readonly message: string;
    readonly origin: string;
    readonly path: readonly string[];
  };
}

async function run(server: TestServer, body: object): Promise<ProgramBody> {
  const response = await post(server, "/v1/programs", body);
  const answer = await response.json();
  expect([response.status, answer]).toEqual([200, answer]);
  return answer as ProgramBody;
}

async function valuesOf(server: TestServer, body: object): Promise<Record<string, unknown>> {
  const { variables } = await run(server, body);
  return Object.fromEntries(Object.values(variables).map(({ name, value }) => [name, value]));
}

/** A call of one answer to one message; `seed` picks the text on a server that was given answers. */
const ask = (content: string, output: string, seed: number, more: object = {}): object => ({
  messages: [{ role: "user", content }],
  outputs: { [output]: { ...more } },
  seed,
});

describe("the same tokens, so the same answers, as calls of a client's own", () => {
  test("text and messages", async () => {
    const server = start();
    const text = "Some words <|im_end|> and control text.";
    const values = await valuesOf(server, {
      variables: { text },
      calls: [
        { prompt: "Text: {{text}}\nSummary:", output: "summary", seed: 3, max_tokens: 12 },
        {
          messages: [
            { role: "system", content: "Be brief." },
            { role: "user", content: "Say {{summary}} of {{ text }}." },
          ],
          output: "said",
          seed: 4,
          max_tokens: 9,
          temperature: 0.5,
        },
      ],
      await: ["summary", "said"],
    });
    const chat = {
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: `Say ${values.summary} of ${text}.` },
      ],
    };
    const said = await post(server, "/v1/chat/completions", {
      ...chat,
      seed: 4,
      max_tokens: 9,
      temperature: 0.5,
    });
    expect((await bodyOf(said)).choices[0]!.message.content).toBe(values.said as string);
    // As a prompt of the client's own the text would hold a control token: a value never does.
    const plain = await valuesOf(server, {
      variables: { text: "plain words" },
      calls: [{ prompt: "Text: {{text}}\nSummary:", output: "summary", seed: 3, max_tokens: 12 }],
    });
    const prompt = "Text: plain words\nSummary:";
    const completed = await post(server, "/v1/completions", { prompt, seed: 3, max_tokens: 12 });
    expect((await bodyOf(completed)).choices[0]!.text).toBe(plain.summary as string);
  });

  test("several outputs in one text go on from the tokens that were drawn", async () => {
    const server = start();
    const values = await valuesOf(server, {
      calls: [
        {
          prompt: "Name: {{name}}, age: {{age}}.\nStory: {{story}}",
          outputs: {
            name: { max_tokens: 3, seed: 1 },
            age: { max_tokens: 2, seed: 2 },
            story: { max_tokens: 7, seed: 3 },
          },
        },
      ],
      await: ["name", "age", "story"],
    });
    const complete = async (prompt: readonly number[], maxTokens: number, seed: number) => {
      const body = { prompt, max_tokens: maxTokens, seed, return_token_ids: true };
      return (await bodyOf(await post(server, "/v1/completions", body))).choices[0]!;
    };
    const tokensOf = async (prompt: string): Promise<readonly number[]> =>
      (await bodyOf(await post(server, "/tokenize", { prompt }))).tokens;
    const first = await tokensOf("Name: ");
    const name = await complete(first, 3, 1);
    const second = [...first, ...name.token_ids, ...(await tokensOf(", age: "))];
    const age = await complete(second, 2, 2);
    const third = [...second, ...age.token_ids, ...(await tokensOf(".\nStory: "))];
    const story = await complete(third, 7, 3);
    expect(values).toEqual({ name: name.text, age: age.text, story: story.text });
  });

  test("several answers in one conversation are those of a client that sends each back", async () => {
    const server = start({ answers: ["one", "two"] });
    const answers = await valuesOf(server, {
      calls: [
        {
          messages: [
            { role: "user", content: "First?" },
            { role: "assistant", content: "{{first}}" },
            { role: "user", content: "Second?" },
          ],
          outputs: { first: { seed: 0 }, second: { seed: 1 } },
        },
      ],
      await: ["first", "second"],
    });
    expect(answers).toEqual({ first: "one", second: "two" });
  });
});

describe("values on their way", () => {
  test("a list of unknown length is mapped, its results are joined in order", async () => {
    const server = start({ answers: ["1. apple\n2. pear\n3. plum", "a fruit"] });
    const values = await valuesOf(server, {
      calls: [
        ask("List fruits.", "fruits", 0, { transforms: ["lines"] }),
        {
          map: "fruits",
          item: "fruit",
          calls: [ask("What is {{fruit}}?", "meaning", 1, { transforms: [{ template: "{{value}}!" }] })],
          result: "meaning",
          output: "meanings",
          concurrency: 2,
        },
        {
          messages: [{ role: "user", content: "Merge: {{all}}" }],
          inputs: { all: { variable: "meanings", transforms: [{ join: ", " }] } },
          output: "merged",
          seed: 1,
        },
      ],
      await: ["fruits", "meanings", "merged"],
    });
    expect(values).toEqual({
      fruits: ["apple", "pear", "plum"],
      meanings: ["a fruit!", "a fruit!", "a fruit!"],
      merged: "a fruit",
    });
  });

  test("reduce, choose and repeat", async () => {
    const server = start({ answers: ["YES", "deeper", "done", "so far"] });
    const values = await valuesOf(server, {
      variables: { parts: ["a", "b"], empty: "", draft: "x" },
      calls: [
        ask("Is it?", "is", 0, { transforms: ["lower"] }),
        {
          choose: "is",
          cases: [
            { equals: "no", calls: [], result: "empty" },
            { matches: "^y", calls: [ask("Deeper.", "inner", 1)], result: "inner" },
          ],
          output: "chosen",
        },
        {
          reduce: "parts",
          item: "part",
          initial: "empty",
          accumulator: "sum",
          calls: [ask("{{sum}}+{{part}}", "more", 3)],
          result: "more",
          output: "reduced",
        },
        {
          repeat: "draft",
          state: "now",
          calls: [ask("Better: {{now}}", "better", 2)],
          result: "better",
          until: { contains: "done" },
          count: 5,
          output: "finished",
        },
      ],
    });
    expect(values).toEqual({ chosen: "deeper", reduced: "so far", finished: "done" });
  });

  test("a transform that fails, fails what it leads to with origin and path, and nothing else", async () => {
    const server = start({ answers: ["no json", "fine"] });
    const { variables } = await run(server, {
      calls: [
        { name: "extract", ...ask("JSON?", "age", 0, { transforms: [{ json: "age" }] }) },
        { name: "tell", ...ask("Tell {{age}}", "told", 1) },
        { name: "other", ...ask("Other", "unrelated", 1) },
      ],
      await: ["told", "unrelated"],
    });
    expect(variables.unrelated).toEqual({ name: "unrelated", state: "ready", value: "fine" });
    expect(variables.told).toEqual({
      name: "told",
      state: "failed",
      error: {
        code: "transform",
        message: expect.stringContaining("json: the text is not JSON"),
        origin: "extract",
        path: ["extract", "age", "tell", "told"],
      },
    });
  });
});

describe("a stream", () => {
  test("tells what happens as it happens, and ends with the usage of all calls", async () => {
    const server = start({ answers: ["one two", "end"] });
    const response = await post(server, "/v1/programs", {
      stream: true,
      calls: [
        { name: "a", ...ask("First", "first", 0) },
        { name: "b", ...ask("Then {{first}}", "last", 1, { transforms: ["strip"] }) },
      ],
    });
    const events = await eventsOf(response);
    const text = events.flatMap((event) => (event.type === "variable.delta" ? [event.text] : [])).join("");
    expect(text).toBe("one two");
    expect(events.filter(({ type }) => type !== "variable.delta")).toMatchObject([
      { type: "program.started", id: expect.stringMatching(/^prog_[0-9a-f]{32}$/) },
      { type: "call.ready", call: "a" },
      { type: "call.started", call: "a" },
      { type: "variable.ready", variable: "first", value: "one two" },
      { type: "call.ready", call: "b" },
      { type: "call.ended", call: "a" },
      { type: "call.started", call: "b" },
      { type: "variable.ready", variable: "last", value: "end" },
      { type: "call.ended", call: "b" },
      { type: "program.done", usage: { total_tokens: expect.any(Number) } },
    ]);
  });

  test("a client that goes away ends its program, unless it asked for something else", async () => {
    const server = start({ stepMs: 5 });
    const gone = async (more: object): Promise<string> => {
      const leaving = new AbortController();
      const body = { stream: true, calls: [ask("Long", "long", 1, { max_tokens: 500 })], ...more };
      const response = await post(server, "/v1/programs", body, { signal: leaving.signal });
      const reader = response.body!.getReader();
      let text = "";
      while (!text.includes("variable.delta")) text += new TextDecoder().decode((await reader.read()).value);
      leaving.abort();
      return /prog_[0-9a-f]{32}/.exec(text)![0];
    };
    await gone({});
    await server.settled();
    expect(server.programs.active).toBe(0);
    const id = await gone({
      cancel_on_disconnect: false,
      calls: [ask("Short", "long", 1, { max_tokens: 60 })],
    });
    const value = await fetch(`${server.origin}/v1/sessions/${id}/variables/long`);
    expect(((await value.json()) as VariableBody).state).toBe("ready");
    await fetch(`${server.origin}/v1/sessions/${id}`, { method: "DELETE" });
  });
});

test("an explanation's critical path adds up to the time that was waited", async () => {
  const server = start({ answers: ["one", "two", "three"] });
  const { explain } = await run(server, {
    explain: true,
    calls: [ask("A", "a", 0), ask("B", "b", 1), ask("{{a}} {{b}}", "c", 2)],
  });
  expect(explain.calls.map(({ name, objective }) => [name, objective])).toEqual([
    ["call-0", "gang"],
    ["call-1", "gang"],
    ["call-2", "latency"],
  ]);
  expect(explain.calls[0]!.gang).toBe(explain.calls[1]!.gang);
  let at = 0;
  for (const { from_ms, to_ms } of explain.critical_path) {
    expect(from_ms).toBeCloseTo(at, 6);
    at = to_ms;
  }
  expect(at).toBeCloseTo(explain.waited_ms, 6);
});

describe("sessions", () => {
  async function session(server: TestServer, body: object = {}, headers: Record<string, string> = {}) {
    const response = await post(server, "/v1/sessions", body, { headers });
    expect(response.status).toBe(201);
    const { id } = (await response.json()) as { readonly id: string };
    const path = `/v1/sessions/${id}`;
    const ask = async (method: string, below: string, sent?: object) => {
      const response = await fetch(`${server.origin}${path}${below}`, {
        method,
        headers: { "content-type": "application/json", ...headers },
        ...(sent === undefined ? {} : { body: JSON.stringify(sent) }),
      });
      return { status: response.status, body: (await response.json()) as VariableBody & { error?: object } };
    };
    return { id, path, ask, end: () => ask("DELETE", "") };
  }

  test("calls come one by one, and a value of the client's lets them go on", async () => {
    const server = start({ answers: ["draft", "final"] });
    const { ask: http, end } = await session(server, { variables: { approval: null } });
    expect(await http("POST", "/calls", { name: "write", ...ask("Write.", "draft", 0) })).toEqual({
      status: 200,
      body: expect.objectContaining({ calls: [{ name: "write", kind: "call", outputs: ["draft"] }] }),
    });
    const rest = { calls: [ask("Finish {{draft}} with {{approval}}", "final", 1)] };
    expect((await http("POST", "/calls", rest)).status).toBe(200);
    const draft = { name: "draft", state: "ready", value: "draft" };
    expect(await http("GET", "/variables/draft?criteria=latency")).toEqual({ status: 200, body: draft });
    const pending = { status: 202, body: { name: "final", state: "pending" } as VariableBody };
    expect(await http("GET", "/variables/final?timeout=0")).toEqual(pending);
    expect(await http("GET", "/variables/final?timeout=0.05")).toEqual(pending);
    const waiting = http("GET", "/variables/final?criteria=ttft:200,tbt:50");
    const set = { name: "approval", state: "ready", value: "yes" };
    expect(await http("PUT", "/variables/approval", { value: "yes" })).toEqual({ status: 200, body: set });
    expect((await waiting).body.value).toBe("final");
    expect((await http("PUT", "/variables/approval", { value: "no" })).status).toBe(409);
    expect((await http("PUT", "/variables/draft", { value: "no" })).status).toBe(409);
    expect((await http("PUT", "/variables/later", { value: ["a", "b"] })).status).toBe(200);
    expect((await end()).body).toMatchObject({ deleted: true });
    expect((await end()).status).toBe(404);
  });

  test("a value that failed is told at once, with 424, also to those who come later", async () => {
    const server = start({ answers: ["nothing"] });
    const { ask: http, end } = await session(server);
    await http("POST", "/calls", { name: "count", ...ask("?", "number", 0, { transforms: ["number"] }) });
    const expected = {
      status: 424,
      body: {
        error: {
          message: expect.stringContaining('number: "nothing" is no number'),
          type: "failed_dependency",
          param: "number",
          code: "transform",
          origin: "count",
          path: ["count", "number"],
        },
      } as unknown as VariableBody,
    };
    expect(await http("GET", "/variables/number")).toEqual(expected);
    expect(await http("GET", "/variables/number")).toEqual(expected);
    await end();
  });

  test("a variable's stream begins with what is there already", async () => {
    const server = start({ answers: ["one two three four five"] });
    const { id, ask: http, end } = await session(server, { calls: [ask("?", "text", 0)] });
    const stream = async (): Promise<readonly Event[]> =>
      eventsOf(await fetch(`${server.origin}/v1/sessions/${id}/variables/text?stream=true`));
    const early = await stream();
    const deltas = early.filter(({ type }) => type === "variable.delta");
    expect(deltas.map(({ text }) => text).join("")).toBe("one two three four five");
    const ready = { type: "variable.ready", variable: "text", value: "one two three four five" };
    expect(early.at(-1)).toEqual(ready as unknown as Event);
    expect(await stream()).toEqual([ready as unknown as Event]);
    expect((await http("GET", "/variables/other?timeout=0")).status).toBe(404);
    await end();
  });

  test("deleting one fails what it has not written, and whoever waits for it hears so", async () => {
    const server = start({ stepMs: 5 });
    const { path, end } = await session(server, {
      calls: [{ name: "long", ...ask("Long", "text", 1, { max_tokens: 500 }) }],
    });
    const waiting = await fetch(`${server.origin}${path}/variables/text?stream=true`);
    await end();
    expect((await eventsOf(waiting)).at(-1)).toMatchObject({
      type: "variable.failed",
      error: { code: "cancelled", message: "the session was deleted", origin: "long" },
    });
  });

  test("the graph, in three languages", async () => {
    const server = start({ answers: ["one", "two"] });
    const {
      path,
      ask: http,
      end,
    } = await session(server, {
      calls: [
        { name: "a", ...ask("A", "x", 0) },
        { name: "b", ...ask("{{x}}", "y", 1) },
      ],
    });
    await http("GET", "/variables/y");
    const graph = (await http("GET", "/graph")).body as object;
    expect(graph).toMatchObject({
      object: "graph",
      variables: [
        { name: "x", state: "ready", value: "one", written_by: "a", read_by: ["b"] },
        { name: "y", state: "ready", value: "two", written_by: "b", read_by: [] },
      ],
      nodes: [
        { name: "a", kind: "call", state: "done", reads: [], writes: ["x"] },
        { name: "b", kind: "call", state: "done", reads: ["x"], writes: ["y"] },
      ],
    });
    const drawn = async (format: string): Promise<string> =>
      (await fetch(`${server.origin}${path}/graph?format=${format}`)).text();
    expect((await drawn("mermaid")).replace(/\d+ ms/g, "N ms")).toBe(`flowchart TD
  n0(["x"])
  n1(["y"])
  n2["a<br>done, N ms"]
  n3["b<br>done, N ms"]
  n2 --> n0
  n0 --> n3
  n3 --> n1
`);
    expect((await drawn("dot")).replace(/\d+ ms/g, "N ms")).toBe(`digraph program {
  n0 [label="x"];
  n1 [label="y"];
  n2 [shape=box, label="a\\ndone, N ms"];
  n3 [shape=box, label="b\\ndone, N ms"];
  n2 -> n0;
  n0 -> n3;
  n3 -> n1;
}
`);
    await end();
  });

  test("belongs to its key: another key finds nothing", async () => {
    const server = start({ keys: { keys: ["one", "two"] } });
    const mine = { authorization: "Bearer one" };
    const { path, end } = await session(server, {}, mine);
    const theirs = await fetch(`${server.origin}${path}/graph`, { headers: { authorization: "Bearer two" } });
    expect(theirs.status).toBe(404);
    const own = await fetch(`${server.origin}${path}/graph`, { headers: mine });
    expect(own.status).toBe(200);
    await end();
  });
});

describe("what is wrong is refused, and nothing of it stays", () => {
  const call = (more: object): object => ({ prompt: "{{a}}", output: "b", ...more });
  const rows: readonly (readonly [what: string, body: object, status: number, message: RegExp])[] = [
    ["no calls", {}, 400, /no calls/],
    ["a name that nobody declares", { calls: [call({})] }, 422, /reads a, which nothing declares/],
    ["a cycle", { calls: [call({}), { prompt: "{{b}}", output: "a" }] }, 422, /wait for each other/],
    ["two writers", { variables: { a: "" }, calls: [call({}), call({})] }, 422, /can be set once/],
    [
      "a field that is unknown",
      { calls: [call({ temprature: 1 })] },
      400,
      /calls\[0\]\.temprature is not a field/,
    ],
    [
      "no output",
      { calls: [{ prompt: "x" }] },
      400,
      /calls\[0\]\.outputs: a call has either outputs or one output/,
    ],
    ["prompt and messages", { calls: [call({ messages: [] })] }, 400, /either a prompt or messages/],
    [
      "an output in a user's message",
      { calls: [{ messages: [{ role: "user", content: "{{b}}" }], output: "b" }] },
      400,
      /message of the assistant's/,
    ],
    [
      "a sampling field",
      { calls: [call({ outputs: { b: { temperature: 9 } }, output: undefined })] },
      400,
      /calls\[0\]\.outputs\.b\.temperature must be a number/,
    ],
    [
      "a transform",
      { calls: [call({ outputs: { b: { transforms: ["shout"] } }, output: undefined })] },
      400,
      /outputs\.b\.transforms\[0\] must be one of strip/,
    ],
    [
      "a value of a wrong type",
      { variables: { a: 3 }, calls: [call({})] },
      400,
      /must be a string or an array of strings/,
    ],
    [
      "a value too large",
      { variables: { a: "x".repeat(valueLimits.bytesMax + 1) }, calls: [call({})] },
      400,
      /1048577 bytes, but 1048576 are allowed/,
    ],
    [
      "criteria",
      { variables: { a: "" }, calls: [call({})], await: { b: "soon" } },
      400,
      /must be latency, throughput/,
    ],
    [
      "an unknown awaited variable",
      { variables: { a: "" }, calls: [call({})], await: "c" },
      422,
      /no variable c/,
    ],
    ["a model", { model: "gpt", calls: [call({})] }, 404, /does not exist/],
  ];
  test.each(rows)("%s", async (_, body, status, message) => {
    const server = start();
    const response = await post(server, "/v1/programs", body);
    const { error } = await bodyOf(response);
    expect(error.message).toMatch(message);
    expect(response.status).toBe(status);
  });

  test("methods that a route does not take", async () => {
    const server = start();
    const response = await fetch(`${server.origin}/v1/programs`);
    expect([response.status, response.headers.get("allow")]).toEqual([405, "POST"]);
  });
});

describe("limits, at the limit and one beyond", () => {
  test("calls and variables", async () => {
    const server = start({
      programLimits: { scheduler: { ...programLimits, nodesMax: 3, variablesMax: 4 } },
    });
    const calls = (count: number): object => ({
      calls: Array.from({ length: count }, (_, index) => ask("?", `v${index}`, 1, { max_tokens: 1 })),
    });
    expect((await post(server, "/v1/programs", calls(3))).status).toBe(200);
    const refused = await post(server, "/v1/programs", calls(4));
    expect([refused.status, (await bodyOf(refused)).error]).toEqual([
      422,
      expect.objectContaining({ code: "limit", message: expect.stringMatching(/4 calls.* at most 3/) }),
    ]);
    const variables = { a: "", b: "", c: "", d: "" };
    expect((await post(server, "/v1/programs", { variables, ...calls(1) })).status).toBe(200);
    expect(
      (await post(server, "/v1/programs", { variables: { ...variables, e: "" }, ...calls(1) })).status,
    ).toBe(422);
  });

  test("programs per key", async () => {
    const server = start({ programLimits: { programsPerKeyMax: 2 } });
    const open = async (): Promise<Response> => post(server, "/v1/sessions", {});
    const ids = [];
    for (const response of [await open(), await open()])
      ids.push(((await response.json()) as ProgramBody).id);
    const refused = await open();
    expect([refused.status, (await bodyOf(refused)).error.message]).toEqual([
      429,
      "this key has 2 programs open, and 2 are allowed: end some",
    ]);
    for (const id of ids) await fetch(`${server.origin}/v1/sessions/${id}`, { method: "DELETE" });
    expect(
      (await post(server, "/v1/programs", { calls: [ask("?", "a", 1, { max_tokens: 1 })] })).status,
    ).toBe(200);
  });

  test("bytes of all values", async () => {
    const server = start({ answers: ["12345"], programLimits: { valuesBytesMax: 10 } });
    const two = [ask("?", "a", 0), ask("{{a}}", "b", 0)];
    expect(await valuesOf(server, { calls: two })).toEqual({ b: "12345" });
    const { variables } = await run(server, { variables: { c: "x" }, calls: two, await: ["b", "c"] });
    expect(variables.b!.value).toBe("12345"); // the value itself is there, and nothing after it
    const three = await run(server, { calls: [...two, ask("{{b}}", "c", 0), ask("{{c}}", "d", 0)] });
    expect(three.variables.d!.error!.message).toBe("its values have 15 bytes together, but 10 are allowed");
  });

  test("calls at work at once: others wait, and all end", async () => {
    const server = start({ answers: ["x"], programLimits: { runningMax: 2 } });
    let most = 0;
    const { generate } = server.generator;
    server.generator.generate = (request, listener) => {
      most = Math.max(most, server.generator.active + 1);
      return generate.call(server.generator, request, listener);
    };
    const calls = Array.from({ length: 7 }, (_, index) => ask("?", `v${index}`, 0));
    expect(Object.values(await valuesOf(server, { calls }))).toEqual(Array(7).fill("x"));
    expect(most).toBe(2);
  });

  test("a program that nobody asks for ends when its time is over", async () => {
    const server = start({ programLimits: { idleMs: 30 } });
    await post(server, "/v1/sessions", { variables: { a: null } });
    expect(server.programs.active).toBe(1);
    await server.programs.whenIdle();
    expect(server.programs.active).toBe(0);
  });

  test("the time that a request may wait", async () => {
    const server = start();
    const { id } = (await (
      await post(server, "/v1/sessions", { variables: { a: null } })
    ).json()) as ProgramBody;
    const path = `${server.origin}/v1/sessions/${id}`;
    const refused = await fetch(`${path}/variables/a?timeout=241`);
    expect((await bodyOf(refused)).error.message).toBe(
      'timeout must be seconds from 0 to 240, but "241" was given',
    );
    await fetch(path, { method: "DELETE" });
  });
});

test("the beginning of a prompt is computed while its call waits for a value", async () => {
  const server = start();
  const head = "The beginning of this text is known from the start. ".repeat(12);
  const { explain } = await run(server, {
    explain: true,
    calls: [
      { prompt: "First:", output: "first", seed: 1, max_tokens: 40 },
      { prompt: `${head}{{first}} and then`, output: "second", seed: 2, max_tokens: 4 },
      {
        messages: [
          { role: "system", content: head },
          { role: "user", content: "Say {{first}}" },
        ],
        output: "third",
        seed: 3,
        max_tokens: 4,
      },
    ],
    await: ["second", "third"],
  });
  const [, second, third] = explain.calls.map(({ tokens }) => tokens);
  for (const tokens of [second!, third!]) {
    expect(tokens.warmed).toBeGreaterThan(100);
    expect(tokens.found).toBeGreaterThanOrEqual(tokens.warmed);
  }
});

test("many long prompts at once wait for their turn to be made into tokens", async () => {
  const server = start();
  const text = "0123456789 ".repeat(1000); // too long for the model, and for making tokens of it in passing
  const calls = Array.from({ length: 100 }, (_, index) => ask("{{text}}", `v${index}`, 1));
  const { variables } = await run(server, { variables: { text }, calls });
  const codes = new Set(Object.values(variables).map(({ error }) => error!.code));
  expect([...codes]).toEqual(["context_length_exceeded"]);
});

describe("engines and the server's end", () => {
  test("a call whose row fails, fails its value and no other", async () => {
    const server = start({
      fault: (step) => {
        const sampled = step.chunks.flatMap(({ sequence, samples }) =>
          samples.map(({ sampling }) =>
            sampling.seed[0] === 1
              ? { kind: "failed" as const, sequence, reason: "logits are not finite" }
              : { kind: "token" as const, sequence, token: 300, logprobs: null },
          ),
        );
        return { kind: "done", sampled, deviceMs: 1 };
      },
    });
    const { variables } = await run(server, {
      calls: [ask("?", "bad", 1, { max_tokens: 2 }), ask("?", "good", 2, { max_tokens: 2 })],
    });
    expect([variables.bad!.error!.code, variables.good!.state]).toEqual(["engine_error", "ready"]);
  });

  test("what is too long for the model fails its call with both numbers", async () => {
    const server = start();
    const { variables } = await run(server, {
      variables: { text: "word ".repeat(3000) },
      calls: [{ name: "read", ...ask("{{text}}", "answer", 1) }],
    });
    expect(variables.answer!.error).toMatchObject({ code: "context_length_exceeded", origin: "read" });
  });

  test("a server that ends tells whoever waits, and lets go of everything", async () => {
    const server = start({ stepMs: 5 });
    const calls = [ask("Long", "a", 1, { max_tokens: 1000 })];
    const waiting = await post(server, "/v1/programs", { calls, stream: true });
    expect(await server.lifecycle.drain(1)).toBe(1);
    expect(await waiting.text()).toMatch(/event: error\ndata: .*"code":"draining"/);
  });
});

interface Event {
  readonly type: string;
  readonly text?: string;
}

async function eventsOf(response: Response): Promise<readonly Event[]> {
  expect(response.headers.get("content-type")).toContain("text/event-stream");
  const frames = (await response.text()).split("\n\n").filter((frame) => frame.startsWith("event: "));
  return frames.map((frame) => {
    const [name, data] = frame.split("\n");
    const event = JSON.parse(data!.slice("data: ".length)) as Event;
    expect(name).toBe(`event: ${event.type}`);
    return event;
  });
}
