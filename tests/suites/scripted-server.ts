/**
 * Server on the simulated device whose model answers by words.ts: `bun tests/suites/scripted-server.ts
 * [options]`, with options in JSON. It prints its address as one line, and serves until its standard input
 * ends.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startTestServer } from "../e2e/server.ts";
import { wordsFor } from "./words.ts";

/** Options of a suite. */
interface Options {
  /** Context limit in tokens: prompt plus answer. */
  readonly contextMax?: number;
  readonly key?: string;
  readonly corsOrigins?: readonly string[];
  /** Path of a chat template. */
  readonly template?: string;
}

const { contextMax = 65_536, key, corsOrigins, template }: Options = JSON.parse(process.argv[2] ?? "{}");
const data = mkdtempSync(join(tmpdir(), "bunting-suite-"));
const server = startTestServer({
  data,
  answers: wordsFor,
  answersToAny: true,
  stepMs: 0,
  spec: { contextMax, pages: 16_384, stepTokensMax: 8192 },
  ...(key === undefined ? {} : { keys: { keys: [key] } }),
  ...(corsOrigins === undefined ? {} : { corsOrigins }),
  ...(template === undefined ? {} : { template: readFileSync(template, "utf8") }),
});
console.log(server.origin);
await Bun.stdin.text();
rmSync(data, { recursive: true });
process.exit();
