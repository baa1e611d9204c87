/** Sessions of agents: how they are told, and that an agent finds its pages again after its subagents. */
import { afterEach, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { post, startTestServer, type TestServer, type TestServerOptions } from "./server.ts";

const template = readFileSync(join(import.meta.dir, "../reference/tools/template.jinja"), "utf8");
const tools = ["read", "task"].map((name) => ({
  type: "function",
  function: {
    name,
    description: `Does ${name}`,
    parameters: { type: "object", properties: { of: { type: "string" } }, required: ["of"] },
  },
}));

/** The model calls the tool that the last message names in capitals, or says that it is done. */
function says(prompt: string): readonly string[] {
  const [name] = /(READ|TASK|DONE)(?!.*(READ|TASK|DONE))/s.exec(prompt)!;
  if (name === "DONE") return ["All of it is done."];
  return [`<tool_call>\n{"name": "${name.toLowerCase()}", "arguments": {"of": "it"}}\n</tool_call>`];
}

let server: TestServer;
afterEach(async () => {
  await server.settled();
  await server.close();
});

function start(options: TestServerOptions = {}): void {
  server = startTestServer({ stepMs: 0, answers: says, template, ...options });
}

interface Message {
  readonly role: string;
  readonly content: string | null;
}

interface Account {
  readonly found: { readonly memory: number };
  readonly prompt_tokens: number;
  readonly session: { readonly id: number; readonly parent: number | null; readonly by: string } | null;
}

interface Asked {
  /** Fields of every body. */
  readonly more?: object;
  readonly key?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A conversation of one agent: every prompt is the one before, the answer to it, and what the tools say. */
class Agent {
  readonly accounts: Account[] = [];
  readonly #messages: Message[];
  readonly #more: object;
  readonly #key: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(system: string, { more = {}, key = "red", headers = {} }: Asked = {}) {
    this.#messages = [{ role: "system", content: system }];
    this.#more = more;
    this.#key = key;
    this.#headers = headers;
  }

  async ask(content: string, role = "tool"): Promise<Account> {
    this.#messages.push({ role, content });
    const headers = { authorization: `Bearer ${this.#key}`, ...this.#headers };
    const body = { model: "demo", messages: this.#messages, tools, max_tokens: 60, ...this.#more };
    const response = await post(server, "/v1/chat/completions", body, { headers });
    const text = await response.text();
    if (!response.ok) throw new Error(text);
    const { message } = (JSON.parse(text) as { choices: { message: Message }[] }).choices[0]!;
    this.#messages.push(message);
    const path = `/v1/requests/${response.headers.get("x-request-id")!}/cache`;
    const account = await fetch(`${server.origin}${path}`, { headers });
    const [one] = ((await account.json()) as { prompts: Account[] }).prompts;
    this.accounts.push(one!);
    return one!;
  }
}

const words = (count: number, word: string): string => `${word} `.repeat(count);
const base = words(60, "tidy");

/** Runs an agent whose subagents work one after the other. Returns all accounts, the agent's last one last. */
async function agentWithSubagents(): Promise<readonly Account[]> {
  const agent = new Agent(base);
  await agent.ask(`${words(400, "plan")}READ`, "user");
  await agent.ask(`${words(200, "file")}TASK`);
  const accounts = [...agent.accounts];
  for (const name of ["first", "second", "third", "fourth"]) {
    const subagent = new Agent(base);
    await subagent.ask(`${words(150, name)}READ`, "user");
    await subagent.ask(`${words(60, "code")}READ`);
    await subagent.ask(`${words(60, "test")}DONE`);
    accounts.push(...subagent.accounts);
  }
  await agent.ask(`${words(20, "both")}DONE`);
  return [...accounts, agent.accounts.at(-1)!];
}

const computed = (accounts: readonly Account[]): number =>
  accounts.reduce((sum, { prompt_tokens: tokens, found }) => sum + tokens - found.memory, 0);

describe("an agent's pages", () => {
  test("are there after its subagents with memory for one context and a half, and without sessions are not", async () => {
    start();
    const ample = await agentWithSubagents();
    await server.close();
    const longest = Math.max(...ample.map(({ prompt_tokens: tokens }) => tokens));
    const spec = { pages: Math.ceil((1.5 * longest) / 16) };
    start({ spec, keepsSessions: false });
    const without = await agentWithSubagents();
    await server.settled();
    await server.close();
    start({ spec });
    const kept = await agentWithSubagents();
    expect(kept.map(({ prompt_tokens: tokens }) => tokens)).toEqual(
      ample.map(({ prompt_tokens: tokens }) => tokens),
    );
    const added = computed(ample);
    expect(kept.at(-1)!.found.memory).toBe(ample.at(-1)!.found.memory);
    expect(without.at(-1)!.found.memory).toBeLessThan(longest / 2);
    expect(computed(kept) / added).toBeLessThan(1.05);
    expect(computed(without) / added).toBeGreaterThan(1.2);
  }, 60_000);
});

const signs = (accounts: readonly Account[]) => accounts.map(({ session }) => session);
const read = `${words(150, "plan")}READ`;

describe("a session is told", () => {
  test("by its tokens: a chat goes on, a subagent is the child of the agent that waits, others are new", async () => {
    start();
    const agent = new Agent(base);
    await agent.ask(read, "user");
    const subagent = new Agent(base);
    await subagent.ask(`${words(10, "search")}READ`, "user");
    await subagent.ask(`${words(10, "found")}DONE`);
    await agent.ask("Found. DONE");
    const other = new Agent(base);
    await other.ask("Another question. DONE", "user");
    expect([...signs(agent.accounts), ...signs(subagent.accounts), ...signs(other.accounts)]).toEqual([
      { id: 0, parent: null, by: "new" },
      { id: 0, parent: null, by: "continued" },
      { id: 1, parent: 0, by: "branched" },
      { id: 1, parent: 0, by: "continued" },
      { id: 2, parent: null, by: "new" },
    ]);
    const metrics = await (await fetch(`${server.origin}/metrics`)).text();
    const counted = metrics.split("\n").filter((line) => line.startsWith("bunting_session_turns_total"));
    expect(counted.sort()).toEqual([
      'bunting_session_turns_total{by="branched"} 1',
      'bunting_session_turns_total{by="continued"} 2',
      'bunting_session_turns_total{by="new"} 2',
    ]);
  });

  test.each([
    ["prompt_cache_key", { more: { prompt_cache_key: "talk" } }],
    ["metadata.user_id", { more: { metadata: { user_id: "user_1_session_talk" } } }],
    ["x-session-id", { headers: { "x-session-id": "talk" } }],
  ])("by the name in %s, where a subagent begins otherwise", async (_, asked) => {
    start();
    await new Agent(base, asked).ask(read, "user");
    const subagent = await new Agent(words(60, "brief"), asked).ask("Look. DONE", "user");
    const stranger = await new Agent(words(60, "other")).ask("Look. DONE", "user");
    expect([subagent.session, stranger.session]).toEqual([
      { id: 1, parent: 0, by: "named" },
      { id: 2, parent: null, by: "new" },
    ]);
  });

  test("apart for two names, two persons and two keys, whatever their tokens", async () => {
    start({ keys: { keys: ["red", "blue"] } });
    const asked: readonly Asked[] = [
      { more: { user: "ann", session_id: "talk" } },
      { more: { user: "bob", session_id: "talk" } },
      { more: { user: "ann", session_id: "chat" } },
      { more: { user: "ann", session_id: "talk" }, key: "blue" },
    ];
    const accounts: Account[] = [];
    for (const one of asked) accounts.push(await new Agent(base, one).ask(read, "user"));
    expect(signs(accounts)).toEqual([0, 1, 2, 3].map((id) => ({ id, parent: null, by: "new" })));
  });

  test("for no prompt of a server without sessions, and none of offline work", async () => {
    start();
    const offline = await new Agent(base, { more: { service_tier: "flex" } }).ask(read, "user");
    await server.settled();
    await server.close();
    start({ keepsSessions: false });
    const off = await new Agent(base).ask(read, "user");
    expect([offline.session, off.session]).toEqual([null, null]);
  });
});

test("Responses that go on from one another are turns of one session, and the first names it", async () => {
  start();
  const ask = async (body: object) => {
    const response = await post(server, "/v1/responses", { model: "demo", max_output_tokens: 60, ...body });
    const { id } = (await response.json()) as { id: string };
    const path = `/v1/requests/${response.headers.get("x-request-id")!}/cache`;
    const { prompts } = (await (await fetch(`${server.origin}${path}`)).json()) as { prompts: Account[] };
    return { id, session: prompts[0]!.session };
  };
  const first = await ask({ instructions: base, input: "Say it. DONE" });
  const second = await ask({ instructions: base, input: "Again. DONE", previous_response_id: first.id });
  expect([first.session, second.session]).toEqual([
    { id: 0, parent: null, by: "new" },
    { id: 0, parent: null, by: "continued" },
  ]);
});
