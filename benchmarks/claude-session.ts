/**
 * Tokens that a session of Claude Code with two subagents computes in memory for one context and a half, and
 * for little more than one, over those that it computes in ample memory, with sessions kept and without. The program is the packaged one; a whole
 * server answers, on the simulated device with scripted answers.
 *
 *   node tests/suites/run.mjs agents:claude       (installs the program)
 *   npx bun benchmarks/claude-session.ts [rounds]
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startTestServer } from "../tests/e2e/server.ts";
import { codingAgents } from "../tests/suites/agents/agents.mjs";
import { playSession } from "../tests/suites/agents/session.mjs";
import { wordsFor } from "../tests/suites/words.ts";

const [rounds = 3] = process.argv.slice(2).map(Number);
const PAGE_TOKENS = 16;
const AMPLE_PAGES = 16_384;
const bin = join(import.meta.dir, "../build/suites/agents/claude/node_modules/.bin");
const template = await Bun.file(join(import.meta.dir, "../tests/suites/agents/strict.jinja")).text();
const { contextMax } = codingAgents.claude;
const acts = ["write", "parallel", "study", "cut", "on", "delegate", "long", "study", "end"];

/** Tokens of one request. */
interface Tokens {
  readonly prompt: number;
  readonly computed: number;
  readonly recomputed: number;
}

interface Played {
  readonly turns: number;
  readonly computed: number;
  readonly longest: number;
}

async function play(keepsSessions: boolean, pages: number): Promise<Played> {
  const spec = { pages, pageTokens: PAGE_TOKENS, contextMax, stepTokensMax: 8192 };
  const asked = { answers: wordsFor, answersToAny: true, template };
  const server = startTestServer({ ...asked, stepMs: 2, spec, keepsSessions });
  const log = mkdtempSync(join(tmpdir(), "bunting-claude-"));
  const { turns, failures } = await playSession({ ...codingAgents.claude, acts }, server.origin, bin, log);
  if (failures.length > 0) throw new Error(failures.join("\n"));
  await server.settled();
  const { data } = (await (await fetch(`${server.origin}/v1/requests?limit=1000`)).json()) as {
    data: readonly { readonly tokens: Tokens }[];
  };
  await server.close();
  rmSync(log, { recursive: true });
  const computed = data.reduce((sum, { tokens }) => sum + tokens.computed + tokens.recomputed, 0);
  return { turns, computed, longest: Math.max(...data.map(({ tokens }) => tokens.prompt)) };
}

console.log(
  "| turns | new tokens | longest context | pages | without sessions | with |\n|---|---|---|---|---|---|",
);
for (let round = 0; round < rounds; round++) {
  const { turns, computed: added, longest } = await play(false, AMPLE_PAGES);
  for (const contexts of [1.5, 1.1]) {
    const pages = Math.ceil((contexts * longest) / PAGE_TOKENS);
    const ratios: string[] = [];
    for (const keepsSessions of [false, true])
      ratios.push(((await play(keepsSessions, pages)).computed / added).toFixed(2));
    console.log(`| ${turns} | ${added} | ${longest} | ${pages} | ${ratios.join(" | ")} |`);
  }
}
process.exit();
