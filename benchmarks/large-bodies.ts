/**
 * What streams feel while clients send bodies as large as the server takes, and larger: a server on the simulated device, in a
 * process of its own, two streams, and attackers that send one body after another.
 *
 *   bun benchmarks/large-bodies.ts [--attackers 8] [--repeats 3]
 *
 * A gap is the longest time between two tokens of a stream while bodies of that kind were sent; "thread" is what the server says of its
 * own thread, `bunting_thread_gap_seconds`, which leaves out what this program did. Waits for a processor are in both: attackers run on
 * the same machine.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { table } from "../server/cli/table.ts";
import { Program } from "../tests/e2e/program.ts";
import { largeBodies } from "../tests/support/large-bodies.ts";

const { values } = parseArgs({
  options: { attackers: { type: "string", default: "8" }, repeats: { type: "string", default: "3" } },
});

const folder = mkdtempSync(join(tmpdir(), "bunting-bodies-"));
const gaps: { readonly atMs: number; readonly gapMs: number }[] = [];
const ending = new AbortController();

async function readStreams(url: string): Promise<void> {
  const body = JSON.stringify({ prompt: "hello", max_tokens: 1500, ignore_eos: true, stream: true });
  const headers = { "content-type": "application/json" };
  while (!ending.signal.aborted) {
    const response = await fetch(`${url}/v1/completions`, {
      method: "POST",
      headers,
      body,
      signal: ending.signal,
    });
    let lastMs = performance.now();
    for await (const _ of response.body!) {
      const atMs = performance.now();
      gaps.push({ atMs, gapMs: atMs - lastMs });
      lastMs = atMs;
    }
  }
}

/** A client in a process of its own, so that this one's gaps are the server's. */
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

function worstSince(fromMs: number): string {
  return Math.max(0, ...gaps.filter(({ atMs }) => atMs >= fromMs).map(({ gapMs }) => gapMs)).toFixed(0);
}

async function threadGapMs(url: string): Promise<string> {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  return (1000 * Number(/^bunting_thread_gap_seconds (\S+)$/m.exec(metrics)![1])).toFixed(0);
}

const program = Program.bunting(["serve", "--device", "simulated", "--port", "0"]);
const url = await program.url();
const streams = [1, 2].map(() => readStreams(url).catch(() => {}));
await Bun.sleep(2000);
const rows = [["nothing", "", worstSince(0), await threadGapMs(url)]];
for (const { name, route, text } of largeBodies) {
  const file = join(folder, "body.json");
  writeFileSync(file, text());
  const fromMs = performance.now();
  const statuses = new Set<string>();
  const attacker = async (): Promise<void> => {
    for (let i = 0; i < Number(values.repeats); i++) statuses.add(await attack(url, route, file));
  };
  await Promise.all(Array.from({ length: Number(values.attackers) }, attacker));
  rows.push([name, [...statuses].join(", "), worstSince(fromMs), await threadGapMs(url)]);
}
console.log(table(["body", "status", "worst gap ms", "thread ms, so far"], rows));
ending.abort();
await Promise.all(streams);
program.signal("SIGTERM");
await program.exitCode();
rmSync(folder, { recursive: true });
