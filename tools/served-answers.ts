/**
 * Serves a random model on the CPU engine and requests answers at temperature 1.5 under real schemas. Ajv
 * must allow every answer that ended by itself.
 *
 *   npx bun tools/served-answers.ts <maskbench/data> [--schemas 1000] [--tokens 600] [--rows 16] [--seed 1]
 *
 * The folder is maskbench of github.com/guidance-ai/jsonschemabench. Files are chosen evenly from all of it
 * until enough schemas have been answered. A random model hardly ever draws a quote or a bracket among 4,000
 * tokens, so `logit_bias` makes closing tokens likelier. Answers cut at `--tokens` are counted separately, as
 * are refusals, with their reasons. Exits with 1 if an answer is not allowed, or fails in another way.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { startServer } from "../benchmarks/started-server.ts";
import { allowsReal, type Json, judgeable } from "../tests/support/schema-oracle.ts";
import { controlTokens } from "./random-model/tokenizer.ts";
import { namedConfig, writeRandomModel } from "./random-model.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    schemas: { type: "string", default: "1000" },
    tokens: { type: "string", default: "600" },
    rows: { type: "string", default: "16" },
    seed: { type: "string", default: "1" },
  },
});
const [folder] = positionals;
if (folder === undefined) throw new Error("which folder of schemas?");
const [schemasMax, tokensMax, seed] = [values.schemas, values.tokens, values.seed].map(Number) as [
  number,
  number,
  number,
];

const TEMPERATURE = 1.5;
const small = {
  ...{ hidden_size: 96, intermediate_size: 64, num_attention_heads: 6, num_key_value_heads: 2, head_dim: 32 },
  ...{ num_hidden_layers: 2, max_position_embeddings: 4096, vocab_size: 4000, max_window_layers: 2 },
};
/** Bias of characters that end a string, an array or an object. */
const enders: Readonly<Record<string, number>> = { '"': 9, "]": 9, "}": 9 };

const counts = { answered: 0, ended: 0, allowed: 0, notByAjv: 0, cut: 0, refused: 0, failed: 0 };
const faults: string[] = [];

interface Answer {
  readonly choices: readonly {
    readonly message: { readonly content: string };
    readonly finish_reason: string;
  }[];
}

/** Requests an answer and checks it. */
async function ask(url: string, name: string, number: number): Promise<void> {
  const { schema } = JSON.parse(readFileSync(join(folder!, name), "utf8")) as { schema: Json };
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      model: "random",
      messages: [{ role: "user", content: `Write record ${number}.` }],
      response_format: { type: "json_schema", json_schema: { name: "record", strict: true, schema } },
      temperature: TEMPERATURE,
      seed: seed + number,
      max_tokens: tokensMax,
      logit_bias: Object.fromEntries(
        Object.entries(enders).map(([text, bias]) => [controlTokens.length + text.charCodeAt(0), bias]),
      ),
    }),
  });
  const body = (await response.json()) as Answer & { readonly error?: { readonly code?: string } };
  if (response.status === 400) {
    counts.refused++;
    return;
  }
  counts.answered++;
  if (!response.ok) {
    counts.failed++;
    faults.push(`${name}: ${response.status} ${JSON.stringify(body)}`);
    return;
  }
  const [{ message, finish_reason: reason }] = body.choices as [Answer["choices"][number]];
  if (reason === "length") {
    counts.cut++;
    return;
  }
  counts.ended++;
  const judged = judgeable(message.content);
  const isAllowed = judged === null ? null : allowsReal(schema, judged.value);
  if (isAllowed === true) counts.allowed++;
  else if (isAllowed === null) counts.notByAjv++;
  else faults.push(`${name}: ${message.content}`);
}

/** Files in an order whose every prefix is spread evenly over all of them. */
function spread(files: readonly string[]): string[] {
  const golden = (Math.sqrt(5) - 1) / 2;
  return files
    .map((file, index) => ({ file, place: (index * golden) % 1 }))
    .sort((a, b) => a.place - b.place)
    .map(({ file }) => file);
}

const scratch = mkdtempSync(join(tmpdir(), "bunting-answers-"));
const model = join(scratch, "random");
const { file, json } = namedConfig("Qwen2.5-0.5B");
writeRandomModel({ file, json: { ...json, ...small } }, model, { seed });
const main = resolve(import.meta.dir, "../server/main.ts");
const options = ["serve", model, "--device", "cpu", "--kv-cache-gib", "0.5", "--data", join(scratch, "data")];
const server = await startServer([process.execPath, main, ...options], scratch);
try {
  const files = spread(readdirSync(folder).sort());
  let [next, open] = [0, 0];
  await Promise.all(
    Array.from({ length: Number(values.rows) }, async () => {
      while (counts.answered + open < schemasMax && next < files.length) {
        const number = next++;
        open++;
        await ask(server.target.url, files[number]!, number);
        open--;
      }
    }),
  );
} finally {
  await server.stop();
  rmSync(scratch, { recursive: true });
}
for (const fault of faults) console.log(fault);
console.log(
  `${counts.answered} schemas answered, ${counts.refused} refused; ${counts.ended} answers ended, ${counts.allowed} of them allowed by Ajv, ${counts.notByAjv} under schemas that it does not take; ${counts.cut} cut at ${tokensMax} tokens, ${counts.failed} failed`,
);
process.exit(faults.length > 0 ? 1 : 0);
