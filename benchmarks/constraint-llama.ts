/**
 * Constrained answers, ours compared with llama-server's. Both get the same bodies on the same route
 * (`/completion` with `json_schema`) at the same concurrency, with llama-server's default sampling at
 * temperature 1. One model with random weights in int8 and Q8_0.
 *
 *   npx bun benchmarks/constraint-llama.ts --place <folder of models> --llama-server <program> [--rows 32]
 *     [--answers 1] [--tokens 256] [--rounds 2] [--seconds 600]
 *
 * A record is an answer that has ended by itself; Ajv judges each. Answers cut at `--tokens` or after
 * `--seconds` of a round count separately, as neither valid nor invalid. So do refused requests. llama-server
 * first draws from all tokens, and consults its grammar only if the drawn token is not allowed. With random
 * weights that is nearly always so; a trained model would mostly spare it. Each answer has a slot of its own
 * there, and `LLAMA_ARG_…` variables of the environment apply to it.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { table } from "../server/cli/table.ts";
import { allows } from "../tests/support/schema-oracle.ts";
import { llamaServers } from "./cpu/llama.ts";
import { ggufFile, modelFolder } from "./cpu/models.ts";
import { startServer } from "./started-server.ts";

const { values } = parseArgs({
  options: {
    place: { type: "string" },
    "llama-server": { type: "string" },
    rows: { type: "string", default: "32" },
    answers: { type: "string", default: "1" },
    tokens: { type: "string", default: "256" },
    rounds: { type: "string", default: "2" },
    seconds: { type: "string", default: "600" },
  },
});
const { place, "llama-server": program } = values;
if (place === undefined || program === undefined) throw new Error("wanted: --place and --llama-server");
const [rows, tokensMax] = [Number(values.rows), Number(values.tokens)];
const CONTEXT_TOKENS = tokensMax + 128;

const short = { type: "string", maxLength: 12 };
function record(properties: Readonly<Record<string, object>>): object {
  return { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
}
/** Schemas as applications use them, each with one or two of the rarer keywords. */
const schemas: Readonly<Record<string, object>> = {
  "long keys, bounds, enums": record({
    accountIdentifier: { type: "integer", minimum: 1, maximum: 99_999 },
    subscriptionStatus: { enum: ["active", "suspended", "cancelled"] },
    preferredContactMethod: { enum: ["email", "telephone", "letter"] },
    hasAcceptedTermsAndConditions: { type: "boolean" },
    numberOfOpenInvoices: { type: "integer", minimum: 0, maximum: 99 },
  }),
  "pattern, length": record({
    sku: { type: "string", pattern: "^[A-Z]{3}-[0-9]{4}$" },
    title: { type: "string", minLength: 3, maxLength: 20, pattern: "^[A-Za-z ]+$" },
  }),
  "number bounds, multiples": record({
    price: { type: "number", exclusiveMinimum: 0, maximum: 1000, multipleOf: 0.01 },
    quantity: { type: "integer", minimum: 12, maximum: 480, multipleOf: 12 },
  }),
  formats: record({ due: { type: "string", format: "date" }, id: { type: "string", format: "uuid" } }),
  "unique items of an enum": record({
    days: {
      type: "array",
      items: { enum: ["mon", "tue", "wed", "thu", "fri"] },
      minItems: 2,
      uniqueItems: true,
    },
  }),
  "names by pattern": {
    type: "object",
    patternProperties: { "^[a-z]{1,8}$": { type: "integer", minimum: 0, maximum: 9 } },
    additionalProperties: false,
    minProperties: 1,
    maxProperties: 4,
  },
  "one of two": {
    oneOf: [
      record({ kind: { const: "circle" }, radius: { type: "integer", minimum: 1, maximum: 50 } }),
      record({ kind: { const: "square" }, side: { type: "integer", minimum: 1, maximum: 50 } }),
    ],
  },
  "not, and all of": {
    allOf: [record({ user: short, level: { type: "integer", minimum: 0, maximum: 9 } })],
    properties: { level: { not: { const: 5 } } },
  },
};
const names = Object.keys(schemas);

interface Counts {
  records: number;
  invalid: number;
  cut: number;
  refused: number;
}

interface Run {
  readonly name: string;
  readonly seconds: number;
  readonly tokens: number;
  readonly bySchema: ReadonlyMap<string, Counts>;
}

interface Answer {
  readonly content: string;
  readonly stop_type: string;
  readonly tokens_predicted: number;
}

