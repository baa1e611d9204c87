/**
 * Client for programs in Bun, from its source, against a server with known answers. sdk-published.test.ts
 * tests the published form.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import {
  assistant,
  Bunting,
  chat,
  choose,
  input,
  join,
  json,
  lines,
  map,
  number,
  oneOf,
  output,
  reduce,
  repeat,
  ServerError,
  Session,
  semantic,
  user,
  type Value,
  ValueError,
  value,
} from "../../sdk/src/index.ts";
import { startTestServer, type TestServer } from "./server.ts";

let server: TestServer;
let client: Bunting;
let requests: string[];

beforeAll(() => {
  server = startTestServer({
    answers: ["1. a\n2. b", "meaning", "merged", "42", '{"age": 7, "tags": ["x"]}', "Yes"],
  });
  const counted: typeof fetch = Object.assign(
    (...call: Parameters<typeof fetch>) => {
      requests.push(`${call[1]?.method} ${new URL(String(call[0])).pathname}`);
      return fetch(...call);
    },
    { preconnect: fetch.preconnect },
  );
  client = new Bunting({ url: server.origin, fetch: counted });
  requests = [];
});
afterEach(async () => {
  await server.settled();
  expect(server.programs.active).toBe(0);
  requests = [];
});
afterAll(() => server.close());

/** The seed picks the answer's text. */
const list = chat([user`List ${input("what")}.`], output("items", { seed: 0, as: lines() }));
const define = chat([user`Define ${input("word")}.`], output("meaning", { seed: 1 }));
const merge = semantic`Merge: ${input("all")}\nMerged: ${output("merged", { seed: 2 })}`;

test("a graph is one request, and what is known is never computed again", async () => {
  const parts = ["a", "b"].map((word) => define({ word }).meaning);
  const { merged } = merge({ all: join(parts, "\n") });
  let text = "";
  for await (const piece of merged.stream("latency", { client })) text += piece;
  expect(text).toBe("merged");
  expect(await merged.get("latency", { client })).toBe("merged");
  expect(await parts[0]!.get("latency", { client })).toBe("meaning");
  expect(requests).toEqual(["POST /v1/programs"]);
  const more = merge({ all: merged }).merged;
  expect(
    await Promise.all([more.get("latency", { client }), parts[1]!.get("throughput", { client })]),
  ).toEqual(["merged", "meaning"]);
  expect(requests).toEqual(["POST /v1/programs", "POST /v1/programs"]);
});

test("values have types: of parsers, of lists, and of what is made of them", async () => {
  const { items } = list({ what: "letters" });
  const count = chat([user`How long is ${input("word")}?`], output("n", { seed: 3, as: number() }));
  const lengths: Value<number[]> = map(items, (word) => count({ word }).n, { concurrency: 1 });
  const { person } = chat([user`JSON?`], output("person", { seed: 4, as: json<{ age: number }>() }))({});
  const { is } = chat([user`Is it?`], output("is", { seed: 5, as: oneOf("yes", "no") }))({});
  const [texts, numbers, { age }, answer]: [string[], number[], { age: number }, "yes" | "no"] =
    await Promise.all([
      items.get("latency", { client }),
      lengths.get("latency", { client }),
      person.get("latency", { client }),
      is.get("latency", { client }),
    ]);
  expect([texts, numbers, age, answer]).toEqual([["a", "b"], [42, 42], 7, "yes"]);
  // @ts-expect-error: there is no such input
  expect(() => list({ which: "" })).toThrow("the input what is missing");
});

test("flow: reduce, repeat, and a choice of which only one runs", async () => {
  const { items } = list({ what: "letters" });
  const reduced = reduce(items, value(""), (soFar, item) => merge({ all: join([soFar, item], "+") }).merged);
  const repeated = repeat(value("x"), (state) => merge({ all: state }).merged, {
    until: { contains: "merged" },
    count: 3,
  });
  const chosen = choose(
    value("yes"),
    [{ equals: "no", run: () => define({ word: "no" }).meaning }],
    () => merge({ all: "otherwise" }).merged,
  );
  const before = server.generator.active;
  const all = [reduced, repeated, chosen].map((one) => one.get("latency", { client }));
  expect(await Promise.all(all)).toEqual(["merged", "merged", "merged"]);
  expect(server.generator.active).toBe(before);
});

