/**
 * The demo model's skills that end in JSON, free and held to what is wanted: how many answers are valid, and how many right. Fields of a
 * sentence are held to a schema of the wanted fields, calls to the tools of the request (`tool_choice: "required"`). Questions are those of
 * models/demo/train/evaluate, which takes Python and WordNet 3.0 (`apt-get install wordnet-base`, or `WORDNET_DIR`).
 *
 *   npx bun benchmarks/constraint-skills.ts [--fields 300] [--calls 200] [--temperature 0] [--python python3]
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { table } from "../server/cli/table.ts";
import { allows } from "../tests/support/schema-oracle.ts";
import { startServer } from "./started-server.ts";

const { values } = parseArgs({
  options: {
    fields: { type: "string", default: "300" },
    calls: { type: "string", default: "200" },
    temperature: { type: "string", default: "0" },
    python: { type: "string", default: "python3" },
  },
});
const CLIENTS = 16;
const TOKENS_MAX = 192;
const root = resolve(import.meta.dir, "..");

interface Call {
  readonly name: string;
  readonly arguments: unknown;
}

interface Message {
  readonly role: string;
  readonly content: string | null;
  readonly tool_calls?: readonly { readonly function: Call }[];
}

interface Tool {
  readonly function: { readonly name: string; readonly parameters: object };
}

/** A conversation up to the answer that is wanted. */
interface Question {
  readonly messages: readonly Message[];
  readonly tools: readonly Tool[];
}

interface Answer {
  readonly finish_reason: string;
  readonly message: {
    readonly content: string | null;
    readonly tool_calls?: readonly {
      readonly function: { readonly name: string; readonly arguments: string };
    }[];
  };
}

interface Verdict {
  readonly isValid: boolean;
  readonly isRight: boolean;
  readonly isCut: boolean;
}

/** The seed is that of the model's own table of scores. */
const generator = `
import json, sys
sys.path.insert(0, sys.argv[1])
import skills_tasks, skills_tools, words
draw = words.Draw(20000, held=True)
fields = [{"messages": skills_tasks.extract(draw), "tools": []} for _ in range(int(sys.argv[2]))]
draw = words.Draw(20000, held=True)
calls = [dict(zip(("messages", "tools"), skills_tools.tools(draw, "call"))) for _ in range(int(sys.argv[3]))]
print(json.dumps({"fields": fields, "calls": calls}))
`;

function questions(): { readonly fields: readonly Question[]; readonly calls: readonly Question[] } {
  const folder = join(root, "models/demo/train");
  const { stdout, success } = Bun.spawnSync(
    [values.python, "-c", generator, folder, values.fields, values.calls],
    { stderr: "inherit" },
  );
  if (!success) throw new Error("the questions could not be made");
  return JSON.parse(stdout.toString());
}

/** An object of such fields. */
function schemaOf(value: unknown): object {
  if (Array.isArray(value))
    return value.length === 0 ? { type: "array" } : { type: "array", items: schemaOf(value[0]) };
  if (value === null) return { type: "null" };
  if (typeof value === "number") return { type: Number.isInteger(value) ? "integer" : "number" };
  if (typeof value !== "object") return { type: typeof value };
  const properties = Object.fromEntries(Object.entries(value).map(([key, one]) => [key, schemaOf(one)]));
  return { type: "object", properties, required: Object.keys(value), additionalProperties: false };
}

/** Undefined: it is no JSON. */
function parsed(text: string | null): unknown {
  try {
    return JSON.parse(text ?? "");
  } catch {
    return undefined;
  }
}

async function ask(url: string, seed: number, messages: readonly Message[], more: object): Promise<Answer> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      messages: messages.map(({ role, content }) => ({ role, content })),
      ...{ temperature: Number(values.temperature), seed, max_tokens: TOKENS_MAX },
      ...more,
    }),
  });
  if (!response.ok) throw new Error(await response.text());
  const { choices } = (await response.json()) as { readonly choices: readonly [Answer] };
  return choices[0];
}

async function fieldsOf(
  url: string,
  { messages }: Question,
  seed: number,
  isHeld: boolean,
): Promise<Verdict> {
  const wanted = parsed(messages.at(-1)!.content);
  const schema = schemaOf(wanted);
  const format = { type: "json_schema", json_schema: { name: "fields", schema, strict: true } };
  const answer = await ask(url, seed, messages.slice(0, -1), isHeld ? { response_format: format } : {});
  const value = parsed(answer.message.content);
  return {
    isValid: value !== undefined && allows(schema, value),
    isRight: Bun.deepEquals(value, wanted),
    isCut: answer.finish_reason === "length",
  };
}

async function callOf(
  url: string,
  { messages, tools }: Question,
  seed: number,
  isHeld: boolean,
): Promise<Verdict> {
  const at = messages.findIndex((message) => message.tool_calls !== undefined);
  const wanted = messages[at]!.tool_calls![0]!.function;
  const held = isHeld ? { tool_choice: "required", parallel_tool_calls: false } : {};
  const answer = await ask(url, seed, messages.slice(0, at), { tools, ...held });
  const calls = (answer.message.tool_calls ?? []).map((call) => call.function);
  const [call] = calls;
  const tool = tools.find((one) => one.function.name === call?.name);
  const given = parsed(call?.arguments ?? null);
  return {
    isValid: calls.length === 1 && tool !== undefined && allows(tool.function.parameters, given),
    isRight: calls.length === 1 && call!.name === wanted.name && Bun.deepEquals(given, wanted.arguments),
    isCut: answer.finish_reason === "length",
  };
}

/** All verdicts, of so many clients at a time. */
async function judge(
  given: readonly Question[],
  one: (question: Question, seed: number) => Promise<Verdict>,
): Promise<Verdict[]> {
  const verdicts: Verdict[] = [];
  const client = async (first: number): Promise<void> => {
    for (let at = first; at < given.length; at += CLIENTS) verdicts[at] = await one(given[at]!, at);
  };
  await Promise.all(Array.from({ length: CLIENTS }, (_, number) => client(number)));
  return verdicts;
}

const { fields, calls } = questions();
const scratch = mkdtempSync(join(tmpdir(), "bunting-skills-"));
const server = await startServer(
  [process.execPath, join(root, "server/main.ts"), "serve", "--device", "cpu", "--data", scratch],
  scratch,
);
try {
  const { url } = server.target;
  const lines: string[][] = [];
  for (const isHeld of [false, true]) {
    const rows = [
      ["fields as JSON", await judge(fields, (question, seed) => fieldsOf(url, question, seed, isHeld))],
      ["calls", await judge(calls, (question, seed) => callOf(url, question, seed, isHeld))],
    ] as const;
    for (const [name, verdicts] of rows) {
      const count = (pick: (verdict: Verdict) => boolean): string => String(verdicts.filter(pick).length);
      lines.push([
        ...[name, isHeld ? "held" : "free", count(({ isValid }) => isValid), count(({ isRight }) => isRight)],
        ...[count(({ isCut }) => isCut), String(verdicts.length)],
      ]);
    }
  }
  console.log(table(["skill", "", "valid", "right", "cut", "of"], lines));
} finally {
  await server.stop();
  rmSync(scratch, { recursive: true });
}
