/** Accounts of what the cache had of requests: header, record and metrics on every wire format, by key. */
import { afterEach, expect, test } from "bun:test";
import { chatBody, post, startTestServer, type TestServer, type TestServerOptions } from "./server.ts";
import { byPath } from "./wires.ts";

let server: TestServer;
afterEach(async () => {
  await server.settled();
  await server.close();
});

function start(options: TestServerOptions = {}): void {
  server = startTestServer({ stepMs: 0, answers: ["It is sunny in the whole city today."], ...options });
}

interface Account {
  readonly id: string;
  readonly model: string;
  readonly prompts: readonly {
    readonly prompt_tokens: number;
    readonly found: { readonly memory: number; readonly host: number; readonly disk: number };
    readonly ended: string;
    readonly misses: readonly Record<string, unknown>[];
    readonly earlier: { readonly shared_tokens: number } | null;
  }[];
}

const withKey = (key: string) => ({ headers: { authorization: `Bearer ${key}` } });

async function ask(body: object, key = "red", path = "/v1/chat/completions") {
  const response = await post(server, path, body, withKey(key));
  if (!response.ok) throw new Error(await response.text());
  const text = await response.text();
  return { text, id: response.headers.get("x-request-id")!, brief: response.headers.get("x-bunting-cache") };
}

const read = (id: string, key = "red"): Promise<Response> =>
  fetch(`${server.origin}/v1/requests/${id}/cache`, withKey(key));

async function account(id: string, key = "red"): Promise<Account["prompts"][number]> {
  return ((await (await read(id, key)).json()) as Account).prompts[0]!;
}

const system = "You answer questions about the weather of cities, in one sentence, and say nothing else.";
const conversation = (...texts: readonly string[]) => ({
  model: "demo",
  messages: [
    { role: "system", content: system },
    ...texts.map((content, index) => ({ role: index % 2 === 0 ? "user" : "assistant", content })),
  ],
});

test.each(byPath)("%s says what the cache had", async (path, wire) => {
  start();
  const body = wire.body({ content: "What is the weather like in the city of Rome?", max: 4 });
  const first = await ask(body, "red", path);
  expect(first.brief).toMatch(/^hit=0 of \d+; ended=new@0$/);
  const second = await ask(body, "red", path);
  expect(second.brief).toMatch(/^hit=\d+ of \d+; ended=whole$/);
  const { prompt_tokens: tokens, found, misses } = await account(second.id);
  expect([found, misses]).toEqual([{ memory: tokens - 1, host: 0, disk: 0 }, []]);
});

test("a stream has the header, and a conversation that goes on finds its beginning", async () => {
  start();
  const stream = await ask({ ...conversation("Rome?"), stream: true });
  expect(stream.brief).toMatch(/^hit=0 of \d+; ended=new@0$/);
  const { id } = await ask(conversation("Rome?", "It is sunny in the whole city today.", "And Paris?"));
  const { found, misses, earlier } = await account(id);
  expect(misses.map(({ reason }) => reason)).toEqual(["new"]);
  expect(found.memory).toBe(earlier!.shared_tokens);
});

test("the first difference has its message, its role and the text around it", async () => {
  start();
  await ask(conversation("What is it in Rome?", "Sun.", "And tomorrow?"));
  const { id } = await ask(conversation("What is it in Paris?", "Sun.", "And tomorrow?"));
  const [miss] = (await account(id)).misses;
  expect(miss).toMatchObject({ reason: "differs", message: 1, role: "user", cost_ms: expect.any(Number) });
  expect(miss!.now).toContain("Paris");
  expect(miss!.was).toContain("Rome");
  for (const text of [miss!.now, miss!.was] as string[]) expect([...text].length).toBeLessThanOrEqual(40);
  const changed = conversation("What is it in Paris?", "Sun.", "And tomorrow?");
  changed.messages[0] = { role: "system", content: system.replace("weather", "prices") };
  const [first] = (await account((await ask(changed)).id)).misses;
  expect(first).toMatchObject({ reason: "differs", message: 0, role: "system" });
});

test("tools that change are named as such", async () => {
  start();
  const tool = (name: string) => ({
    type: "function",
    function: { name, parameters: { type: "object", properties: {} } },
  });
  await ask({ ...conversation("Rome?"), tools: [tool("look"), tool("read")] });
  const { id } = await ask({ ...conversation("Rome?"), tools: [tool("look"), tool("write")] });
  expect((await account(id)).misses[0]).toMatchObject({ reason: "differs", message: null, role: "tools" });
});

test("each prompt of a request has its part", async () => {
  start();
  const prompt = ["One of the prompts.", "Another one."];
  const { id, brief } = await ask({ model: "demo", prompt, max_tokens: 2 }, "red", "/v1/completions");
  expect(brief).toMatch(/^hit=0 of \d+; ended=new@0, hit=0 of \d+; ended=new@0$/);
  expect(((await (await read(id)).json()) as Account).prompts).toHaveLength(2);
});

test("another key can neither read the account nor learn of the prompt", async () => {
  start({ keys: { keys: ["red", "blue"] } });
  const { id } = await ask(conversation("Rome?"));
  const unknown = await (await read("req_none", "blue")).text();
  const foreign = await read(id, "blue");
  expect(foreign.status).toBe(404);
  expect(await foreign.text()).toBe(unknown.replace("req_none", id));
  expect((await read(id)).status).toBe(200);
  expect((await fetch(`${server.origin}/v1/requests/${id}/cache`)).status).toBe(401);
  // A client may choose its ids: the same one of another key is another request.
  await post(server, "/v1/chat/completions", conversation("Rome?"), {
    headers: { ...withKey("blue").headers, "x-request-id": id },
  });
  const [red, blue] = [await account(id), await account(id, "blue")];
  expect([blue.ended, blue.found.memory, blue.earlier]).toEqual(["new@0", 0, null]);
  expect(red.ended).toBe("new@0");
});

test("keys that share their prefixes see no text of each other's prompts", async () => {
  start({ keys: { keys: ["red", "blue"] }, sharePrefixes: true });
  await ask(conversation("What is it in Rome?"));
  const { id } = await ask(conversation("What is it in Paris?"), "blue");
  const { found, misses, earlier } = await account(id, "blue");
  expect(found.memory).toBeGreaterThan(10);
  expect([misses.map(({ reason }) => reason), earlier]).toEqual([["new"], null]);
  expect(JSON.stringify(misses)).not.toContain("Rome");
});

test("misses are counted by reason", async () => {
  start();
  await ask(conversation("Rome?"));
  await ask({ ...conversation("Rome?"), cache_salt: "other" });
  await ask({ ...conversation("Rome?"), prompt_logprobs: 1 });
  const metrics = await (await fetch(`${server.origin}/metrics`)).text();
  for (const reason of ["new", "salt", "prompt_logprobs"]) {
    expect(metrics).toContain(`bunting_cache_miss_total{reason="${reason}"} 1`);
    expect(metrics).toMatch(new RegExp(`bunting_cache_miss_tokens_total{reason="${reason}"} [1-9]`));
  }
});

test("there is no account of a request that asked nothing of the model, and no other route below it", async () => {
  start();
  const { id } = await ask(chatBody("Rome?", { max_tokens: 1 }));
  for (const path of [`/v1/requests/${id}/`, `/v1/requests/${id}/cache/more`, `/v1/requests/${id}/other`])
    expect((await fetch(server.origin + path)).status).toBe(404);
  const models = await fetch(`${server.origin}/v1/models`);
  expect((await read(models.headers.get("x-request-id")!)).status).toBe(404);
});