test("several answers in one conversation, and text that looks like a placeholder", async () => {
  const talk = chat(
    [user`First {{not_a_place}}?`, assistant`${output("first", { seed: 1 })}`, user`Then ${input("x")}?`],
    output("second", { seed: 2 }),
  );
  const { first, second } = talk({ x: "{{neither}}" });
  expect(await Promise.all([first.get("latency", { client }), second.get("latency", { client })])).toEqual([
    "meaning",
    "merged",
  ]);
});

describe("what goes wrong", () => {
  const broken = (): Value<number> => chat([user`?`], output("n", { seed: 1, as: number() }))({}).n;

  test("a failure is a value, or an error with origin and path", async () => {
    const n = broken();
    const behind = define({ word: n }).meaning;
    const [one, other] = await Promise.all([
      n.result("latency", { client }),
      behind.get("latency", { client }).catch((error: unknown) => error),
    ]);
    expect(one).toMatchObject({ ok: false, error: { code: "transform", origin: expect.any(String) } });
    expect(other).toBeInstanceOf(ValueError);
    expect((other as ValueError).path).toHaveLength(4);
  });

  test("what is made of a value that failed before fails with it, and nothing is sent", async () => {
    const n = broken();
    expect(await n.result("latency", { client })).toMatchObject({ ok: false });
    requests = [];
    const behind = merge({
      all: map(define({ word: n }).meaning as never, (word) => define({ word }).meaning),
    });
    const [one, other] = await Promise.all([
      behind.merged.result("latency", { client }),
      define({ word: "x" }).meaning.get("latency", { client }),
    ]);
    expect(one).toEqual((await n.result("latency", { client })) as never);
    expect(other).toBe("meaning");
    expect(requests).toEqual(["POST /v1/programs"]);
  });

  test("an input of another type is refused where it is given", () => {
    const wrong = (word: unknown) => () => define({ word } as never);
    expect(wrong(3)).toThrow("the input word takes a text, a value or several joined, but was given 3");
    expect(wrong(null)).toThrow("was given null");
    expect(wrong(["a"])).toThrow("was given a list, which join makes a text of");
  });

  test("a list that is none rejects what waits for it", async () => {
    const { merged } = merge({ all: map("a" as never, (word) => define({ word }).meaning) });
    expect(await merged.get("latency", { client }).catch((error: Error) => error.name)).toBe("TypeError");
  });

  test("a refusal of the server", async () => {
    const strange = new Bunting({ url: server.origin, model: "gpt" });
    const error = await define({ word: "x" })
      .meaning.get("latency", { client: strange })
      .catch((one: unknown) => one);
    expect(error).toBeInstanceOf(ServerError);
    expect(error).toMatchObject({ status: 404, code: "model_not_found", param: "model" });
  });

  test("a server that is not there", async () => {
    const nowhere = new Bunting({ url: "http://127.0.0.1:1" });
    const error = await define({ word: "x" })
      .meaning.get("latency", { client: nowhere })
      .catch((one: unknown) => one);
    expect(error).toBeInstanceOf(ServerError);
    expect(error).toMatchObject({
      status: 0,
      code: "unreachable",
      message: "no server answers at http://127.0.0.1:1",
    });
  });

  test("giving up ends the program; who asks again gets the value", async () => {
    const leaving = new AbortController();
    const { meaning } = define({ word: "x" });
    const waiting = meaning.get("latency", { client, signal: leaving.signal });
    leaving.abort(new Error("no time"));
    expect(await waiting.catch((error: Error) => error.message)).toBe("no time");
    await server.settled();
    expect(await meaning.get("latency", { client })).toBe("meaning");
  });
});

test("a session waits for what comes from outside", async () => {
  await using session = await Session.open({ variables: { word: null } }, client);
  await session.add({
    messages: [{ role: "user", content: "Define {{word}}." }],
    output: "meaning",
    seed: 1,
  });
  expect(await session.get("meaning", { timeoutSeconds: 0 })).toBeNull();
  await session.set("word", "x");
  expect(await session.get("meaning")).toBe("meaning");
  expect(await session.graph("mermaid")).toStartWith("flowchart TD");
  await session.release("meaning");
  expect(await session.get("meaning").catch((error: Error) => error.message)).toContain("no variable");
});
