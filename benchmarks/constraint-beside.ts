/**
 * Effect of other clients' schemas on a stream of free text. Measures the gaps between its tokens in four
 * cases, by turns on one server. The stream is alone; clients send schemas that exhaust the compiler's
 * budget; clients request free answers; as many request answers under schemas with the costliest masks.
 *
 *   npx bun tools/random-model.ts Qwen2.5-0.5B <folder>
 *   npx bun benchmarks/constraint-beside.ts <folder> [--clients 4] [--tokens 150] [--rounds 5] [--quant int8]
 *
 * No two schemas are the same, so that no cache helps. A ratio compares one round's gaps with those of the
 * reference row; the table shows the median and range of all rounds. Clients and server share the machine.
 */
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { type Cell, table } from "../server/cli/table.ts";
import { tooMuchWork } from "../tests/support/large-bodies.ts";
import { worstMasks } from "./constraint/cases.ts";
import { startServer } from "./started-server.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    clients: { type: "string", default: "4" },
    tokens: { type: "string", default: "150" },
    rounds: { type: "string", default: "5" },
    quant: { type: "string", default: "int8" },
  },
});
const [folder] = positionals;
if (folder === undefined) throw new Error("wanted: the folder of a model");
const [clients, tokens, rounds] = [Number(values.clients), Number(values.tokens), Number(values.rounds)];
/** Tokens of the stream during which the clients' first requests arrive. */
const COLD_TOKENS = 10;
const ANSWER_TOKENS = 64;
const QUANTILES = [0.5, 0.99, 1];

const main = resolve(import.meta.dir, "../server/main.ts");
const given = ["--device", "cpu", "--quant", values.quant, "--kv-cache-gib", "0.5"];
const server = await startServer([process.execPath, main, "serve", resolve(folder), ...given], process.cwd());

function ask(body: object, signal: AbortSignal): Promise<Response> {
  return fetch(`${server.target.url}/v1/completions`, {
    method: "POST",
    signal,
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ prompt: "One, two, three, four", temperature: 1, ...body }),
  });
}

let asked = 0;
/** Kind of competing client, with its request bodies, none of which repeats. */
interface Company {
  readonly name: string;
  readonly body: (() => object) | null;
  /** Name of the row with which it is compared. */
  readonly over: string;
}
const held = (schema: object): object => ({
  max_tokens: ANSWER_TOKENS,
  structured_outputs: { json: { ...schema, title: `${asked++}` } },
});
const companies: readonly Company[] = [
  { name: "alone", body: null, over: "alone" },
  { name: "schemas of too much work", body: () => held(tooMuchWork), over: "alone" },
  {
    name: "free answers",
    body: () => ({ max_tokens: ANSWER_TOKENS, ignore_eos: true }),
    over: "alone",
  },
  {
    name: "answers of the worst masks",
    body: () => held(worstMasks[asked % worstMasks.length]!),
    over: "free answers",
  },
];

/** Returns the gaps in ms between the tokens of a stream, and the number of requests answered beside it. */
async function gapsBeside({ body }: Company): Promise<{ gaps: number[]; answered: number }> {
  const ending = new AbortController();
  let answered = 0;
  const client = async (): Promise<void> => {
    while (!ending.signal.aborted) {
      const response = await ask(body!(), ending.signal);
      await response.arrayBuffer();
      answered++;
    }
  };
  const timesMs: number[] = [];
  const stream = await ask(
    { max_tokens: tokens, ignore_eos: true, stream: true, return_token_ids: true },
    ending.signal,
  );
  const company = Array.from({ length: body === null ? 0 : clients }, () =>
    client().catch((error: unknown) => {
      if (!ending.signal.aborted) throw error;
    }),
  );
  for await (const bytes of stream.body!) {
    if (new TextDecoder().decode(bytes).includes('"token_ids"')) timesMs.push(performance.now());
  }
  ending.abort();
  await Promise.all(company);
  // The compiler still works on schemas of clients that have disconnected, in order; this request is answered
  // after them.
  await (await ask(held({ type: "null" }), AbortSignal.timeout(60_000))).arrayBuffer();
  const gaps = timesMs.slice(1).map((timeMs, index) => timeMs - timesMs[index]!);
  return { gaps: gaps.slice(COLD_TOKENS).sort((a, b) => a - b), answered };
}

function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;
}

const gapsOf = new Map(companies.map(({ name }) => [name, [] as (readonly number[])[]]));
const answeredOf = new Map(companies.map(({ name }) => [name, 0]));
try {
  for (const company of companies) await gapsBeside(company); // warm-up
  for (let round = 0; round < rounds; round++) {
    for (const company of companies) {
      const { gaps, answered } = await gapsBeside(company);
      gapsOf.get(company.name)!.push(gaps);
      answeredOf.set(company.name, answeredOf.get(company.name)! + answered);
    }
  }
} finally {
  await server.stop();
}

const rows = companies.map(({ name, over }): readonly Cell[] => {
  const gaps = gapsOf.get(name)!;
  const all = gaps.flat().sort((a, b) => a - b);
  const ratios = QUANTILES.map((share) => {
    const of = gaps.map((own, round) => quantile(own, share) / quantile(gapsOf.get(over)![round]!, share));
    const sorted = of.sort((a, b) => a - b);
    return `${quantile(sorted, 0.5).toFixed(2)} (${sorted[0]!.toFixed(2)}–${sorted.at(-1)!.toFixed(2)})`;
  });
  const told = QUANTILES.map((share) => quantile(all, share).toFixed(1));
  return [
    name,
    answeredOf.get(name)!,
    ...told,
    name === over ? "" : over,
    ...(name === over ? ["", "", ""] : ratios),
  ];
});
console.log(table(["beside", "answered", "gap p50 ms", "p99", "max", "over", "p50", "p99", "max"], rows));
