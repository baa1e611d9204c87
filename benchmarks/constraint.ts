/**
 * Constrained output on real schemas: how long they take to compile, whether values are told apart rightly, and what a mask
 * takes. Needs the schemas of MaskBench (guidance-ai/jsonschemabench, folder maskbench/data), and optionally the official test
 * suite (json-schema-org/JSON-Schema-Test-Suite) and a vocabulary.
 *
 *   npx bun benchmarks/constraint.ts <maskbench/data> [--every N] [--suite <folder>] [--ranks <o200k_base.js>]
 *
 * The vocabulary is the first 151,936 tokens of js-tiktoken's o200k_base where that file is given; else one of our own of the
 * same size, of syllables and what JSON consists of, whose masks are less varied.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { compileConstraint } from "../scheduler/constraint/compile.ts";
import { ConstraintError } from "../scheduler/constraint/error.ts";
import type { Grammar } from "../scheduler/constraint/grammar.ts";
import { Masks } from "../scheduler/constraint/masks.ts";
import { Matcher, parserOf } from "../scheduler/constraint/matcher.ts";
import { Parser, type ParseState } from "../scheduler/constraint/parser.ts";
import { Regexes } from "../scheduler/constraint/regex/regexes.ts";
import { vocabularyOf } from "../scheduler/constraint/vocabulary.ts";

const VOCABULARY = 151_936;

interface Case {
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

function accepts(parser: Parser, text: string): boolean {
  let state: ParseState | null = parser.start;
  for (const byte of new TextEncoder().encode(text)) {
    state = parser.next(state, byte);
    if (state === null) return false;
  }
  return state.mayEnd;
}

/** A number as it was written. */
class Literal {
  constructor(readonly text: string) {}
}

/** JSON in which numbers keep their digits: 2.0 is no integer's text. */
function parseExactly(text: string): unknown {
  return JSON.parse(text, (_, value, context?: { readonly source?: string }) =>
    typeof value === "number" ? new Literal(context?.source ?? String(value)) : value,
  );
}

/** Names of properties in the order in which a schema has them. */
function orderOf(schema: unknown, names = new Map<string, number>()): Map<string, number> {
  if (typeof schema !== "object" || schema === null) return names;
  for (const [key, value] of Object.entries(schema)) {
    if (key === "properties" && typeof value === "object" && value !== null) {
      for (const name of Object.keys(value)) if (!names.has(name)) names.set(name, names.size);
    }
    orderOf(value, names);
  }
  return names;
}

/** Properties stay as they are. */
const asGiven: ReadonlyMap<string, number> = new Map();

/** The value's text with properties in that order, as a model is made to write them, and others after them. */
function written(value: unknown, names: ReadonlyMap<string, number>): string {
  if (value instanceof Literal) return value.text;
  if (Array.isArray(value)) return `[${value.map((item) => written(item, names)).join()}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const place = ([name]: [string, unknown]): number => names.get(name) ?? names.size;
  const entries = Object.entries(value).sort((a, b) => place(a) - place(b));
  return `{${entries.map(([name, one]) => `${JSON.stringify(name)}:${written(one, names)}`).join()}}`;
}

class Verdicts {
  valid = 0;
  validRejected = 0;
  invalid = 0;
  invalidAccepted = 0;

  add(grammar: Grammar, { schema, tests }: Case): void {
    const parser = Parser.of(grammar, new Regexes());
    const names = orderOf(schema);
    for (const { data, valid } of tests) {
      const isAccepted = accepts(parser, written(data, asGiven)) || accepts(parser, written(data, names));
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

function realSchemas(folder: string, every: number): Case[] {
  const files = readdirSync(folder).sort();
  return files.flatMap((file, index) => {
    if (index % every !== 0) return [];
    const text = readFileSync(join(folder, file), "utf8");
    const { schema } = JSON.parse(text) as Case;
    return [{ schema, tests: (parseExactly(text) as Case).tests }];
  });
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
        verdicts.add(grammar, { schema, tests });
        passed += tests.length - (verdicts.invalidAccepted + verdicts.validRejected - wrongBefore);
      }
    }
    console.log(`${draft}: ${passed} of ${total} tests compile and pass; ${verdicts}`);
  }
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
function measureMasks(cases: readonly Case[], texts: readonly Uint8Array[]): void {
  const startedMs = performance.now();
  const masks = new Masks(vocabularyOf(texts.length, (token) => texts[token]!));
  console.log(`vocabulary of ${texts.length}: ready in ${(performance.now() - startedMs).toFixed(0)} ms`);
  const ids = new Map(texts.map((text, token) => [Buffer.from(text).toString("latin1"), token]));
  const times: number[] = [];
  for (const { schema, tests } of cases) {
    const grammar = compile(schema);
    if (grammar === null) continue;
    const parser = parserOf(grammar, masks);
    for (const { data, valid } of tests) {
      if (!valid) continue;
      const matcher = Matcher.of(parser, masks);
      const text = Buffer.from(written(data, asGiven)).toString("latin1").slice(0, 4000);
      for (let at = 0; at < text.length; ) {
        let length = Math.min(24, text.length - at);
        while (!ids.has(text.slice(at, at + length))) length--;
        const token = ids.get(text.slice(at, at + length))!;
        const beganMs = performance.now();
        const mask = matcher.mask();
        times.push(1000 * (performance.now() - beganMs));
        const isAllowed = ((mask[token >>> 5]! >>> (token & 31)) & 1) === 1;
        if (!isAllowed || !matcher.accept(token)) break;
        at += length;
      }
    }
  }
  console.log(`masks, ${times.length} of them: µs ${quantiles(times)}`);
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { every: { type: "string", default: "10" }, suite: { type: "string" }, ranks: { type: "string" } },
});
if (values.suite !== undefined) suite(values.suite);
const [folder] = positionals;
if (folder !== undefined) {
  const cases = realSchemas(folder, Number(values.every));
  const times: number[] = [];
  const verdicts = new Verdicts();
  let compiled = 0;
  for (const one of cases) {
    const beganMs = performance.now();
    const grammar = compile(one.schema);
    times.push(performance.now() - beganMs);
    if (grammar === null) continue;
    compiled++;
    verdicts.add(grammar, one);
  }
  const share = ((100 * compiled) / cases.length).toFixed(1);
  console.log(`${cases.length} real schemas: ${share} % compile, ms ${quantiles(times)}; ${verdicts}`);
  const ranks = values.ranks === undefined ? null : (await import(values.ranks)).default;
  measureMasks(cases, tokens(ranks));
}
