/**
 * Client-side latency of a graph of calls: run by the server, relative to calls that the client sends one by
 * one. Both run on the same server in turns, with an added round trip before each request. With
 * --llama-server, the client also sends the calls to that. Greedy, fixed lengths; Bunting's tokens are the
 * same both ways.
 *
 *   bun benchmarks/programs.ts [model folder] [--repeats 3] [--round-trips 0,50,250] [--only chain,map]
 *     [--llama-server <program> --gguf <the same model> --threads 2] [-- options of serve]
 *
 * The two chains have the same texts in another order. Text before the value is computed while the value is
 * awaited: the ratio of the two shows the gain of warming. "One chat" is a program of one call, compared with
 * the chat route.
 *
 * "Between calls" is the part of a program's time without a running call, from its arrival to the last value,
 * by its own account (`explain`). "At most" is the speedup if that part were zero, with the same steps.
 * Faster steps, or less time between them, help the client's way too.
 */

import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { table } from "../server/cli/table.ts";
import { llamaServers } from "./cpu/llama.ts";
import { deviceMs, startServer } from "./started-server.ts";

/** Call: its prompt, in which {{name}} is another call's answer, and the tokens of its answer. */
interface BenchCall {
  readonly name: string;
  readonly prompt: string;
  readonly tokens: number;
}

interface Workload {
  readonly name: string;
  readonly calls: readonly BenchCall[];
  /** True if prompts are user messages; else they are texts to complete. */
  readonly isChat?: boolean;
}

const { values: asked, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    repeats: { type: "string", default: "3" },
    "round-trips": { type: "string", default: "0,50,250" },
    only: { type: "string", default: "" },
    "llama-server": { type: "string" },
    gguf: { type: "string" },
    threads: { type: "string", default: "2" },
  },
});
const repeats = Number(asked.repeats);
const roundTripsMs = asked["round-trips"].split(",").map(Number);
const end = process.argv.indexOf("--");
const serveOptions = end < 0 ? [] : process.argv.slice(end + 1);
const folders = positionals.slice(0, positionals.length - serveOptions.length);

const times = (count: number): readonly number[] => Array.from({ length: count }, (_, index) => index);
/** Makes about 100 tokens that differ by number. */
const text = (number: number): string =>
  times(12)
    .map(
      (sentence) =>
        `In part ${number} the ${["cat", "dog", "fox", "owl"][(number + sentence) % 4]} has ${sentence} hats.`,
    )
    .join(" ");

