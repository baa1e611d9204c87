/**
 * Constrained output on real schemas: how long they take to compile, whether values are told apart rightly, and what a mask
 * takes. Needs the schemas of MaskBench (guidance-ai/jsonschemabench, folder maskbench/data), and optionally the official test
 * suite (json-schema-org/JSON-Schema-Test-Suite) and a vocabulary.
 *
 *   npx bun benchmarks/constraint.ts <maskbench/data> [--every N] [--suite <folder>] [--ranks <o200k_base.js>]
 *     [--only masks]
 *
 * Times are processor time, that of collecting garbage and compiling code beside included; those of masks by the clock as well, which
 * counts on a machine that does nothing else. For masks, schemas are compiled on a thread of its own, as in the server. The vocabulary is the first 151,936 tokens of js-tiktoken's o200k_base where that file is given; else one of our own of the
 * same size, of syllables and what JSON consists of, whose masks are less varied.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { compileConstraint } from "../scheduler/constraint/compile.ts";
import { ConstrainedDevice, WORK_STEPS } from "../scheduler/constraint/constrained-device.ts";
import { ConstraintError } from "../scheduler/constraint/error.ts";
import type { Grammar } from "../scheduler/constraint/grammar.ts";
import { Job } from "../scheduler/constraint/job.ts";
import { Masks } from "../scheduler/constraint/masks.ts";
import { Matcher, parserOf } from "../scheduler/constraint/matcher.ts";
import { Parser } from "../scheduler/constraint/parser.ts";
import { Regexes } from "../scheduler/constraint/regex/regexes.ts";
import { type Mask, vocabularyOf } from "../scheduler/constraint/vocabulary.ts";
import { type Chunk, greedySampling, type Sampled, type SequenceId } from "../scheduler/core.ts";
import type { Device, DeviceSpec } from "../scheduler/device.ts";
import { SeededRandom } from "../scheduler/random.ts";
import { ConstraintCompiler } from "../server/constraint/compiler.ts";
import { acceptsInAnyOrder, NumberText, written } from "../tests/support/any-order.ts";

const VOCABULARY = 151_936;
const DELAY_STEPS = 120;
/** Steps of a device in which code is run for the first time. */
const COLD_STEPS = 5;

interface Case {
  /** Of its file. */
  readonly name: string;
  readonly schema: unknown;
  readonly tests: readonly { readonly data: unknown; readonly valid: boolean }[];
}

function quantiles(values: readonly number[]): string {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share: number): string =>
    (sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0).toPrecision(3);
  return `p50 ${at(0.5)}  p90 ${at(0.9)}  p99 ${at(0.99)}  max ${at(1)}`;
}

function compile(schema: unknown): Grammar | null {
  try {
    return compileConstraint({ kind: "schema", schema, layout: "compact" }).grammar;
  } catch (error) {
    if (error instanceof ConstraintError) return null;
    throw error;
  }
}

/** JSON in which numbers keep their digits: 2.0 is no integer's text. */
function parseExactly(text: string): unknown {
  return JSON.parse(text, (_, value, context?: { readonly source?: string }) =>
    typeof value === "number" ? new NumberText(context?.source ?? String(value)) : value,
  );
}

class Verdicts {
  valid = 0;
  validRejected = 0;
  invalid = 0;
  invalidAccepted = 0;

  add(grammar: Grammar, { tests }: Case): void {
    const parser = Parser.of(grammar, new Regexes());
    for (const { data, valid } of tests) {
      const isAccepted = acceptsInAnyOrder(parser, data);
      if (valid) {
        this.valid++;
        if (!isAccepted) this.validRejected++;
      } else {
        this.invalid++;
        if (isAccepted) this.invalidAccepted++;
      }
    }
  }

  toString(): string {
    return `invalid accepted ${this.invalidAccepted} of ${this.invalid}, valid rejected ${this.validRejected} of ${this.valid}`;
  }
}

/** Read as they are needed: what is kept is marked at each collection of garbage. */
function* realSchemas(folder: string, every: number): Generator<Case> {
  for (const [index, file] of readdirSync(folder).sort().entries()) {
    if (index % every !== 0) continue;
    const text = readFileSync(join(folder, file), "utf8");
    const { schema } = JSON.parse(text) as Case;
    yield { name: file, schema, tests: (parseExactly(text) as Case).tests };
  }
}

