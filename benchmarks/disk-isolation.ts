/**
 * Tells whether the time to the first token tells a key what another key has on disk. Key `a` asks texts, the server is
 * killed and started again, and key `b` asks the same texts, and texts that nobody has asked: the two should not
 * differ. As a control, `a` asks others of its texts, whose times should be shorter. Medians, and the rank test of
 * Mann and Whitney.
 *
 *   npx bun benchmarks/disk-isolation.ts [--tries 200] [--words 200]
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { SeededRandom } from "../base/random.ts";
import { startServer, untilStored } from "./started-server.ts";

const { values } = parseArgs({
  options: { tries: { type: "string", default: "200" }, words: { type: "string", default: "200" } },
});
const tries = Number(values.tries);
const words = Number(values.words);
const random = new SeededRandom(1);
const scratch = mkdtempSync(join(tmpdir(), "bunting-isolation-"));

const text = (): string =>
  Array.from({ length: words }, () => `w${Math.floor(random.unit() * 1e6)}`).join(" ");
const texts = Array.from({ length: tries }, () => ({ own: text(), other: text(), cold: text() }));
const cases = ["own", "other", "cold"] as const;

async function firstMs(url: string, key: string, prompt: string): Promise<number> {
  const startMs = performance.now();
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
    body: JSON.stringify({ model: "demo", prompt, max_tokens: 1, temperature: 0 }),
  });
  if (!response.ok) throw new Error(await response.text());
  await response.text();
  return performance.now() - startMs;
}

/** Returns the deviations by which the values of `one` rank higher than those of `others` (normal with 1). */
function rankTest(one: readonly number[], others: readonly number[]): number {
  let higher = 0;
  for (const a of one) for (const b of others) higher += a > b ? 1 : a === b ? 0.5 : 0;
  const pairs = one.length * others.length;
  return (higher - pairs / 2) / Math.sqrt((pairs * (one.length + others.length + 1)) / 12);
}

const median = (times: readonly number[]): number => times.toSorted((a, b) => a - b)[times.length >> 1]!;

try {
  const keys = ["--api-key", "a", "--api-key", "b", "--admin-key", "admin"];
  const disk = ["--kv-disk", "2", "--data", join(scratch, "data")];
  const command = [process.execPath, "server/main.ts", "serve", "--device", "cpu", ...keys, ...disk];
  const first = await startServer(command, process.cwd());
  for (const { own, other } of texts)
    for (const prompt of [own, other]) await firstMs(first.target.url, "a", prompt);
  await untilStored({ ...first.target, apiKey: "admin" });
  process.kill(first.pid, "SIGKILL");
  const { target, stop } = await startServer(command, process.cwd());
  for (let i = 0; i < 10; i += 1) await firstMs(target.url, "b", text());
  const times = { own: [] as number[], other: [] as number[], cold: [] as number[] };
  for (const prompts of texts) {
    for (const name of cases.toSorted(() => random.unit() - 0.5))
      times[name].push(await firstMs(target.url, name === "own" ? "a" : "b", prompts[name]));
  }
  await stop();
  for (const name of cases) console.log(`${name}: median ${median(times[name]).toFixed(2)} ms of ${tries}`);
  for (const name of ["other", "own"] as const)
    console.log(`${name} against cold: ${rankTest(times[name], times.cold).toFixed(2)} standard deviations`);
} finally {
  rmSync(scratch, { recursive: true });
}
