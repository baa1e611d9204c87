/**
 * Effect of request bodies at and beyond the server's size limits on streams. For each body: a server on the
 * simulated device in a separate process, two streams, and attackers that send the body again and again.
 *
 *   bun benchmarks/large-bodies.ts [--attackers 8] [--repeats 3] [--only <word of a body's name>]
 *
 * A gap is the longest time between two tokens of a stream. "thread" is the server's own gap of its thread,
 * `bunting_thread_gap_seconds`, which excludes this program. "computing" is
 * `bunting_thread_gap_computing_seconds`, which also excludes waits for a processor: attackers run on the
 * same machine.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { table } from "../server/cli/table.ts";
import { Program } from "../tests/e2e/program.ts";
import { largeBodies } from "../tests/support/large-bodies.ts";

const { values } = parseArgs({
  options: {
    attackers: { type: "string", default: "8" },
    repeats: { type: "string", default: "3" },
    only: { type: "string", default: "" },
  },
});

const folder = mkdtempSync(join(tmpdir(), "bunting-bodies-"));

/** Reads streams until the signal; reports the milliseconds between two chunks. */
async function readStreams(url: string, signal: AbortSignal, onGap: (gapMs: number) => void): Promise<void> {
  const body = JSON.stringify({ prompt: "hello", max_tokens: 1500, ignore_eos: true, stream: true });
  const headers = { "content-type": "application/json" };
  while (!signal.aborted) {
    const response = await fetch(`${url}/v1/completions`, { method: "POST", headers, body, signal });
    let lastMs = performance.now();
    for await (const _ of response.body!) {
      const nowMs = performance.now();
      onGap(nowMs - lastMs);
      lastMs = nowMs;
    }
  }
}

/** Runs a client in a separate process, so that gaps in this one are the server's. */
async function attack(url: string, route: string, file: string): Promise<string> {
  const given = [
    "-s",
    "-o",
    "/dev/null",
    "-w",
    "%{http_code}",
    "-H",
    "content-type: application/json",
    "-H",
    "Expect:",
  ];
  const curl = Bun.spawn(["curl", ...given, "--data-binary", `@${file}`, url + route]);
  return await new Response(curl.stdout).text();
}

function gaugeMs(metrics: string, name: string): string {
  return (1000 * Number(new RegExp(`^${name} (\\S+)$`, "m").exec(metrics)![1])).toFixed(0);
}

/** Measures a separate server, attacked after a second. */
async function row(name: string, attackAt: (url: string) => Promise<string>): Promise<string[]> {
  const program = Program.bunting(["serve", "--device", "simulated", "--port", "0"]);
  const url = await program.url();
  const ending = new AbortController();
  let worstMs = 0;
  const onGap = (gapMs: number): void => {
    worstMs = Math.max(worstMs, gapMs);
  };
  const streams = [1, 2].map(() => readStreams(url, ending.signal, onGap).catch(() => {}));
  await Bun.sleep(1000);
  const statuses = await attackAt(url);
  const metrics = await (await fetch(`${url}/metrics`)).text();
  ending.abort();
  await Promise.all(streams);
  program.signal("SIGTERM");
  await program.exitCode();
  const gauges = ["bunting_thread_gap_seconds", "bunting_thread_gap_computing_seconds"];
  return [name, statuses, worstMs.toFixed(0), ...gauges.map((gauge) => gaugeMs(metrics, gauge))];
}

const rows = [await row("nothing", () => Bun.sleep(1000).then(() => ""))];
for (const { name, route, text } of largeBodies.filter((body) => body.name.includes(values.only))) {
  const file = join(folder, "body.json");
  writeFileSync(file, text());
  const attackAt = async (url: string): Promise<string> => {
    const statuses = new Set<string>();
    const attacker = async (): Promise<void> => {
      for (let i = 0; i < Number(values.repeats); i++) statuses.add(await attack(url, route, file));
    };
    await Promise.all(Array.from({ length: Number(values.attackers) }, attacker));
    return [...statuses].join(", ");
  };
  rows.push(await row(name, attackAt));
}
console.log(table(["body", "status", "worst gap ms", "thread ms", "computing ms"], rows));
rmSync(folder, { recursive: true });