function suite(folder: string): void {
  for (const draft of ["draft2020-12", "draft7"]) {
    const root = join(folder, "tests", draft);
    const verdicts = new Verdicts();
    let passed = 0;
    let total = 0;
    for (const file of readdirSync(root).filter((name) => name.endsWith(".json"))) {
      const text = readFileSync(join(root, file), "utf8");
      const exact = parseExactly(text) as Case[];
      for (const [index, { schema }] of (JSON.parse(text) as Case[]).entries()) {
        const { tests } = exact[index]!;
        total += tests.length;
        const isPlain = typeof schema !== "object" || schema === null || "$schema" in schema;
        const draftOf = draft === "draft7" ? "http://json-schema.org/draft-07/schema#" : "";
        const dated = isPlain || draftOf === "" ? schema : { $schema: draftOf, ...schema };
        const grammar = compile(dated);
        if (grammar === null) continue;
        const wrongBefore = verdicts.invalidAccepted + verdicts.validRejected;
        verdicts.add(grammar, { name: file, schema, tests });
        passed += tests.length - (verdicts.invalidAccepted + verdicts.validRejected - wrongBefore);
      }
    }
    console.log(`${draft}: ${passed} of ${total} tests compile and pass; ${verdicts}`);
  }
}

/** How long schemas take to compile, and whether values are told apart rightly. */
function measureVerdicts(cases: Iterable<Case>): void {
  const times: number[] = [];
  const verdicts = new Verdicts();
  let compiled = 0;
  for (const one of cases) {
    const beganMs = cpuMs();
    const grammar = compile(one.schema);
    times.push(cpuMs() - beganMs);
    if (grammar === null) continue;
    compiled++;
    verdicts.add(grammar, one);
  }
  const share = ((100 * compiled) / times.length).toFixed(1);
  console.log(`${times.length} real schemas: ${share} % compile, ms ${quantiles(times)}; ${verdicts}`);
}

/** Tokens of the file, by rank, or of our own. */
function tokens(ranks: { readonly bpe_ranks: string } | null): Uint8Array[] {
  if (ranks !== null) {
    const found: Uint8Array[] = [];
    for (const line of ranks.bpe_ranks.split("\n")) {
      const [, first, ...rest] = line.split(" ");
      rest.forEach((text, index) => {
        found[Number(first) + index] = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
      });
    }
    return found.slice(0, VOCABULARY);
  }
  const texts = new Set<string>([
    ...'{"":,}[]:", "},{',
    '": "',
    '",',
    '"}',
    '":',
    ', "',
    "true",
    "false",
    "null",
  ]);
  const syllables =
    "ba be bi bo da de di fa fe ga go ha he ka ke la le ma me na ne pa ra re sa se ta te va we".split(" ");
  for (let i = 0; texts.size < VOCABULARY - 256; i++) {
    const word = [...i.toString(30)].map((digit) => syllables[Number.parseInt(digit, 30)]).join("");
    texts.add(i % 3 === 0 ? ` ${word}` : i % 29 === 0 ? `${word}"` : word);
  }
  const bytes = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte));
  return [...bytes, ...[...texts].map((text) => new TextEncoder().encode(text))].slice(0, VOCABULARY);
}

/** Each valid value is read token by token, longest first; the mask of each place is timed. */
async function measureMasks(cases: Iterable<Case>, texts: readonly Uint8Array[]): Promise<void> {
  const startedMs = cpuMs();
  const masks = new Masks(vocabularyOf(texts.length, (token) => texts[token]!));
  console.log(`vocabulary of ${texts.length}: ready in ${(cpuMs() - startedMs).toFixed(0)} ms`);
  const ids = new Map(texts.map((text, token) => [Buffer.from(text).toString("latin1"), token]));
  const compiler = new ConstraintCompiler(new URL("../server/constraint/worker.ts", import.meta.url).href);
  const cpuTimes: number[] = [];
  const clockTimes: number[] = [];
  const pieces: number[] = [];
  for (const { schema, tests } of cases) {
    const compiled = await compiler
      .compile({ kind: "schema", schema, layout: "compact" })
      .catch((error: unknown) => {
        if (error instanceof ConstraintError) return null;
        throw error;
      });
    if (compiled === null) continue;
    const parser = parserOf(compiled.constraint.grammar, masks);
    for (const { data, valid } of tests) {
      if (!valid) continue;
      const matcher = Matcher.of(parser, masks);
      const text = Buffer.from(written(data)).toString("latin1").slice(0, 4000);
      for (let at = 0; at < text.length; ) {
        let length = Math.min(24, text.length - at);
        while (!ids.has(text.slice(at, at + length))) length--;
        const token = ids.get(text.slice(at, at + length))!;
        const { mask, cpuUs, clockUs, longestUs } = timedMask(matcher);
        cpuTimes.push(cpuUs);
        clockTimes.push(clockUs);
        pieces.push(longestUs);
        const isAllowed = ((mask[token >>> 5]! >>> (token & 31)) & 1) === 1;
        if (!isAllowed || !matcher.accept(token)) break;
        at += length;
      }
    }
  }
  compiler.close();
  console.log(
    `masks, ${cpuTimes.length} of them: µs ${quantiles(cpuTimes)}; by the clock ${quantiles(clockTimes)}; the longest piece of each, by the clock: ${quantiles(pieces)}`,
  );
}

