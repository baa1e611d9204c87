/**
 * Clients of one server, each with a LoRA adapter of its own, here and on llama-server. Random adapters of rank 16
 * change all projections, and nothing is drafted. llama-server computes requests with different adapters one after the other.
 *
 *   npx bun benchmarks/adapters-served.ts <folder> <its GGUF file> <llama-server> [--rounds 3]
 *
 * Rows are answered tokens per second of all clients: without adapters, all with one, and each with its own.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { openModelFolder } from "../model/folder.ts";
import { adapterGguf, writeAdapter } from "../tests/support/adapter-folder.ts";
import { ggufBytes } from "../tests/support/gguf-writer.ts";
import { median } from "./cpu/rounds.ts";
import { type Served, serve } from "./peer-server.ts";

const CLIENTS = 8;
const TOKENS = 64;
const RANK = 16;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { rounds: { type: "string", default: "3" } },
});
const [folder, model, llama] = positionals;
if (llama === undefined) throw new Error("wanted: a folder, its GGUF file, and the path of llama-server");

const scratch = mkdtempSync(join(tmpdir(), "bunting-adapters-served-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));
const { config } = openModelFolder(folder!);
const files = Array.from({ length: CLIENTS }, (_, seed) => {
  const factors = writeAdapter(folder!, join(scratch, String(seed)), { seed, rank: RANK, alpha: RANK });
  const path = join(scratch, `${seed}.gguf`);
  writeFileSync(path, ggufBytes(adapterGguf(factors, config.family, RANK, config.shape.headSize)));
  return path;
});

/** Adapter of each client; null: none. */
const ways: Readonly<Record<string, readonly (number | null)[]>> = {
  "no adapter": Array(CLIENTS).fill(null),
  "one adapter": Array(CLIENTS).fill(0),
  "one for each": Array.from({ length: CLIENTS }, (_, client) => client),
};

const threads = String(availableParallelism());
const servers = {
  ours: () =>
    serve("ours", [
      ...[
        process.execPath,
        join(import.meta.dir, "../server/main.ts"),
        "serve",
        model!,
        "--threads",
        threads,
      ],
      ...["--served-model-name", "base", "--speculate", "off"],
      ...files.flatMap((path, at) => ["--lora", `a${at}=${path}`]),
    ]),
  "llama-server": () =>
    serve("llama-server", [
      ...[llama, "-m", model!, "-np", String(CLIENTS), "-c", "8192", "-t", threads, "-fa", "on"],
      ...["--lora-init-without-apply", ...files.flatMap((path) => ["--lora", path])],
    ]),
};

/** Fields that choose an adapter. */
function choice(server: string, adapter: number | null): object {
  if (server === "ours") return { model: adapter === null ? "base" : `a${adapter}` };
  return { lora: files.map((_, id) => ({ id, scale: id === adapter ? 1 : 0 })) };
}

/** Tokens per second of all clients, which begin together. */
async function rate(
  { name, url }: Served,
  adapters: readonly (number | null)[],
  round: number,
): Promise<number> {
  const beganMs = performance.now();
  await Promise.all(
    adapters.map(async (adapter, client) => {
      const body = {
        prompt: `Client ${client} of round ${round} tells a story of its own: `.repeat(8),
        ...{ max_tokens: TOKENS, temperature: 0, ignore_eos: true },
        ...choice(name, adapter),
      };
      const headers = { "content-type": "application/json" };
      const answer = await fetch(`${url}/v1/completions`, {
        method: "POST",
        headers,
        body: JSON.stringify(body),
      });
      const { usage } = (await answer.json()) as { usage?: { completion_tokens: number } };
      if (usage?.completion_tokens !== TOKENS) throw new Error(`${name}: ${JSON.stringify(usage)}`);
    }),
  );
  return (adapters.length * TOKENS * 1000) / (performance.now() - beganMs);
}

const rows = Object.keys(ways).map((): Record<string, number[]> => ({ ours: [], "llama-server": [] }));
for (let round = 0; round < Number(values.rounds); round += 1)
  for (const [name, start] of Object.entries(servers)) {
    const server = await start();
    await rate(server, ways["no adapter"]!, -1 - round);
    for (const [index, adapters] of Object.values(ways).entries())
      rows[index]![name]!.push(await rate(server, adapters, round * 10 + index));
    await server.stop();
  }

console.log(`| ${CLIENTS} clients, ${TOKENS} tokens each | ours | llama-server | ratio |\n|---|---|---|---|`);
for (const [index, title] of Object.keys(ways).entries()) {
  const [ours, theirs] = [median(rows[index]!.ours!), median(rows[index]!["llama-server"]!)];
  console.log(`| ${title} | ${ours.toFixed(1)} | ${theirs.toFixed(1)} | ${(ours / theirs).toFixed(2)} |`);
}
