/**
 * What streams that nobody reads cost those that are read: many clients with the system's own buffers ask for long answers and read
 * nothing; then one more client of the same key asks for an answer, and reads it. Beside it the same crowd reads short answers. The
 * engine is simulated, in the server's own process.
 *
 *   bun benchmarks/slow-readers.ts [--readers 500] [--places 64] [--step-ms 20] [--rounds 3]
 */

import { parseArgs } from "node:util";
import { table } from "../server/cli/table.ts";
import { startTestServer } from "../tests/e2e/server.ts";
import { postAndNeverRead } from "../tests/support/silent-client.ts";

const LONG_TOKENS = 2000;
const SHORT_TOKENS = 64;

const { values } = parseArgs({
  options: {
    readers: { type: "string", default: "500" },
    places: { type: "string", default: "64" },
    "step-ms": { type: "string", default: "20" },
    rounds: { type: "string", default: "3" },
    /** Of the server's process. */
    serve: { type: "boolean", default: false },
  },
});

interface Said {
  readonly waiting: number;
  readonly running: number;
  readonly paused: number;
  readonly generatedTokensTotal: number;
}

if (values.serve) serve();
else await main();

function serve(): void {
  const server = startTestServer({
    stepMs: Number(values["step-ms"]),
    spec: { pages: 65_536, stepTokensMax: 16_384, stepChunksMax: 1024 },
    engine: { admission: { sequencesMax: Number(values.places) } },
  });
  process.stdout.write(`${new URL(server.origin).port}\n`);
}

function bodyOf(seed: number, tokens: number): object {
  const messages = [{ role: "user", content: `Stream ${seed}` }];
  return { model: "demo", stream: true, ignore_eos: true, messages, max_tokens: tokens, seed };
}

/** Reads a stream to its end, and keeps nothing. */
async function read(port: number, seed: number, onToken: () => void = () => {}): Promise<void> {
  const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(bodyOf(seed, SHORT_TOKENS)),
  });
  for await (const bytes of response.body!) if (Buffer.from(bytes).includes('"delta"')) onToken();
}

async function said(port: number): Promise<Said> {
  const state = (await (await fetch(`http://127.0.0.1:${port}/state`)).json()) as {
    engines: { load: Said }[];
  };
  return state.engines[0]!.load;
}

async function until(port: number, holds: (load: Said) => boolean): Promise<Said> {
  for (;;) {
    const load = await said(port);
    if (holds(load)) return load;
    await Bun.sleep(20);
  }
}

/** Milliseconds to the first token of one more client, and tokens that were computed of each of the crowd until it left. */
async function round(
  port: number,
  reads: boolean,
): Promise<{ readonly waitMs: number; readonly tokens: number }> {
  const count = Number(values.readers);
  const before = await until(port, ({ waiting, running, paused }) => waiting + running + paused === 0);
  const seeds = Array.from({ length: count }, (_, seed) => seed);
  const path = "/v1/chat/completions";
  const leave = reads ? [] : seeds.map((seed) => postAndNeverRead(port, path, bodyOf(seed, LONG_TOKENS)));
  const readers = reads ? seeds.map((seed) => read(port, seed)) : [];
  await until(port, ({ waiting, running, generatedTokensTotal }) => {
    return waiting + running >= count || generatedTokensTotal > before.generatedTokensTotal + count;
  });
  const fromMs = performance.now();
  let waitMs = 0;
  await read(port, count, () => {
    if (waitMs === 0) waitMs = performance.now() - fromMs;
  });
  await Promise.all(readers);
  if (!reads) await until(port, ({ waiting, running, paused }) => waiting === 0 && paused >= running);
  const { generatedTokensTotal } = await said(port);
  for (const end of leave) end();
  return { waitMs, tokens: (generatedTokensTotal - before.generatedTokensTotal) / count };
}

async function main(): Promise<void> {
  const options = ["--serve", "--places", values.places, "--step-ms", values["step-ms"]];
  const child = Bun.spawn([process.execPath, import.meta.path, ...options], {
    stdout: "pipe",
    stderr: "inherit",
  });
  const { value } = await child.stdout.getReader().read();
  const port = Number(new TextDecoder().decode(value));
  const rows: string[][] = [];
  for (let number = 1; number <= Number(values.rounds); number++) {
    const unread = await round(port, false);
    const read = await round(port, true);
    const seconds = (ms: number): string => (ms / 1000).toFixed(2);
    const ratio = (unread.waitMs / read.waitMs).toFixed(2);
    rows.push([
      String(number),
      unread.tokens.toFixed(0),
      seconds(unread.waitMs),
      seconds(read.waitMs),
      ratio,
    ]);
  }
  child.kill();
  await child.exited;
  const head = `${values.readers} streams beside one, ${values.places} places, steps of ${values["step-ms"]} ms`;
  const short = `s behind ${SHORT_TOKENS} tokens each that are read`;
  const columns = ["round", "tokens of each unread", "s to the first token behind them", short, "ratio"];
  process.stdout.write(`${head}\n\n${table(columns, rows)}\n`);
}
