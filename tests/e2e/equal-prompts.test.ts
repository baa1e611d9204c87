/**
 * Prompts of conversations go on: the tokens of each turn begin with those of the turn before and its answer, but where
 * docs/reference/conversations.md says otherwise. Clients send messages back as five agents do.
 */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { callForms } from "../../text/formats/call-forms.ts";
import { writtenCalls } from "../../text/formats/written-calls.ts";
import { dialects } from "../support/dialects.ts";
import { type PromptShape, promptShapes } from "../support/prompt-shapes.ts";
import { startTestServer, type TestServer } from "./server.ts";

// biome-ignore lint/suspicious/noExplicitAny: bodies of three wire formats
type Json = Record<string, any>;

/** A client: its requests, turn by turn, made of the answers that it got. */
interface Agent {
  readonly path: string;
  readonly first: () => Json;
  /** The body after an answer: with results of its calls, or with a new question. */
  readonly next: (body: Json, answer: Json, turn: number) => Json;
}

const parameters = {
  type: "object",
  properties: { path: { type: "string" }, limit: { type: "integer" }, exact: { type: "boolean" } },
  required: ["path"],
};
const names = ["read_file", "list_files"];
const values = { path: "src/é.ts", limit: 20, exact: true };
const openaiTools = names.map((name) => ({
  type: "function",
  function: { name, description: "Reads.", parameters },
}));
const instructions = "You are a coding agent. Work in small steps, and tell what you did.";
const reminder = (turn: number): string =>
  `<reminder>The time is ${turn}:00. Two files have changed.</reminder>`;
const question = "Look at the files, and mend the first fault that you find.";

/** Chats of OpenAI's form. `sent`: the assistant's message as the client sends it back. */
function chats(sent: (message: Json) => Json, kept: (messages: Json[]) => Json[] = (all) => all): Agent {
  return {
    path: "/v1/chat/completions",
    first: () => ({
      tools: openaiTools,
      messages: [
        { role: "system", content: instructions },
        { role: "user", content: question },
      ],
    }),
    next: (body, { choices: [{ message }] }, turn) => {
      const calls: Json[] = message.tool_calls ?? [];
      const results = calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: `Result ${turn}.` }));
      const asked = calls.length > 0 ? results : [{ role: "user", content: `Now do step ${turn}.` }];
      const before = calls.length > 0 ? body.messages : kept(body.messages);
      return { ...body, messages: [...before, sent(message), ...asked] };
    },
  };
}

const calling = ({ content, tool_calls: calls }: Json, json: (text: string) => string): Json => ({
  role: "assistant",
  content,
  ...(calls === undefined
    ? {}
    : {
        tool_calls: calls.map((call: Json) => ({
          ...call,
          function: { ...call.function, arguments: json(call.function.arguments) },
        })),
      }),
});
/** Arguments as JavaScript and as Python write them after parsing. */
const asJavaScript = (text: string): string => JSON.stringify(JSON.parse(text));
const asPython = (text: string): string =>
  `{${Object.entries(JSON.parse(text))
    .map(([name, value]) => `"${name}": ${JSON.stringify(value)}`)
    .join(", ")}}`;

const agents: Readonly<Record<string, Agent>> = {
  // A system message ends each request; marks of the cache move; the first line of the system prompt is another each time.
  "Claude Code": {
    path: "/v1/messages",
    first: () => ({
      max_tokens: 400,
      system: [
        { type: "text", text: "x-anthropic-billing-header: cc_version=2.1; cch=00001;" },
        { type: "text", text: instructions, cache_control: { type: "ephemeral" } },
      ],
      tools: names.map((name) => ({ name, description: "Reads.", input_schema: parameters })),
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "<context/>" },
            { type: "text", text: question },
          ],
        },
        { role: "system", content: reminder(1) },
      ],
    }),
    next: (body, { content }, turn) => {
      const calls = content.filter(({ type }: Json) => type === "tool_use");
      const results = calls.map(({ id }: Json) => ({
        type: "tool_result",
        tool_use_id: id,
        content: `Result ${turn}.`,
      }));
      const asked = calls.length > 0 ? results : [{ type: "text", text: `Now do step ${turn}.` }];
      const mark = { cache_control: { type: "ephemeral" } };
      return {
        ...body,
        system: [
          { type: "text", text: `x-anthropic-billing-header: cc_version=2.1; cch=0000${turn};` },
          body.system[1],
        ],
        messages: [
          ...body.messages,
          { role: "assistant", content },
          { role: "user", content: [...asked.slice(0, -1), { ...asked.at(-1), ...mark }] },
          { role: "system", content: reminder(turn) },
        ],
      };
    },
  },
  // Sends the items back as they came, and a developer's message beside them.
  Codex: {
    path: "/v1/responses",
    first: () => ({
      instructions,
      store: false,
      include: ["reasoning.encrypted_content"],
      tools: names.map((name) => ({
        type: "function",
        name,
        description: "Reads.",
        parameters,
        strict: false,
      })),
      input: [
        { type: "message", role: "developer", content: [{ type: "input_text", text: "Files may be read." }] },
        { type: "message", role: "user", content: [{ type: "input_text", text: question }] },
      ],
    }),
    next: (body, { output }, turn) => {
      const calls = output.filter(({ type }: Json) => type === "function_call");
      const results = calls.map(({ call_id }: Json) => ({
        type: "function_call_output",
        call_id,
        output: `Result ${turn}.`,
      }));
      const asked = [
        { type: "message", role: "developer", content: [{ type: "input_text", text: reminder(turn) }] },
        { type: "message", role: "user", content: [{ type: "input_text", text: `Now do step ${turn}.` }] },
      ];
      return { ...body, input: [...body.input, ...output, ...(calls.length > 0 ? results : asked)] };
    },
  },
  opencode: chats((message) => ({
    ...calling(message, asJavaScript),
    ...(message.reasoning_content === undefined ? {} : { reasoning_content: message.reasoning_content }),
  })),
  // Drops thoughts, as its messages have no field for them.
  LangChain: chats((message) => calling(message, asPython)),
  // Drops thoughts, and of the turns before the last question all calls with their results.
  "Open WebUI": chats(
    (message) => calling(message, (text) => text),
    (messages) => messages.filter(({ role, tool_calls: calls }) => role !== "tool" && calls === undefined),
  ),
};