/** A mask as the device that writes masks makes it, in pieces. */
function timedMask(matcher: Matcher): {
  readonly mask: Mask;
  readonly cpuUs: number;
  readonly clockUs: number;
  readonly longestUs: number;
} {
  const [beganCpuMs, beganMs] = [cpuMs(), performance.now()];
  const found = matcher.findMask();
  let mask = found instanceof Job ? null : found;
  let longestMs = performance.now() - beganMs;
  while (mask === null) {
    const pieceMs = performance.now();
    mask = (found as Job<Mask>).run(WORK_STEPS);
    longestMs = Math.max(longestMs, performance.now() - pieceMs);
  }
  const clockMs = performance.now() - beganMs;
  return { mask, cpuUs: 1000 * (cpuMs() - beganCpuMs), clockUs: 1000 * clockMs, longestUs: 1000 * longestMs };
}

/** Milliseconds of processor time: what other programs do on the machine is not in it. */
function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Schemas whose masks take the most work of all that are known: each character counts, in several ways. */
const worst = [9, 19, 29, 39].map((words) => ({
  type: "string",
  minLength: 200,
  maxLength: 500,
  pattern: `^(?:\\S+\\s+){0,${words}}\\S+$`,
}));

/** What a step of the device is held up by masks for four answers under the worst schemas, beside a free one. */
function measureDelays(texts: readonly Uint8Array[], workSteps: number): void {
  const vocabulary = vocabularyOf(texts.length, (token) => texts[token]!);
  const random = new SeededRandom(1);
  const drawing: Device = {
    spec: { vocabSize: texts.length } as DeviceSpec,
    start: ({ chunks }, done) => {
      const sampled = chunks.flatMap(({ sequence, samples: [row] }): Sampled[] => {
        if (row === undefined || row.wants === "hidden") return [];
        let token = random.below(texts.length);
        while (row.allowed !== null && ((row.allowed[token >>> 5]! >>> (token & 31)) & 1) === 0)
          token = (token + 1) % texts.length;
        return [{ kind: "token", sequence, token, logprobs: null }];
      });
      done({ kind: "done", sampled, deviceMs: 0 });
    },
    close: () => {},
  };
  const device = new ConstrainedDevice(drawing, vocabulary, workSteps);
  const rows = worst.map((schema) => ({ id: JSON.stringify(schema), grammar: compile(schema)! }));
  const drawn: number[][] = rows.map(() => []);
  const times: number[] = [];
  let tokens = 0;
  for (let step = 1; step <= DELAY_STEPS; step++) {
    const chunks = [null, ...rows].map((of, index): Chunk => {
      const own = drawn[index - 1] ?? [];
      const row = {
        afterIndex: 0,
        sampling: greedySampling,
        position: own.length,
        banned: [],
        seen: null,
        allowed: null,
      };
      const constraint =
        of === null ? {} : { constraint: { of, drawn: Int32Array.from(own), endTokens: [] } };
      const sequence = index as SequenceId;
      return {
        sequence,
        start: 0,
        tokens: Int32Array.of(0),
        pages: Int32Array.of(0),
        samples: [{ ...row, ...constraint }],
        adapter: 0,
      };
    });
    const beganMs = cpuMs();
    device.start({ number: step, moves: [], chunks }, (result) => {
      if (result.kind !== "done") return;
      for (const one of result.sampled) {
        if (one.kind === "token" && one.sequence > 0) {
          tokens += 1 + (one.forced?.length ?? 0);
          drawn[one.sequence - 1]!.push(one.token, ...(one.forced ?? []));
        } else if (one.kind === "failed") drawn[one.sequence - 1] = []; // the text has ended
      }
    });
    times.push(cpuMs() - beganMs);
  }
  console.log(
    `beside the worst schemas, ${workSteps} steps of work at a time: ms a step ${quantiles(times.slice(COLD_STEPS))}, the first ${COLD_STEPS} up to ${Math.max(...times.slice(0, COLD_STEPS)).toFixed(1)}; ${tokens} tokens in ${DELAY_STEPS} steps`,
  );
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    every: { type: "string", default: "10" },
    suite: { type: "string" },
    ranks: { type: "string" },
    only: { type: "string" },
  },
});
if (values.suite !== undefined) suite(values.suite);
const [folder] = positionals;
if (folder !== undefined) {
  const ranks = values.ranks === undefined ? null : (await import(values.ranks)).default;
  if (values.only === undefined) {
    measureVerdicts(realSchemas(folder, Number(values.every)));
    for (const workSteps of [WORK_STEPS, Number.POSITIVE_INFINITY]) measureDelays(tokens(ranks), workSteps);
  }
  await measureMasks(realSchemas(folder, Number(values.every)), tokens(ranks));
}
