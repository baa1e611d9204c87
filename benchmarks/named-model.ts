/**
 * Time from the command `bunting serve <name>` to the first answer of a model that is not on this machine:
 * `npx bun benchmarks/named-model.ts <folder> [--mb-per-second 100]`. A hub on this machine serves the folder's
 * files at that rate. Prints the times, and the time that the bytes alone take.
 */

import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Program } from "../tests/e2e/program.ts";
import { FakeHub } from "../tests/support/fake-hub.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { "mb-per-second": { type: "string", default: "100" } },
});
const folder = positionals[0]!;
const bytesPerSecond = Number(values["mb-per-second"]) * 1e6;
const paths = readdirSync(folder).filter((name) => statSync(join(folder, name)).isFile());
const files = Object.fromEntries(paths.map((name) => [name, readFileSync(join(folder, name))]));
const bytes = Object.values(files).reduce((sum, { length }) => sum + length, 0);
const hub = new FakeHub({ bytesPerSecond });
hub.commit("Bench/Model", files);
await (await fetch(`${hub.endpoint}/api/models/Bench/Model/tree/main`)).text(); // makes the hub compute its hashes now
const cache = mkdtempSync(join(process.env.TMPDIR ?? tmpdir(), "bunting-named-"));

async function answered(url: string): Promise<void> {
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "Bench/Model", prompt: "Hi", max_tokens: 1 }),
  });
  if (!response.ok) throw new Error(await response.text());
}

try {
  for (const state of ["fetched", "in the cache"]) {
    const startedMs = performance.now();
    const seconds = (): string => ((performance.now() - startedMs) / 1000).toFixed(1);
    const program = Program.bunting(["serve", "Bench/Model", "--port", "0", "--data", "off"], {
      environment: {
        ...(process.env as Record<string, string>),
        HF_ENDPOINT: hub.endpoint,
        HF_HUB_CACHE: cache,
      },
    });
    const loaded = state === "fetched" ? await program.errorsMatch(/100 %/).then(seconds) : null;
    const url = await program.url();
    const ready = seconds();
    await answered(url);
    const fetchedText = loaded === null ? "" : `all bytes after ${loaded} s, `;
    console.log(`${state}: ${fetchedText}ready after ${ready} s, first answer after ${seconds()} s`);
    if (loaded !== null)
      console.log(
        `  ${(bytes / 1e6).toFixed(0)} MB take ${(bytes / bytesPerSecond).toFixed(1)} s at that rate`,
      );
    program.signal("SIGTERM");
    await program.exitCode();
  }
} finally {
  await hub.stop();
  rmSync(cache, { recursive: true });
}
