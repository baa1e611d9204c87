/**
 * A conversation that goes on after its server was killed (kill -9): milliseconds to the first token of the next
 * turn, cold, from memory, and from KV pages on disk. Beside it llama-server, which saves and restores a slot by
 * hand.
 *
 *   npx bun benchmarks/restart.ts <model.gguf> [--tokens 16000] [--llama-server path]
 */

import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startProgram } from "./cpu/runs.ts";
import { startServer, untilStored } from "./started-server.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { tokens: { type: "string", default: "16000" }, "llama-server": { type: "string" } },
});
const [model] = positionals;
if (model === undefined) throw new Error("the model is missing: wanted a GGUF file");
const tokens = Number(values.tokens);
const scratch = mkdtempSync(join(tmpdir(), "bunting-restart-"));

/** A word is at least one token, whatever the vocabulary. */
const words = Array.from({ length: tokens }, (_, i) => `n${(i * 7919) % 9973}`);

interface Turn {
  readonly ms: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

/** Requests one token. */
async function turn(url: string, prompt: string | readonly number[], more: object = {}): Promise<Turn> {
  const startMs = performance.now();
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ prompt, max_tokens: 1, temperature: 0, ...more }),
    signal: AbortSignal.timeout(3_600_000),
  });
  const { usage } = (await response.json()) as {
    usage: { prompt_tokens: number; prompt_tokens_details?: { cached_tokens?: number } };
  };
  return {
    ms: performance.now() - startMs,
    promptTokens: usage.prompt_tokens,
    cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
  };
}

function print(name: string, { ms, promptTokens, cachedTokens }: Turn): void {
  console.log(`${name}: ${ms.toFixed(0)} ms (${cachedTokens} of ${promptTokens} tokens found)`);
}

/** Makes a prompt of about `tokens` tokens, of which nothing is cached. */
async function promptFor(url: string): Promise<string> {
  const some = words.slice(-200).join(" ");
  const { promptTokens } = await turn(url, some);
  return words.slice(0, Math.floor((200 * tokens) / promptTokens)).join(" ");
}

async function ours(): Promise<void> {
  const data = join(scratch, "data");
  const command = [process.execPath, "server/main.ts", "serve", model!, "--kv-disk", "8", "--data", data];
  const first = await startServer(command, process.cwd());
  const prompt = await promptFor(first.target.url);
  print("ours, first turn", await turn(first.target.url, prompt));
  print("ours, from memory", await turn(first.target.url, `${prompt} and then`));
  await untilStored(first.target);
  process.kill(first.pid, "SIGKILL");
  console.log(`ours, on disk: ${(bytesBelow(data) / 1e6).toFixed(0)} MB`);
  const second = await startServer(command, process.cwd());
  print("ours, killed and started again", await turn(second.target.url, `${prompt} and then`));
  print("ours, cold", await turn(second.target.url, `${prompt} and then`, { cache_salt: "cold" }));
  await second.stop();
}

async function theirs(program: string): Promise<void> {
  const start = () =>
    startProgram(
      (port) => [
        ...[program, "-m", model!, "--port", String(port), "-t", "2", "-np", "1", "--no-webui"],
        ...["-c", String(tokens + 1024), "--slot-save-path", scratch],
      ],
      "/health",
    );
  const slot = async (url: string, action: string): Promise<void> => {
    const startMs = performance.now();
    await fetch(`${url}/slots/0?action=${action}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ filename: "slot.bin" }),
    });
    console.log(`llama-server, ${action}: ${(performance.now() - startMs).toFixed(0)} ms`);
  };
  const first = await start();
  const prompt = await promptFor(first.url);
  print("llama-server, first turn", await turn(first.url, prompt, { cache_prompt: true }));
  await slot(first.url, "save");
  await first.stop();
  const second = await start();
  await slot(second.url, "restore");
  print("llama-server, started again", await turn(second.url, `${prompt} and then`, { cache_prompt: true }));
  await second.stop();
}

function bytesBelow(folder: string): number {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
}

try {
  await ours();
  const program = values["llama-server"];
  if (program !== undefined) await theirs(program);
} finally {
  rmSync(scratch, { recursive: true });
}
