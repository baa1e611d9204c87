/** Limits of programs: at the limit, beyond it, and refusals. */
import { describe, expect, test } from "bun:test";
import { programLimits } from "../../scheduler/program/spec.ts";
import { valueLimits } from "../../scheduler/program/transforms/value.ts";
import { ask, cleanServers, type ProgramBody, run, type VariableBody, valuesOf } from "./program-http.ts";
import { bodyOf, post } from "./server.ts";

const start = cleanServers();

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
      "a sampling field of the call",
      { calls: [call({ temperature: 9 })] },
      400,
      /^calls\[0\]\.temperature must be a number/,
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
    [
      "a value that nobody could set",
      { variables: { a: null }, calls: [call({})] },
      400,
      /^variables\.a has no value, and nobody could set it/,
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
    const response = await fetch(`${server.origin}/v1/programs`, { method: "PUT", body: "{}" });
    expect([response.status, response.headers.get("allow")]).toEqual([405, "GET, HEAD, POST"]);
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

  test("transforms, cases, placeholders and bodies of a repeat", async () => {
    const server = start({ answers: ["x"] });
    const many = <Item>(count: number, item: Item): Item[] => Array.from({ length: count }, () => item);
    const transformed = (count: number): object => ask("?", "a", 0, { transforms: many(count, "strip") });
    const chosen = (count: number): object => ({
      choose: "v",
      cases: many(count, { equals: "y", calls: [], result: "v" }),
      otherwise: { calls: [], result: "v" },
      output: "a",
    });
    const read = (count: number): object => ({
      prompt: `?${many(count, "{{v}}").join("")}`,
      output: "a",
      max_tokens: 1,
    });
    const repeated = (count: number): object => ({
      ...{ repeat: "v", state: "now", calls: [], result: "now", until: { equals: "" }, count, output: "a" },
    });
    const rows: readonly (readonly [of: (count: number) => object, most: number])[] = [
      [transformed, 16],
      [chosen, 64],
      [read, 4096],
      [repeated, 1024],
    ];
    for (const [of, most] of rows) {
      const send = (count: number): Promise<Response> =>
        post(server, "/v1/programs", { variables: { v: "" }, calls: [of(count)] });
      expect((await run(server, { variables: { v: "" }, calls: [of(most)] })).variables.a!.state).toBe(
        "ready",
      );
      const refused = await send(most + 1);
      expect([refused.status, (await bodyOf(refused)).error.message]).toEqual([
        400,
        expect.stringContaining(String(most)),
      ]);
    }
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
    expect(variables.b!.value).toBe("12345"); // the value itself is there, and no values after it
    // A session that releases values after reading them may continue.
    const session = await post(server, "/v1/sessions", { calls: [ask("?", "v0", 0)] });
    const { id } = (await session.json()) as ProgramBody;
    const path = `/v1/sessions/${id}`;
    const last = async (turn: number): Promise<string> =>
      ((await (await fetch(`${server.origin}${path}/variables/v${turn}`)).json()) as VariableBody)
        .value as string;
    for (let turn = 1; turn < 6; turn++) {
      expect(await last(turn - 1)).toBe("12345");
      await post(server, `${path}/calls`, ask(`{{v${turn - 1}}}`, `v${turn}`, 0));
      const variable = `${server.origin}${path}/variables/v${turn - 1}`;
      expect((await fetch(variable, { method: "DELETE" })).status).toBe(200);
    }
    expect(await last(5)).toBe("12345");
    await fetch(`${server.origin}${path}`, { method: "DELETE" });
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
