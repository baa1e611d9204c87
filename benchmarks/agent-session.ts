/**
 * Tokens that an agent of 20 turns with two subagents computes, over those that are new, with memory for one
 * context and a half. A whole server answers on `/v1/messages`, on the simulated device with scripted answers.
 *
 *   bun benchmarks/agent-session.ts
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { post, startTestServer, type TestServer } from "../tests/e2e/server.ts";

const TURNS = 20;
const SUBAGENT_TURNS = 8;
/** Turn whose tool call starts the subagents. */
const TASK_TURN = 15;
const PAGE_TOKENS = 16;
const CONTEXT_MAX = 32_768;

const template = readFileSync(join(import.meta.dir, "../tests/reference/tools/template.jinja"), "utf8");
const tools = ["read", "task"].map((name) => ({
  name,
  description: `Does ${name}`,
  input_schema: { type: "object", properties: { of: { type: "string" } }, required: ["of"] },
}));
const words = (count: number, word: string): string => `${word} `.repeat(count);

/** Scripted model: calls the tool that the last message names in capitals, or says that it is done. */
function says(prompt: string): readonly string[] {
  const [name] = /(READ|TASK|DONE)(?!.*(READ|TASK|DONE))/s.exec(prompt)!;
  if (name === "DONE") return [`${words(40, "fine")}and done.`];
  return [
    `${words(20, "next")}\n<tool_call>\n{"name": "${name.toLowerCase()}", "arguments": {"of": "it"}}\n</tool_call>`,
  ];
}

interface Usage {
  readonly input_tokens: number;
  readonly cache_read_input_tokens: number;
}

interface Block {
  readonly type: string;
  readonly id?: string;
}

class Agent {
  readonly #server: TestServer;
  readonly #system: string;
  readonly #messages: object[] = [];
  readonly #isNamed: boolean;
  #last: readonly Block[] = [];

  constructor(server: TestServer, system: string, isNamed: boolean) {
    this.#server = server;
    this.#system = system;
    this.#isNamed = isNamed;
  }

  async ask(text: string): Promise<Usage> {
    const calls = this.#last.filter(({ type }) => type === "tool_use");
    const content = calls.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: text }));
    this.#messages.push({ role: "user", content: calls.length === 0 ? text : content });
    const response = await post(this.#server, "/v1/messages", {
      model: "demo",
      max_tokens: 200,
      system: this.#system,
      messages: this.#messages,
      tools,
      ...(this.#isNamed ? { metadata: { user_id: "user_1_account__session_2" } } : {}),
    });
    if (!response.ok) throw new Error(await response.text());
    const { content: blocks, usage } = (await response.json()) as { content: Block[]; usage: Usage };
    this.#messages.push({ role: "assistant", content: blocks });
    this.#last = blocks;
    return usage;
  }
}

const promptTokens = ({ input_tokens: computed, cache_read_input_tokens: cached }: Usage): number =>
  computed + cached;

/** Runs the session. `together`: the subagents run at the same time. */
async function run(server: TestServer, isNamed: boolean, together: boolean): Promise<readonly Usage[]> {
  const all: Usage[] = [];
  const agent = new Agent(server, words(900, "agent"), isNamed);
  const subagent = async (name: string): Promise<void> => {
    // Subagents of Claude Code have their own instruction; those of other clients share the agent's.
    const own = new Agent(server, words(isNamed ? 500 : 900, isNamed ? "helper" : "agent"), isNamed);
    for (let turn = 0; turn < SUBAGENT_TURNS; turn++)
      all.push(await own.ask(`${words(250, name)}${turn + 1 === SUBAGENT_TURNS ? "DONE" : "READ"}`));
  };
  for (let turn = 0; turn < TURNS; turn++) {
    const next = turn + 1 === TURNS ? "DONE" : turn === TASK_TURN ? "TASK" : "READ";
    all.push(await agent.ask(`${words(100, `file${turn}`)}${next}`));
    if (turn !== TASK_TURN) continue;
    if (together) await Promise.all(["first", "second"].map(subagent));
    else for (const name of ["first", "second"]) await subagent(name);
  }
  return all;
}

async function measure(keepsSessions: boolean, pages: number, isNamed: boolean, together: boolean) {
  const spec = { pages, pageTokens: PAGE_TOKENS, contextMax: CONTEXT_MAX };
  const server = startTestServer({ answers: says, template, stepMs: 2, spec, keepsSessions });
  const usages = await run(server, isNamed, together);
  await server.settled();
  await server.close();
  const computed = usages.reduce((sum, { input_tokens: tokens }) => sum + tokens, 0);
  return { computed, longest: Math.max(...usages.map(promptTokens)) };
}

console.log(
  "| Subagents | new tokens | longest context | pages | without sessions | with |\n|---|---|---|---|---|---|",
);
for (const isNamed of [false, true]) {
  for (const together of [false, true]) {
    const { computed: added, longest } = await measure(false, 16_384, isNamed, together);
    const pages = Math.ceil((1.5 * longest) / PAGE_TOKENS);
    const without = await measure(false, pages, isNamed, together);
    const kept = await measure(true, pages, isNamed, together);
    const about = `${together ? "together" : "in turn"}, ${isNamed ? "own instruction, named" : "the agent's instruction"}`;
    const ratios = [without, kept].map(({ computed }) => (computed / added).toFixed(2));
    console.log(`| ${about} | ${added} | ${longest} | ${pages} | ${ratios.join(" | ")} |`);
  }
}
process.exit();
