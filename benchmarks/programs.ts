/**
 * What a client waits for when the server runs its graph of calls, over what it waits for when it sends the calls one by one, on the
 * same server in turns, with an added round trip before each request. Greedy, fixed lengths, the same tokens both ways.
 *
 *   bun benchmarks/programs.ts [model folder] [--repeats 3] [-- options of serve]
 */

import { resolve } from "node:path";
import { table } from "../server/cli/table.ts";
import { startServer } from "./started-server.ts";

const ROUND_TRIPS_MS = [0, 50, 250];

/** A call: its prompt, in which {{name}} is another call's answer, and how many tokens it answers with. */
interface BenchCall {
  readonly name: string;
  readonly prompt: string;
  readonly tokens: number;
}

interface Workload {
  readonly name: string;
  readonly calls: readonly BenchCall[];
}

const args = process.argv.slice(2);
const rest = args.includes("--") ? args.slice(args.indexOf("--") + 1) : [];
const own = args.includes("--") ? args.slice(0, args.indexOf("--")) : args;
const repeats = own.includes("--repeats") ? Number(own[own.indexOf("--repeats") + 1]) : 3;
const folder = own.find((arg, index) => !arg.startsWith("--") && own[index - 1] !== "--repeats");

const times = (count: number): readonly number[] => Array.from({ length: count }, (_, index) => index);
/** About 100 tokens that differ by number. */
const text = (number: number): string =>
  times(12)
    .map(
      (sentence) =>
        `In part ${number} the ${["cat", "dog", "fox", "owl"][(number + sentence) % 4]} has ${sentence} hats.`,
    )
    .join(" ");

const workloads: readonly Workload[] = [
  {
    name: "chain of 20",
    calls: times(20).map((link) => ({
      name: `s${link}`,
      prompt: `${text(link)}\nBefore: ${link === 0 ? "nothing" : `{{s${link - 1}}}`}\nSummary:`,
      tokens: 25,
    })),
  },
  {
    name: "map of 16, reduce",
    calls: [
      ...times(16).map((part) => ({ name: `m${part}`, prompt: `${text(part)}\nSummary:`, tokens: 25 })),
      {
        name: "all",
        prompt: `Merge: ${times(16)
          .map((part) => `{{m${part}}}`)
          .join("\n")}\nSummary:`,
        tokens: 25,
      },
    ],
  },
  {
    name: "four agents, three rounds",
    calls: [
      { name: "plan", prompt: `${text(0)} ${text(1)}\nPlan:`, tokens: 25 },
      ...times(4).flatMap((file) => [
        { name: `code${file}`, prompt: `${text(0)} ${text(1)}\nPlan: {{plan}}\nFile ${file}:`, tokens: 50 },
        {
          name: `review${file}`,
          prompt: `${text(0)} ${text(1)}\nPlan: {{plan}}\nReview of {{code${file}}}:`,
          tokens: 25,
        },
        {
          name: `final${file}`,
          prompt: `${text(0)} ${text(1)}\nPlan: {{plan}}\nFile: {{code${file}}}\nReview: {{review${file}}}\nBetter:`,
          tokens: 50,
        },
      ]),
    ],
  },
  {
    name: "32 users of four prompts",
    calls: times(32).map((user) => ({
      name: `u${user}`,
      prompt: `${text(user % 4)} ${text(4 + (user % 4))}\nQuestion ${user}:`,
      tokens: 25,
    })),
  },
];

let runs = 0;
const greedy = { temperature: 0, ignore_eos: true };

async function post<Body>(url: string, path: string, body: object, roundTripMs: number): Promise<Body> {
  if (roundTripMs > 0) await Bun.sleep(roundTripMs);
  const init = {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
  const response = await fetch(url + path, init);
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as Body;
}

type Answers = Readonly<Record<string, string>>;

/** One request for all. */
async function asProgram(
  url: string,
  { calls }: Workload,
  roundTripMs: number,
  salt: string,
): Promise<Answers> {
  const body = {
    cache_salt: salt,
    calls: calls.map(({ name, prompt, tokens }) => ({
      name,
      prompt,
      output: name,
      max_tokens: tokens,
      ...greedy,
    })),
    await: calls.map(({ name }) => name),
  };
  const { variables } = await post<{ variables: Record<string, { value: string }> }>(
    url,
    "/v1/programs",
    body,
    roundTripMs,
  );
  return Object.fromEntries(Object.entries(variables).map(([name, { value }]) => [name, value]));
}

/** A request for each call, sent as soon as what it reads has arrived. */
async function byClient(
  url: string,
  { calls }: Workload,
  roundTripMs: number,
  salt: string,
): Promise<Answers> {
  const answers = new Map<string, Promise<string>>();
  const run = async ({ prompt, tokens }: BenchCall): Promise<string> => {
    const parts = await Promise.all(
      prompt.split(/\{\{(\w+)\}\}/).map((part, index) => (index % 2 === 0 ? part : answers.get(part)!)),
    );
    const body = { prompt: parts.join(""), max_tokens: tokens, cache_salt: salt, ...greedy };
    const { choices } = await post<{ choices: { text: string }[] }>(
      url,
      "/v1/completions",
      body,
      roundTripMs,
    );
    return choices[0]!.text;
  };
  for (const call of calls) answers.set(call.name, run(call));
  return Object.fromEntries(
    await Promise.all([...answers].map(async ([name, answer]) => [name, await answer])),
  );
}

async function timed(url: string, way: typeof asProgram, workload: Workload, roundTripMs: number) {
  const salt = `run ${runs++}`; // nothing is cached from before
  const startMs = performance.now();
  const answers = await way(url, workload, roundTripMs, salt);
  return { ms: performance.now() - startMs, answers };
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

const main = resolve(import.meta.dir, "../server/main.ts");
const server = await startServer(
  [process.execPath, main, "serve", ...(folder === undefined ? [] : [folder]), ...rest],
  ".",
);
const { url } = server.target;
for (const workload of workloads) for (const way of [asProgram, byClient]) await timed(url, way, workload, 0);
const rows: string[][] = [];
for (const roundTripMs of ROUND_TRIPS_MS) {
  for (const workload of workloads) {
    const programMs: number[] = [];
    const clientMs: number[] = [];
    for (let repeat = 0; repeat < repeats; repeat++) {
      const client = await timed(url, byClient, workload, roundTripMs);
      const program = await timed(url, asProgram, workload, roundTripMs);
      if (!Bun.deepEquals(client.answers, program.answers))
        throw new Error(`${workload.name}: the answers differ`);
      clientMs.push(client.ms);
      programMs.push(program.ms);
    }
    const [client, program] = [median(clientMs), median(programMs)];
    rows.push([
      workload.name,
      String(roundTripMs),
      client.toFixed(0),
      program.toFixed(0),
      `${(client / program).toFixed(2)}×`,
    ]);
  }
}
await server.stop();
console.log(table(["graph", "added round trip, ms", "client-driven, ms", "program, ms", "faster"], rows));