/** Runs `rows` clients, each of which requests `answers` answers, one schema after another. */
async function run(name: string, url: string, round: number): Promise<Run> {
  const bySchema = new Map(names.map((one) => [one, { records: 0, invalid: 0, cut: 0, refused: 0 }]));
  const ended = AbortSignal.timeout(1000 * Number(values.seconds));
  let tokens = 0;
  const ask = async (number: number): Promise<void> => {
    const schemaName = names[number % names.length]!;
    const schema = schemas[schemaName]!;
    const counts = bySchema.get(schemaName)!;
    const response = await fetch(`${url}/completion`, {
      method: "POST",
      signal: ended,
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        prompt: `Record ${round} of number ${number}, written as JSON for the table of this week: `,
        json_schema: schema,
        n_predict: tokensMax,
        temperature: 1,
        seed: 1000 * round + number,
        cache_prompt: false,
      }),
    });
    if (!response.ok) {
      await response.arrayBuffer();
      counts.refused += 1;
      return;
    }
    const { content, stop_type: stop, tokens_predicted } = (await response.json()) as Answer;
    tokens += tokens_predicted;
    if (stop === "limit") {
      counts.cut += 1;
      return;
    }
    counts.records += 1;
    if (!isValid(schema, content)) counts.invalid += 1;
  };
  const startMs = performance.now();
  await Promise.all(
    Array.from({ length: rows }, async (_, row) => {
      for (let number = row; number < rows * Number(values.answers); number += rows) {
        await ask(number).catch((error: unknown) => {
          if (!ended.aborted) throw error;
          bySchema.get(names[number % names.length]!)!.cut += 1;
        });
      }
    }),
  );
  return { name, seconds: (performance.now() - startMs) / 1000, tokens, bySchema };
}

function isValid(schema: object, text: string): boolean {
  try {
    return allows(schema, JSON.parse(text));
  } catch {
    return false;
  }
}

function sum({ bySchema }: Run, of: keyof Counts): number {
  return [...bySchema.values()].reduce((all, counts) => all + counts[of], 0);
}

function perSecond(one: Run): number {
  return sum(one, "records") / one.seconds;
}

async function ours(round: number): Promise<Run> {
  const scratch = mkdtempSync(join(tmpdir(), "bunting-constraints-"));
  const main = resolve(import.meta.dir, "../server/main.ts");
  const memory = ["--kv-cache-gib", "1", "--max-model-len", String(CONTEXT_TOKENS), "--data", scratch];
  const options = ["serve", modelFolder(place!, "0.5B"), "--device", "cpu", "--quant", "int8", ...memory];
  const server = await startServer([process.execPath, main, ...options], scratch);
  try {
    return await run("ours", server.target.url, round);
  } finally {
    await server.stop();
    rmSync(scratch, { recursive: true });
  }
}

async function theirs(round: number): Promise<Run> {
  const gguf = await ggufFile(place!, "0.5B", "int8", program!);
  const threads = availableParallelism();
  const choices = llamaServers({ program: program!, gguf, threads }, rows, CONTEXT_TOKENS);
  const choice = choices[round % 2]!;
  const server = await choice.start();
  return await run(`llama-server ${choice.name}`, server.url, round).finally(server.stop);
}

const ratios: number[] = [];
const all: Run[] = [];
for (let round = 0; round < Number(values.rounds); round++) {
  const [own, other] = [await ours(round), await theirs(round)];
  all.push(own, other);
  for (const one of [own, other])
    console.log(
      `${one.name}: ${perSecond(one).toFixed(2)} records/s, ${(one.tokens / one.seconds).toFixed(0)} tokens/s; of ${rows * Number(values.answers)} answers ${sum(one, "records")} ended, ${sum(one, "invalid")} of them invalid, ${sum(one, "cut")} cut, ${sum(one, "refused")} refused`,
    );
  ratios.push(perSecond(own) / perSecond(other));
}
console.log(`records/s, ours over llama-server's: ${ratios.map((one) => `${one.toFixed(2)}×`).join(", ")}`);
const line = (name: string, isOurs: boolean): string => {
  const of = all.filter((one) => (one.name === "ours") === isOurs).map(({ bySchema }) => bySchema.get(name)!);
  const total = (what: keyof Counts): number => of.reduce((sum, counts) => sum + counts[what], 0);
  return `${total("records")}, ${total("invalid")}, ${total("cut")}, ${total("refused")}`;
};
console.log(
  table(
    ["schema", "ours: ended, invalid, cut, refused", "llama-server"],
    names.map((name) => [name, line(name, true), line(name, false)]),
  ),
);
