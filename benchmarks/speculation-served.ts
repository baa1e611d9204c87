/**
 * Answers of a served model with drafts and without: the same texts, and tokens per second. With a draft model that
 * alone drafts.
 *
 *   npx bun benchmarks/speculation-served.ts <model> [--draft-model <model>] [streams …]
 */

import { parseArgs } from "node:util";
import { tasks } from "./speculation/tasks.ts";
import { startServer } from "./started-server.ts";

const { positionals, values } = parseArgs({
  args: process.argv.slice(2),
  options: { "draft-model": { type: "string" } },
  allowPositionals: true,
});
const [model, ...counts] = positionals;
const draftModel = values["draft-model"];
const streamCounts = counts.length > 0 ? counts.map(Number) : [1, 4, 8];
const ROUNDS = 3;
const TOKENS = 160;

interface Answered {
  readonly text: string;
  readonly tokens: number;
  readonly perSecond: number;
  readonly accepted: number;
}

async function ask(url: string, prompt: string, seed: number): Promise<Answered> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      messages: [{ role: "user", content: prompt }],
      max_tokens: TOKENS,
      temperature: seed === 0 ? 0 : 0.7,
      seed,
      ignore_eos: true,
      // Earlier rounds had the same completions; the salt hides them.
      cache_salt: crypto.randomUUID(),
      timings_per_token: true,
    }),
  });
  const { choices, timings } = (await response.json()) as {
    choices: { message: { content: string } }[];
    timings: { predicted_n: number; predicted_per_second: number; draft_n_accepted?: number };
  };
  return {
    text: choices[0]!.message.content,
    tokens: timings.predicted_n,
    perSecond: timings.predicted_per_second,
    accepted: timings.draft_n_accepted ?? 0,
  };
}

const serve = (...options: readonly string[]) =>
  startServer(["npx", "bun", "server/main.ts", "serve", model!, ...options], process.cwd());
const drafting =
  draftModel === undefined ? ["--speculate", "auto"] : ["--speculate", "draft", "--draft-model", draftModel];
const servers = [await serve("--speculate", "off"), await serve(...drafting)] as const;
const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1]!;

console.log("task, streams: tokens per second without and with drafts, ratio; share of accepted tokens");
for (const streams of streamCounts) {
  for (const [name, prompt] of Object.entries(tasks)) {
    const rates: number[][] = [[], []];
    let [accepted, tokens, differing] = [0, 0, 0];
    for (let round = 0; round < ROUNDS; round++) {
      const answers: Answered[][] = [];
      for (const [index, { target }] of servers.entries()) {
        const all = await Promise.all(
          Array.from({ length: streams }, (_, i) => ask(target.url, prompt, streams === 1 ? 0 : i)),
        );
        answers.push(all);
        if (round > 0) rates[index]!.push(all.reduce((sum, { perSecond }) => sum + perSecond, 0));
      }
      for (const [i, one] of answers[1]!.entries()) {
        accepted += one.accepted;
        tokens += one.tokens;
        if (one.text !== answers[0]![i]!.text) differing += 1;
      }
    }
    const [off, on] = rates.map(median) as [number, number];
    console.log(
      `${name}, ${streams}: ${off.toFixed(1)} and ${on.toFixed(1)}, ${(on / off).toFixed(2)}; ${((100 * accepted) / tokens).toFixed(0)} %; ${differing} texts differ`,
    );
  }
}
for (const server of servers) await server.stop();
