/**
 * Drafts of one stream beside llama-server with its n-gram drafters: the same model and questions, one thread each.
 * Rates are tokens per second of processor time, which other programs disturb less than times do; prompts are
 * cached before.
 *
 *   npx bun benchmarks/speculation-llama.ts <GGUF file> <llama-server> [drafter …]
 */

import { readFileSync } from "node:fs";
import { median } from "./cpu/rounds.ts";
import { type Served, serve } from "./peer-server.ts";
import { tasks } from "./speculation/tasks.ts";

const [model, llama, ...given] = process.argv.slice(2);
const drafters =
  given.length > 0 ? given : ["none", "ngram-simple", "ngram-mod", "ngram-map-k", "ngram-cache"];
const ROUNDS = 3;
const TOKENS = 160;
const CLOCK_TICKS = 100;

/** Seconds of processor time of a process. */
function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]!.split(" ");
  return (Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS;
}

async function ask({ url }: Served, prompt: string, tokens: number): Promise<string> {
  const body = {
    messages: [{ role: "user", content: prompt }],
    ...{ max_tokens: tokens, temperature: 0, ignore_eos: true, seed: 1 },
  };
  const headers = { "content-type": "application/json" };
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers,
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(await response.text());
  const { choices } = (await response.json()) as { choices: { message: { content: string } }[] };
  return choices[0]!.message.content;
}

/**
 * Tokens per second of processor time, by task. Each round has its own server, which knows no completions of
 * earlier rounds.
 */
async function rates(start: () => Promise<Served>): Promise<number[]> {
  const all = Object.values(tasks).map((): number[] => []);
  for (let round = 0; round < ROUNDS; round++) {
    const served = await start();
    for (const [index, prompt] of Object.values(tasks).entries()) {
      await ask(served, prompt, 1);
      const before = cpuSeconds(served.pid);
      await ask(served, prompt, TOKENS);
      all[index]!.push(TOKENS / (cpuSeconds(served.pid) - before));
    }
    await served.stop();
  }
  return all.map(median);
}

const own = [process.execPath, "server/main.ts", "serve", model!, "--threads", "1", "--speculate"];
const llamaArgs = [llama!, "-m", model!, "-t", "1", "-c", "4096", "-np", "1", "--no-webui"];
console.log(`tokens per second of processor time: ${Object.keys(tasks).join(", ")}`);
for (const choice of ["off", "auto"]) {
  const found = await rates(() => serve(choice, [...own, choice]));
  console.log(`bunting --speculate ${choice}: ${found.map((rate) => rate.toFixed(1)).join(", ")}`);
}
for (const drafter of drafters) {
  const found = await rates(() => serve(drafter, [...llamaArgs, "--spec-type", drafter]));
  console.log(`llama-server --spec-type ${drafter}: ${found.map((rate) => rate.toFixed(1)).join(", ")}`);
}
