/**
 * What a process keeps of constraints: ten thousand unique schemas are compiled, one after another, and an answer is held to
 * each for some tokens. Memory must be flat once the caches are full.
 *
 *   npx bun benchmarks/constraint-memory.ts [--schemas 10000] [--tokens 40]
 *
 * The vocabulary is one of our own of 32,768 tokens. Memory is that of the process (RSS) after a collection of garbage, the
 * compiler's thread included.
 */
import { parseArgs } from "node:util";
import { SeededRandom } from "../base/random.ts";
import { ConstrainedDevice } from "../gpu/constrained-device.ts";
import type { Constraint } from "../grammar/constraint.ts";
import { vocabularyOf } from "../grammar/mask/vocabulary.ts";
import { greedySampling, type Sampled, type SequenceId } from "../scheduler/core.ts";
import type { Device, DeviceSpec } from "../scheduler/device.ts";
import { ConstraintCompiler } from "../server/grammar/compiler.ts";

const VOCABULARY = 32_768;
const LINES = 10;

const { values } = parseArgs({
  options: { schemas: { type: "string", default: "10000" }, tokens: { type: "string", default: "40" } },
});
const [schemas, tokens] = [Number(values.schemas), Number(values.tokens)];
const random = new SeededRandom(1);

/** No two are the same: each has names, words and patterns of its own. */
function schemaOf(number: number): object {
  const words = Array.from({ length: 12 }, (_, index) => `w${number}x${index * index}`);
  return {
    type: "object",
    properties: {
      [`id${number}`]: { type: "integer", minimum: number },
      [`kind${number}`]: { enum: words },
      [`code${number}`]: { type: "string", pattern: `^[a-z]{2,${3 + (number % 40)}}-${number}[0-9]*$` },
      [`note${number}`]: { type: "string", minLength: 1 + (number % 7), maxLength: 100 + (number % 300) },
      [`tags${number}`]: { type: "array", items: { type: "string" }, maxItems: 1 + (number % 9) },
      [`inner${number}`]: { type: "object", additionalProperties: { type: "number" } },
    },
    required: [`id${number}`, `kind${number}`, `code${number}`],
    additionalProperties: false,
  };
}

/** Letters, pairs of them, and words of JSON. */
function vocabulary() {
  const texts = new Set<string>(['{"', '":', '", "', "true", "false", "null", "}]", '"}']);
  const letters = "etaoinshrdlucmfwypvbgkxz0123456789 -";
  for (const a of letters)
    for (const b of letters) for (const c of letters) if (texts.size < VOCABULARY - 256) texts.add(a + b + c);
  const encoded = [...texts].map((text) => new TextEncoder().encode(text));
  const all = [...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)), ...encoded];
  return vocabularyOf(all.length, (token) => all[token]!);
}

/** Draws any allowed token. */
function drawing(vocabSize: number): Device {
  return {
    spec: { vocabSize } as DeviceSpec,
    start: ({ chunks }, done) => {
      const sampled = chunks.flatMap(({ sequence, samples: [row] }): Sampled[] => {
        if (row === undefined || row.wants === "hidden") return [];
        let token = random.below(vocabSize);
        while (row.allowed !== null && ((row.allowed[token >>> 5]! >>> (token & 31)) & 1) === 0)
          token = (token + 1) % vocabSize;
        return [{ kind: "token", sequence, token, logprobs: null }];
      });
      done({ kind: "done", sampled, deviceMs: 0 });
    },
    close: () => {},
  };
}

/** An answer that is held to it. */
function answer(device: Device, of: Constraint, sequence: SequenceId): void {
  const drawn: number[] = [];
  const common = { start: 0, tokens: Int32Array.of(0), pages: Int32Array.of(0), adapter: 0 };
  for (let number = 1, isOpen = true; isOpen && drawn.length < tokens; number++) {
    const position = drawn.length;
    const constraint = { of, drawn: Int32Array.from(drawn), endTokens: [] };
    const row = {
      afterIndex: 0,
      sampling: greedySampling,
      position,
      banned: [],
      seen: null,
      allowed: null,
      constraint,
    };
    device.start({ number, moves: [], chunks: [{ sequence, ...common, samples: [row] }] }, (result) => {
      const [one] = result.kind === "done" ? result.sampled : [];
      if (one?.kind === "token") drawn.push(one.token, ...(one.forced ?? []));
      else isOpen = one?.kind === "deferred";
    });
  }
}

function megabytes(): string {
  Bun.gc(true);
  return (process.memoryUsage.rss() / 2 ** 20).toFixed(0);
}

const known = vocabulary();
const device = new ConstrainedDevice(drawing(known.size), known);
const compiler = new ConstraintCompiler(new URL("../server/grammar/worker.ts", import.meta.url).href);
const beganMs = performance.now();
console.log(`0 schemas: ${megabytes()} MiB`);
for (let number = 1; number <= schemas; number++) {
  const { constraint } = await compiler.compile({
    kind: "schema",
    schema: schemaOf(number),
    layout: "compact",
  });
  answer(device, constraint, number as SequenceId);
  if (number % Math.ceil(schemas / LINES) !== 0) continue;
  const { entries, bytes } = compiler.kept;
  const seconds = ((performance.now() - beganMs) / 1000).toFixed(0);
  console.log(
    `${number} schemas: ${megabytes()} MiB; ${entries} compiled ones kept, ${(bytes / 2 ** 20).toFixed(1)} MiB as it counts them; ${seconds} s`,
  );
}
compiler.close();