/** Turns of a session: calls, calls, text, and after a new question text. */
const TURNS = 4;

/** Cells of the table in docs/reference/conversations.md, by the turns at which prompts part from the ones before. */
const cells: Readonly<Record<string, readonly number[]>> = {
  equal: [],
  "thoughts of each answer": [2, 3, 4],
  "thoughts before the question": [4],
  "calls before the question": [4],
  "thoughts of each answer; calls before the question": [2, 3, 4],
};

/** Turns at which the table says that prompts part, by row and agent. */
const told = new Map<string, ReadonlyMap<string, readonly number[]>>();
{
  const page = readFileSync(join(import.meta.dir, "../../docs/reference/conversations.md"), "utf8");
  const rows = page.split("\n").filter((line) => line.startsWith("|"));
  const head = rows.findIndex((line) => line.startsWith("| Past thoughts |"));
  const cellsOf = (line: string): string[] =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim());
  const [, ...columns] = cellsOf(rows[head]!);
  for (const line of rows.slice(head + 2)) {
    const [name, ...texts] = cellsOf(line);
    if (texts.length !== columns.length) break;
    told.set(name!, new Map(columns.map((agent, index) => [agent, cells[texts[index]!]!])));
  }
}

interface Played extends PromptShape {
  /** Calls of the first turn and of the second, as the model writes them; "" if it has none. */
  readonly calls: readonly [string, string];
  /** Text that ends a session's work; null: the template of our own writes none as the model does. */
  readonly text: string | null;
}

const shapes = new Map<string, Played>();
for (const [name, { template, thought, thoughts, calls }] of dialects) {
  const form = calls === null ? null : callForms[calls];
  const made = names
    .slice(0, form?.callsMax ?? 2)
    .map((one) => ({ name: one, arguments: values, parameters }));
  const first = form === null ? "" : writtenCalls(form, made);
  // Kimi's models number the calls of a conversation.
  const second = first.replaceAll(
    /:(\d)(?=<\|tool_call_argument_begin)/g,
    (_, n) => `:${Number(n) + made.length}`,
  );
  const text = ["gpt-oss", "Cohere"].includes(name) ? null : "Step 3 is done.";
  shapes.set(name, {
    template,
    thought,
    row: thoughts === null ? "none" : "all",
    calls: [first, second],
    text,
  });
}
for (const [name, shape] of promptShapes) shapes.set(name, { ...shapes.get("Qwen 3")!, ...shape });

const keyOf = (agent: string): string => agent.replace(" ", "-");

/** Plays a session. Returns the turns at which the prompt parted from the one before and its answer, with the texts. */
async function partsOf(
  server: TestServer,
  name: string,
  { path, first, next }: Agent,
): Promise<Map<number, string>> {
  const parts = new Map<number, string>();
  const headers = { "content-type": "application/json", authorization: `Bearer ${keyOf(name)}` };
  let body: Json = { model: "demo", ...first() };
  for (let turn = 1; ; turn++) {
    const response = await fetch(server.origin + path, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
    });
    const answer = (await response.json()) as Json;
    expect([response.status, response.ok ? "" : answer]).toEqual([200, ""]);
    if (!response.headers.get("x-bunting-cache")!.includes("ended=new@")) {
      const id = response.headers.get("x-request-id");
      const account = await fetch(`${server.origin}/v1/requests/${id}/cache`, { headers });
      parts.set(turn, JSON.stringify(((await account.json()) as Json).prompts[0].misses));
    }
    if (turn === TURNS) return parts;
    body = next(body, answer, turn + 1);
  }
}

test.each([...shapes])(
  "%s",
  async (_, { template, thought, row, calls, text }) => {
    let turn = 0;
    const answers = (): string[] => {
      turn += 1;
      const called = calls[turn - 1] ?? (text === null ? calls[1] : "");
      return [thought + (called === "" ? text : called)];
    };
    const server = startTestServer({
      ...{ template, answers, stepMs: 0, spec: { contextMax: 8192 } },
      keys: { keys: Object.keys(agents).map(keyOf) },
    });
    const found: Record<string, Record<number, string>> = {};
    const expected: Record<string, Record<number, string>> = {};
    for (const [name, agent] of Object.entries(agents)) {
      turn = 0;
      const parts = await partsOf(server, name, agent);
      found[name] = Object.fromEntries(parts);
      const turns = told.get(row)!.get(name)!;
      expected[name] = Object.fromEntries(turns.map((one) => [one, parts.get(one) ?? "nowhere"]));
    }
    await server.close();
    expect(found).toEqual(expected);
  },
  60_000,
);

test("the table of the page has all agents", () => {
  for (const row of told.values()) expect([...row.keys()]).toEqual(Object.keys(agents));
  expect([...told.keys()]).toEqual(["none", "all", "since the last question", "dropped"]);
});
