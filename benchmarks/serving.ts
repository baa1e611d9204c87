/**
 * What clients of the executable feel on the embedded model: start to first token, then 8 and 64 clients streaming.
 * Server and clients share this machine's cores, so 64 clients are a load on the machine as well as on the server. The
 * share outside native code is of all wall time while at least 56 sequences run: planning, messages, and waiting for a core.
 *
 *   npm run build && bun benchmarks/serving.ts [executable] [--json]
 */

import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { streamChat, type Target } from "../server/cli/client.ts";
import { type LoadReport, type Percentiles, runLoad } from "../server/cli/load.ts";
import { table } from "../server/cli/table.ts";

const PROMPT_TOKENS = 128;
const SHARED_PREFIX_TOKENS = 64;
const OUTPUT_TOKENS = 64;
const REQUESTS_PER_CLIENT = 8;
const STARTS = 5;
const SAMPLE_MS = 100;
const DEVICE_SECONDS = 'bunting_step_seconds_sum{engine="0",part="device"}';

const root = resolve(import.meta.dir, "..");
const executable = resolve(
  process.argv.slice(2).find((argument) => !argument.startsWith("--")) ?? join(root, "dist/bunting"),
);
const scratch = mkdtempSync(join(tmpdir(), "bunting-serving-"));

interface Started {
  readonly target: Target;
  stop(): Promise<void>;
}

/** Starts the executable in an empty folder; resolves when it says that it is ready. */
async function start(): Promise<Started> {
  const child = Bun.spawn([executable, "serve", "--port", String(freePort())], {
    cwd: scratch,
    env: { ...process.env, XDG_CACHE_HOME: join(scratch, "cache") },
    stdout: "pipe",
    stderr: "inherit",
  });
  const stop = async (): Promise<void> => {
    child.kill("SIGTERM");
    await child.exited;
  };
  let said = "";
  for await (const bytes of child.stdout) {
    said += new TextDecoder().decode(bytes);
    const url = /Ready in .* at (http:\S+)\/v1/.exec(said)?.[1];
    if (url !== undefined) return { target: { url, apiKey: null }, stop };
  }
  throw new Error(`${executable} ended before it was ready: ${said}`);
}

function freePort(): number {
  const probe = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
  const { port } = probe;
  probe.stop(true);
  return port!;
}

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

/** Watches the engine from the first to the last sample in which at least `running` sequences run; `stop` resolves to the
 *  share of that time that it spent outside native code, null if there were no two such samples. */
function watchEngine(target: Target, running: number): { stop(): Promise<number | null> } {
  const samples: { readonly timeMs: number; readonly deviceMs: number }[] = [];
  let isStopped = false;
  const watching = (async () => {
    while (!isStopped) {
      const timeMs = performance.now();
      const metrics = await (await fetch(`${target.url}/metrics`)).text();
      const value = (name: string): number =>
        Number(
          metrics
            .split("\n")
            .find((line) => line.startsWith(name))
            ?.split(" ")[1],
        );
      if (value("vllm:num_requests_running{") >= running) {
        samples.push({ timeMs, deviceMs: 1000 * value(DEVICE_SECONDS) });
      }
      await Bun.sleep(SAMPLE_MS);
    }
  })();
  return {
    stop: async () => {
      isStopped = true;
      await watching;
      const [first, last] = [samples[0], samples.at(-1)];
      if (first === undefined || last === undefined || first === last) return null;
      return 1 - (last.deviceMs - first.deviceMs) / (last.timeMs - first.timeMs);
    },
  };
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
