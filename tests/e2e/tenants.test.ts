/** Isolation of tenants: cached prefixes of one key do not show in another key's answers. */
import { afterEach, expect, test } from "bun:test";
import { chatBody, post, startTestServer, type TestServer } from "./server.ts";

const text = "Once there was a kite. ".repeat(12);
/** Request of each kind with one long prompt, and the field of its answer that reports cached tokens. */
const requests = {
  "/v1/chat/completions": chatBody(text, { max_tokens: 1 }),
  "/v1/completions": { prompt: text, max_tokens: 1 },
  "/v1/messages": { model: "demo", messages: [{ role: "user", content: text }], max_tokens: 1 },
  "/v1/programs": { calls: [{ prompt: `${text}{{out}}`, output: "out", max_tokens: 1 }], await: ["out"] },
};

let server: TestServer;
afterEach(async () => {
  await server.settled();
  await server.close();
});

function start(sharePrefixes: boolean): void {
  server = startTestServer({ sharePrefixes, keys: { keys: ["red", "blue"] } });
}

/** Returns the prompt tokens that were in the cache. */
async function cached(key: string, route: string, body: object): Promise<number> {
  const response = await post(server, route, body, { headers: { authorization: `Bearer ${key}` } });
  if (!response.ok) throw new Error(await response.text());
  const { usage } = (await response.json()) as { readonly usage: Record<string, unknown> };
  const details = usage.prompt_tokens_details as { readonly cached_tokens: number } | undefined;
  return Number(details?.cached_tokens ?? usage.cache_read_input_tokens);
}

test.each(Object.entries(requests))(
  "%s finds what its own key has sent, and nothing of another's",
  async (route, body) => {
    start(false);
    expect(await cached("red", route, body)).toBe(0);
    expect(await cached("blue", route, body)).toBe(0);
    const own = await cached("red", route, body);
    expect(own).toBeGreaterThan(50);
    expect(await cached("blue", route, body)).toBe(own);
  },
);

test.each(Object.entries(requests))(
  "%s finds all keys' prefixes where they are shared",
  async (route, body) => {
    start(true);
    expect(await cached("red", route, body)).toBe(0);
    expect(await cached("blue", route, body)).toBeGreaterThan(50);
  },
);

const policy = "You fly kites, and tell how it is done. ".repeat(8);

function chatUnderPolicy(content: string): object {
  const messages = [
    { role: "system", content: policy },
    { role: "user", content },
  ];
  return { model: "demo", messages, max_tokens: 1 };
}

test.each([
  ["/v1/chat/completions", chatUnderPolicy],
  ["/v1/messages", chatUnderPolicy],
  ["/v1/completions", (content: string) => ({ prompt: policy + content, max_tokens: 1 })],
] as const)(
  "%s finds public text for all keys, and what comes behind it for its own",
  async (route, bodyOf) => {
    server = startTestServer({ publicTexts: [policy], keys: { keys: ["red", "blue", "green"] } });
    const body = bodyOf(text);
    expect(await cached("red", route, body)).toBe(0);
    const own = await cached("red", route, body);
    const ofOther = await cached("blue", route, body);
    expect(ofOther).toBeGreaterThan(50);
    expect(ofOther).toBeLessThan(own - 50);
    // A prompt that another key has sent counts like a new one.
    expect(await cached("green", route, bodyOf(`Nobody has sent this: ${text}`))).toBe(ofOther);
    expect(await cached("blue", route, body)).toBe(own);
  },
);

test("public text is public at the beginning of a prompt alone", async () => {
  server = startTestServer({ publicTexts: [policy], keys: { keys: ["red", "blue"] } });
  const body = { prompt: `Not that. ${policy}`, max_tokens: 1 };
  expect(await cached("red", "/v1/completions", body)).toBe(0);
  expect(await cached("blue", "/v1/completions", body)).toBe(0);
});

test("a salt cannot name another key's", async () => {
  start(false);
  const tenants: string[] = [];
  const { submit } = server.fleet;
  server.fleet.submit = (sequence, listener) => {
    tenants.push(sequence.service.tenant);
    return submit.call(server.fleet, sequence, listener);
  };
  const route = "/v1/chat/completions";
  await cached("red", route, chatBody(text, { max_tokens: 1 }));
  const salts = ["", tenants[0]!, `${tenants[0]}:`].filter((salt) => salt !== "");
  for (const cache_salt of salts) {
    expect(await cached("blue", route, chatBody(text, { max_tokens: 1, cache_salt }))).toBe(0);
  }
});

test("a key sees nothing of what others' requests do, and the operator's sees it", async () => {
  server = startTestServer({ keys: { keys: ["red", "blue"], adminKeys: ["operator"] } });
  const get = async (path: string, key: string): Promise<string> => {
    const response = await fetch(server.origin + path, { headers: { authorization: `Bearer ${key}` } });
    const body = await response.text();
    return `${response.status} ${body.replace(/"timeMs":[\d.]+/, "")}`;
  };
  const told = ["/state", "/version", "/v1/models", "/props", "/api/ps", "/api/tags", "/slots", "/metrics"];
  const seen = () => Promise.all(told.map((path) => get(path, "blue")));
  const before = await seen();
  const ofOperator = await get("/state", "operator");
  await cached("red", "/v1/chat/completions", requests["/v1/chat/completions"]);
  expect(await seen()).toEqual(before);
  expect(await get("/state", "operator")).not.toBe(ofOperator);
  const metrics = await get("/metrics", "operator");
  expect(metrics).toMatch(/^vllm:prompt_tokens_total\{.*\} [1-9]/m);
  expect(metrics).toMatch(/^process_resident_memory_bytes [1-9]/m);
  expect(await get("/slots", "operator")).toStartWith("200 ");
  for (const path of ["/metrics", "/slots"]) {
    const refused = JSON.parse((await get(path, "blue")).replace("403 ", ""));
    expect(refused.error).toEqual({
      message: `${path} shows all keys' requests, which needs a key of --admin-key or --admin-key-file`,
      type: "permission_error",
      param: null,
      code: "admin_key_needed",
    });
  }
});

test("task groups of a program are numbered from 0, however many others have", async () => {
  server = startTestServer({ keys: { keys: ["red", "blue"] } });
  const gangsOf = async (key: string): Promise<unknown> => {
    const gang = {
      map: "list",
      item: "item",
      calls: [{ prompt: "{{item}}{{said}}", output: "said", max_tokens: 1 }],
    };
    const mapped = {
      variables: { list: ["a", "b"] },
      calls: [{ ...gang, result: "said", output: "all" }],
      await: ["all"],
      explain: true,
    };
    const response = await post(server, "/v1/programs", mapped, {
      headers: { authorization: `Bearer ${key}` },
    });
    const { explain } = (await response.json()) as {
      readonly explain: { readonly calls: { readonly gang: number | null }[] };
    };
    return explain.calls.flatMap(({ gang }) => (gang === null ? [] : [gang]));
  };
  const first = await gangsOf("red");
  expect(first).toEqual([0, 0]);
  expect(await gangsOf("blue")).toEqual(first);
});
