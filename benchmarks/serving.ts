/**
 * Client-side latency of the executable on the embedded model: start to first token, then 8 and 64 streaming
 * clients. Server and clients share this machine's cores, so 64 clients load the machine as well as the
 * server. The share outside native code is of all wall time while at least 56 sequences run: planning,
 * messages, and waiting for a core.
 *
 *   npm run build && bun benchmarks/serving.ts [executable] [--json]
 */

import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { Percentiles } from "../server/cli/bench/figures.ts";
import { streamChat, type Target } from "../server/cli/client.ts";
import { type LoadReport, runLoad } from "../server/cli/load.ts";
import { table } from "../server/cli/table.ts";
import { type Started, startServer, watchEngine } from "./started-server.ts";

const PROMPT_TOKENS = 128;
const SHARED_PREFIX_TOKENS = 64;
const OUTPUT_TOKENS = 64;
const REQUESTS_PER_CLIENT = 8;
const STARTS = 5;

const root = resolve(import.meta.dir, "..");
const executable = resolve(
  process.argv.slice(2).find((argument) => !argument.startsWith("--")) ?? join(root, "dist/bunting"),
);
const scratch = mkdtempSync(join(tmpdir(), "bunting-serving-"));

/** Starts the executable in an empty folder. */
const start = (): Promise<Started> =>
  startServer([executable, "serve"], scratch, { XDG_CACHE_HOME: join(scratch, "cache") });

/** Milliseconds from starting the process to the first text of an answer. */
async function startToFirstTokenMs(): Promise<number> {
  const startMs = performance.now();
  const { target, stop } = await start();
  const body = { model: "demo", messages: [{ role: "user", content: "Who are you?" }], max_tokens: 4 };
  for await (const event of streamChat(target, body, new AbortController().signal)) {
    if (event.kind === "text") break;
  }
  const tookMs = performance.now() - startMs;
  await stop();
  return tookMs;
}

function load(target: Target, clients: number): Promise<LoadReport> {
  const plan = {
    model: "demo",
    requests: clients * REQUESTS_PER_CLIENT,
    arrivals: { kind: "closed", clients },
    promptTokens: PROMPT_TOKENS,
    sharedPrefixTokens: SHARED_PREFIX_TOKENS,
    outputTokens: OUTPUT_TOKENS,
    ignoreEos: true,
    seed: 1,
  } as const;
  return runLoad(target, plan, () => {}, new AbortController().signal);
}

const cell = (percentiles: Percentiles | null, key: "p50" | "p99"): string =>
  percentiles === null ? "–" : percentiles[key].toFixed(1);

const startsMs: number[] = [];
for (let i = 0; i <= STARTS; i++) startsMs.push(await startToFirstTokenMs());
const [firstStartMs, ...warmStartsMs] = startsMs; // the first one extracts the library and the model
warmStartsMs.sort((a, b) => a - b);

const { target, stop } = await start();
await load(target, 8); // warms up the just-in-time compiler
const eight = await load(target, 8);
const watch = watchEngine(target, 56);
const sixtyFour = await load(target, 64);
const outsideShare = await watch.stop();
await stop();
rmSync(scratch, { recursive: true });

const figures = {
  executableMib: statSync(executable).size / 2 ** 20,
  firstStartMs: firstStartMs!,
  startMs: warmStartsMs[Math.floor(STARTS / 2)]!,
  eight,
  sixtyFour,
  outsideShare,
};
if (process.argv.includes("--json")) console.log(JSON.stringify(figures));
else {
  console.log(`executable                 ${figures.executableMib.toFixed(1)} MiB`);
  console.log(
    `start to first token       ${figures.startMs.toFixed(0)} ms (median of ${STARTS}), the first ${figures.firstStartMs.toFixed(0)} ms`,
  );
  const share = outsideShare === null ? "not seen" : `${(100 * outsideShare).toFixed(1)} %`;
  console.log(`engine outside native code ${share} of wall time at 64 clients\n`);
  console.log(
    table(
      ["clients", "TTFT p50 ms", "p99", "TBT p50 ms", "p99", "per token p50 ms", "p99", "tokens/s", "failed"],
      [eight, sixtyFour].map((report, i) => [
        i === 0 ? 8 : 64,
        cell(report.ttftMs, "p50"),
        cell(report.ttftMs, "p99"),
        cell(report.tbtMs, "p50"),
        cell(report.tbtMs, "p99"),
        cell(report.perTokenMs, "p50"),
        cell(report.perTokenMs, "p99"),
        report.outputTokensPerSecond.toFixed(0),
        report.failed,
      ]),
    ),
  );
}
process.exit(0);
