/** Programs that grow call by call. */
import { describe, expect, test } from "bun:test";
import type { Service } from "../../scheduler/core.ts";
import { ask, cleanServers, type Event, eventsOf, type VariableBody } from "./program-http.ts";
import { bodyOf, post, type TestServer } from "./server.ts";

const start = cleanServers();

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
    expect((await http("GET", "/variables/%E0%A4%A")).status).toBe(404);
    expect((await end()).body).toMatchObject({ deleted: true });
    expect((await end()).status).toBe(404);
  });

  test("open programs are listed to their own key, with the state of their calls", async () => {
    const server = start({ answers: ["draft"], keys: { keys: ["a", "b"] } });
    const key = (name: string) => ({ authorization: `Bearer ${name}` });
    const list = async (name: string) =>
      (await fetch(`${server.origin}/v1/programs`, { headers: key(name) })).json();
    const { id, ask: http, end } = await session(server, { variables: { approval: null } }, key("a"));
    await http("POST", "/calls", { name: "write", ...ask("Write.", "draft", 0) });
    await http("POST", "/calls", { calls: [ask("Finish {{draft}} with {{approval}}", "final", 1)] });
    await http("GET", "/variables/draft?criteria=latency");
    expect(await list("a")).toEqual({
      object: "list",
      data: [
        {
          id,
          object: "program",
          created: expect.any(Number),
          calls: { waiting: 1, running: 0, done: 1, failed: 0 },
          usage: expect.objectContaining({ completion_tokens: expect.any(Number) }),
        },
      ],
      has_more: false,
    });
    expect(await list("b")).toEqual({ object: "list", data: [], has_more: false });
    await end();
    expect(await list("a")).toMatchObject({ data: [] });
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

  test("a later wish raises what runs already, once, and nothing lowers it", async () => {
    const server = start({ stepMs: 2 });
    const raised: Service[] = [];
    const { raise } = server.fleet;
    server.fleet.raise = (id, service) => {
      raised.push(service);
      raise.call(server.fleet, id, service);
    };
    const {
      path,
      ask: http,
      end,
    } = await session(server, {
      calls: [{ name: "write", prompt: "Write:", output: "text", ignore_eos: true, max_tokens: 100 }],
    });
    const told = async (criteria: string): Promise<unknown> => {
      raised.length = 0;
      expect((await http("GET", `/variables/text?timeout=0&criteria=${criteria}`)).status).toBe(202);
      const [service] = raised;
      return service === undefined ? null : { objective: service.objective, tbtMs: service.tbtMs };
    };
    // The first token has arrived, so the call is running.
    const { body } = await fetch(`${server.origin}${path}/variables/text?stream=true&criteria=throughput`);
    for await (const _ of body!) break;
    expect(await told("throughput")).toEqual({ objective: "throughput", tbtMs: null });
    expect(await told("tbt:50")).toEqual({ objective: "latency", tbtMs: 50 });
    expect(await told("throughput")).toEqual({ objective: "latency", tbtMs: 50 });
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

  test("deleting one fails what it has not written, and a client that waits for it is told", async () => {
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

  test("a client that goes away ends it if it asked for that, whether it waits or reads along", async () => {
    const server = start({ stepMs: 2 });
    const calls = [ask("Long", "text", 1, { max_tokens: 1000, ignore_eos: true })];
    const leave = async (query: string, headers: Record<string, string>): Promise<string> => {
      const { path } = await session(server, { calls });
      const waits = Promise.withResolvers<void>();
      const { track } = server.lifecycle;
      server.lifecycle.track = (request) => {
        waits.resolve();
        return track.call(server.lifecycle, request);
      };
      const leaving = new AbortController();
      const { signal } = leaving;
      const variable = `${server.origin}${path}/variables/text?${query}`;
      const read = fetch(variable, { headers, signal }).then((response) => response.text());
      await waits.promise;
      server.lifecycle.track = track;
      leaving.abort();
      expect(await read.catch((error: Error) => error.name)).toBe("AbortError");
      return path;
    };
    const streams = { accept: "text/event-stream" };
    for (const headers of [{}, streams]) {
      await leave("cancel_on_disconnect=true", headers);
      await server.programs.whenIdle();
      expect(server.programs.active).toBe(0);
    }
    const path = await leave("", streams);
    await server.settled();
    const kept = await fetch(`${server.origin}${path}/variables/text`);
    expect(((await kept.json()) as VariableBody).state).toBe("ready");
    const strange = await fetch(`${server.origin}${path}/variables/text?cancel_on_disconnect=perhaps`);
    expect([strange.status, (await bodyOf(strange)).error.message]).toEqual([
      400,
      'cancel_on_disconnect must be true or false, but "perhaps" was given',
    ]);
    await fetch(`${server.origin}${path}`, { method: "DELETE" });
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