const allWorkloads: readonly Workload[] = [
  {
    name: "chain of 20, text first",
    calls: times(20).map((link) => ({
      name: `s${link}`,
      prompt: `${text(link)}\nBefore: ${link === 0 ? "nothing" : `{{s${link - 1}}}`}\nSummary:`,
      tokens: 25,
    })),
  },
  {
    name: "chain of 20, value first",
    calls: times(20).map((link) => ({
      name: `s${link}`,
      prompt: `Before: ${link === 0 ? "nothing" : `{{s${link - 1}}}`}\n${text(link)}\nSummary:`,
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
  {
    name: "one chat",
    calls: [{ name: "answer", prompt: `${text(0)}\nQuestion:`, tokens: 25 }],
    isChat: true,
  },
];

const only = asked.only.split(",");
const workloads = allWorkloads.filter(({ name }) => only.some((part) => name.includes(part)));

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

/** Returns the variables that no other call reads: the result for the client. */
function resultsOf(calls: readonly BenchCall[]): readonly string[] {
  const read = new Set(
    calls.flatMap(({ prompt }) => [...prompt.matchAll(/\{\{(\w+)\}\}/g)].map(([, name]) => name!)),
  );
  return calls.map(({ name }) => name).filter((name) => !read.has(name));
}

/** Returns the request fields of a prompt. */
function promptFields(prompt: string, isChat = false): object {
  return isChat ? { messages: [{ role: "user", content: prompt }] } : { prompt };
}

/** Runs the workload as a single program request. */
async function asProgram(
  url: string,
  workload: Workload,
  roundTripMs: number,
  salt: string,
): Promise<Answers> {
  const { variables } = await post<Program>(url, "/v1/programs", programBody(workload, salt), roundTripMs);
  return Object.fromEntries(Object.entries(variables).map(([name, { value }]) => [name, value]));
}

/** Returns the milliseconds of a program's time without a running call. */
async function betweenCallsMs(url: string, workload: Workload): Promise<number> {
  const body = { ...programBody(workload, `run ${runs++}`), explain: true };
  const { explain } = await post<Program>(url, "/v1/programs", body, 0);
  let [idleMs, untilMs] = [0, 0];
  for (const { started_ms, ended_ms } of explain!.calls.toSorted((a, b) => a.started_ms - b.started_ms)) {
    idleMs += Math.max(0, started_ms - untilMs);
    untilMs = Math.max(untilMs, ended_ms);
  }
  return idleMs;
}

interface Program {
  readonly variables: Readonly<Record<string, { readonly value: string }>>;
  readonly explain?: {
    readonly calls: readonly { readonly started_ms: number; readonly ended_ms: number }[];
  };
}

function programBody({ calls, isChat }: Workload, salt: string): object {
  return {
    cache_salt: salt,
    calls: calls.map(({ name, prompt, tokens }) => ({
      name,
      ...promptFields(prompt, isChat),
      output: name,
      max_tokens: tokens,
      ...greedy,
    })),
    await: resultsOf(calls),
  };
}

/** Text of a completion or of a chat. */
interface Choice {
  readonly text?: string;
  readonly message?: { readonly content: string };
}

/** Sends a request for each call as soon as its inputs have arrived. */
async function byClient(
  url: string,
  { calls, isChat = false }: Workload,
  roundTripMs: number,
  salt: string,
  isLlama = false,
): Promise<Answers> {
  const answers = new Map<string, Promise<string>>();
  const run = async ({ prompt: template, tokens }: BenchCall): Promise<string> => {
    const parts = await Promise.all(
      template.split(/\{\{(\w+)\}\}/).map((part, index) => (index % 2 === 0 ? part : answers.get(part)!)),
    );
    // Makes prompts unique on servers without cache salts, so that no prefix is cached from earlier runs.
    const prompt = isLlama ? `${salt}. ${parts.join("")}` : parts.join("");
    const own = isLlama ? {} : { cache_salt: salt };
    const body = { ...promptFields(prompt, isChat), max_tokens: tokens, ...own, ...greedy };
    const path = isChat ? "/v1/chat/completions" : "/v1/completions";
    const { choices } = await post<{ choices: Choice[] }>(url, path, body, roundTripMs);
    const [choice] = choices;
    return choice!.message?.content ?? choice!.text ?? "";
  };
  for (const call of calls) answers.set(call.name, run(call));
  return Object.fromEntries(
    await Promise.all(resultsOf(calls).map(async (name) => [name, await answers.get(name)!])),
  );
}

async function timed(url: string, way: typeof asProgram, workload: Workload, roundTripMs: number) {
  const salt = `run ${runs++}`; // no prefix is cached from before
  const startMs = performance.now();
  const answers = await way(url, workload, roundTripMs, salt);
  return { ms: performance.now() - startMs, answers };
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

/** Formats the ratio of the medians, and the least and greatest ratio of a repeat. */
function faster(longMs: readonly number[], shortMs: readonly number[]): string {
  const ratios = longMs.map((ms, repeat) => ms / shortMs[repeat]!).sort((a, b) => a - b);
  const [least, most] = [ratios[0]!.toFixed(2), ratios.at(-1)!.toFixed(2)];
  const middle = `${(median(longMs) / median(shortMs)).toFixed(2)}×`;
  return ratios.length === 1 ? middle : `${middle} (${least}–${most})`;
}

/** Formats the median difference of all repeats, and the range of the middle half. */
function longer(longMs: readonly number[], shortMs: readonly number[]): string {
  const more = longMs.map((ms, repeat) => ms - shortMs[repeat]!).sort((a, b) => a - b);
  const at = (part: number): string => more[Math.floor(part * (more.length - 1))]!.toFixed(1);
  return `${at(0.5)} (${at(0.25)}–${at(0.75)})`;
}

/** Returns client-driven times on llama-server, by workload and round trip. */
async function llamaMs(): Promise<ReadonlyMap<string, readonly number[]>> {
  const [program, gguf] = [asked["llama-server"], asked.gguf];
  const took = new Map<string, readonly number[]>();
  if (program === undefined || gguf === undefined) return took;
  const [choice] = llamaServers({ program, gguf, threads: Number(asked.threads) }, 16, 2048);
  const running = await choice!.start();
  for (const workload of workloads) {
    for (const roundTripMs of roundTripsMs) {
      const each: number[] = [];
      for (let repeat = 0; repeat < repeats; repeat++) {
        const way: typeof asProgram = (url, graph, ms, salt) => byClient(url, graph, ms, salt, true);
        each.push((await timed(running.url, way, workload, roundTripMs)).ms);
      }
      took.set(`${workload.name} ${roundTripMs}`, each);
    }
  }
  await running.stop();
  return took;
}

const main = resolve(import.meta.dir, "../server/main.ts");
const server = await startServer([process.execPath, main, "serve", ...folders, ...serveOptions], ".");
const { url } = server.target;
for (const workload of workloads) for (const way of [asProgram, byClient]) await timed(url, way, workload, 0);
interface Measured {
  readonly workload: string;
  readonly roundTripMs: number;
  readonly clientMs: readonly number[];
  readonly programMs: readonly number[];
  readonly betweenMs: readonly number[];
  /** Compute time of the engine, for the first two ways. */
  readonly clientComputedMs: readonly number[];
  readonly programComputedMs: readonly number[];
}
const measured: Measured[] = [];
/** Runs a way on our server; also returns the engine's compute time. */
async function onServer(way: typeof asProgram, workload: Workload, roundTripMs: number) {
  const beforeMs = await deviceMs(server.target);
  const run = await timed(url, way, workload, roundTripMs);
  return { ...run, computedMs: (await deviceMs(server.target)) - beforeMs };
}
for (const roundTripMs of roundTripsMs) {
  for (const workload of workloads) {
    const row = { clientMs: [] as number[], programMs: [] as number[], betweenMs: [] as number[] };
    const computed = { clientComputedMs: [] as number[], programComputedMs: [] as number[] };
    for (let repeat = 0; repeat < repeats; repeat++) {
      const client = await onServer(byClient, workload, roundTripMs);
      const program = await onServer(asProgram, workload, roundTripMs);
      if (!Bun.deepEquals(client.answers, program.answers))
        throw new Error(`${workload.name}: the answers differ`);
      row.clientMs.push(client.ms);
      row.programMs.push(program.ms);
      row.betweenMs.push(await betweenCallsMs(url, workload));
      computed.clientComputedMs.push(client.computedMs);
      computed.programComputedMs.push(program.computedMs);
    }
    measured.push({ workload: workload.name, roundTripMs, ...row, ...computed });
  }
}
await server.stop();
const llama = await llamaMs();
const rows = measured.map(({ workload, roundTripMs, clientMs, programMs, betweenMs, ...computed }) => {
  const most = median(clientMs) / (median(programMs) - median(betweenMs));
  const theirs = llama.get(`${workload} ${roundTripMs}`);
  return [
    workload,
    String(roundTripMs),
    median(clientMs).toFixed(0),
    median(programMs).toFixed(0),
    faster(clientMs, programMs),
    longer(clientMs, programMs),
    `${median(computed.clientComputedMs).toFixed(0)}, ${median(computed.programComputedMs).toFixed(0)}`,
    median(betweenMs).toFixed(1),
    `${most.toFixed(2)}×`,
    ...(theirs === undefined ? [] : [median(theirs).toFixed(0), faster(theirs, programMs)]),
  ];
});
const head = [
  "graph",
  "added round trip, ms",
  "client-driven, ms",
  "program, ms",
  "faster",
  "by, ms",
  "computed, ms",
  "between calls, ms",
  "at most",
];
console.log(table([...head, ...(llama.size === 0 ? [] : ["llama-server, ms", "faster"])], rows));
