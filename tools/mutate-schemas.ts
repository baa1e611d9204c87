/**
 * Fuzzes real schemas with random faults: each is either refused with a message, or limits answers to those
 * that Ajv allows.
 *
 *   npx bun tools/mutate-schemas.ts <maskbench/data> [--cases 3000] [--seed 1]
 *
 * The folder is maskbench of github.com/guidance-ai/jsonschemabench: a file per schema, `{schema, tests:
 * [{data}]}`. Each case removes one to three parts of a schema, replaces them by parts of others, moves them
 * into another keyword, or renames them. Every schema that compiles must judge the file's values, intact and
 * with faults, and generates random answers. Exits with 1 if a value is accepted that Ajv does not allow, or
 * if anything but a refusal is thrown.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { compileConstraint } from "../grammar/compile.ts";
import { ConstraintError } from "../grammar/error.ts";
import type { Grammar } from "../grammar/grammar.ts";
import { Parser } from "../grammar/parser/parser.ts";
import { Regexes } from "../grammar/regex/regexes.ts";
import { acceptsInAnyOrder } from "../tests/support/any-order.ts";
import { drawnAnswer } from "../tests/support/drawn-answer.ts";
import { allows, forgetDifferences, type Json, judgeable, placesOf } from "../tests/support/schema-oracle.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { cases: { type: "string", default: "3000" }, seed: { type: "string", default: "1" } },
});
const folder = positionals[0];
if (folder === undefined) throw new Error("which folder of schemas?");

/** Maximum size of a file; Ajv takes seconds for some larger ones. */
const FILE_BYTES_MAX = 20_000;
const VALUES_MAX = 6;
const ANSWERS = 2;
const names = [
  "type",
  "items",
  "not",
  "enum",
  "required",
  "properties",
  "pattern",
  "minItems",
  "oneOf",
  "$ref",
  "format",
];
const literals = [
  null,
  true,
  false,
  0,
  -1,
  2.5,
  1e9,
  "",
  "string",
  "object",
  "^a*$",
  "#/$defs/a",
  [],
  {},
  ["a"],
];

interface RealSchema {
  readonly schema: Json;
  readonly tests: readonly { readonly data: Json }[];
}

/** Seeded generator of whole numbers from 0 to 2^32 - 1. */
function numbersFrom(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
}

/** Copy of the value with one more fault; replacement parts come from `others`. */
function mutated(value: Json, others: readonly Json[], next: () => number): Json {
  const any = <Value>(list: readonly Value[]): Value => list[next() % list.length]!;
  const copy = structuredClone({ value });
  const [holder, name] = any(placesOf(copy));
  const at = holder as { [name: string]: Json };
  const part = at[name]!;
  const partOf = (): Json => {
    const [from, key] = any(placesOf({ value: any(others) }));
    return structuredClone((from as { [name: string]: Json })[key]!);
  };
  switch (next() % 6) {
    case 0:
      if (Array.isArray(holder)) holder.splice(Number(name), 1);
      else if (holder !== copy) delete at[name];
      break;
    case 1:
      at[name] = partOf();
      break;
    case 2:
      at[name] = structuredClone(any(literals));
      break;
    case 3:
      at[name] = {
        [any(["not", "anyOf", "oneOf", "allOf", "if"])]: next() % 2 === 0 ? [part, partOf()] : part,
      };
      break;
    case 4:
      at[any(names)] = part;
      break;
    default:
      at[name] = typeof part === "number" ? -part : typeof part === "string" ? part.slice(1) : [part];
  }
  return copy.value;
}

/** Grammar of a schema; null if it is refused or too much work. */
function compiled(schema: Json): Grammar | null {
  try {
    return compileConstraint({ kind: "schema", schema, layout: "compact" }).grammar;
  } catch (error) {
    if (error instanceof ConstraintError && error.message !== "") return null;
    throw error;
  }
}

/** Verdict of Ajv; null if Ajv rejects the schema. */
function allowedByAjv(schema: Json, value: Json): boolean | null {
  try {
    return allows(schema, value);
  } catch {
    return null;
  }
}

const counts = {
  cases: 0,
  refused: 0,
  notByAjv: 0,
  accepted: 0,
  rejectedAlike: 0,
  validRejected: 0,
  drawn: 0,
  givenUp: 0,
};
let slowestMs = 0;

function check(schema: Json, instances: readonly Json[], next: () => number): void {
  const startMs = performance.now();
  const grammar = compiled(schema);
  slowestMs = Math.max(slowestMs, performance.now() - startMs);
  counts.cases++;
  if (grammar === null) {
    counts.refused++;
    return;
  }
  // Ajv treats a property with the empty name as always present. It rejects a faulty schema only the first
  // time and then uses it.
  const isJudged =
    !/"required":\[[^\]]*""/.test(JSON.stringify(schema)) && allowedByAjv(schema, null) !== null;
  if (!isJudged) counts.notByAjv++;
  const expectAllowed = (value: Json, text: string): void => {
    if (isJudged && !allowedByAjv(schema, value))
      throw new Error(`accepted, and not allowed by Ajv: ${text}`);
  };
  const parser = Parser.of(grammar, new Regexes());
  for (const value of instances) {
    if (acceptsInAnyOrder(parser, value)) {
      expectAllowed(value, JSON.stringify(value));
      counts.accepted++;
    } else if (isJudged && allowedByAjv(schema, value)) counts.validRejected++;
    else counts.rejectedAlike++;
  }
  for (let i = 0; i < ANSWERS; i++) {
    const answer = drawnAnswer(grammar, next);
    if (answer === null) continue;
    const judged = judgeable(answer);
    if (judged === null) continue;
    expectAllowed(judged.value, answer);
    counts.drawn++;
  }
}

const next = numbersFrom(Number(values.seed));
const files = readdirSync(folder).toSorted();
const read = (): RealSchema | null => {
  const text = readFileSync(join(folder, files[next() % files.length]!), "utf8");
  return text.length > FILE_BYTES_MAX ? null : (JSON.parse(text) as RealSchema);
};
const pool: RealSchema[] = [];
while (pool.length < 200) {
  const one = read();
  if (one !== null) pool.push(one);
}
const schemas = pool.map(({ schema }) => schema);
let faults = 0;
while (counts.cases < Number(values.cases)) {
  const real = read() ?? pool[next() % pool.length]!;
  let { schema } = real;
  forgetDifferences(schema);
  for (let fault = next() % 3; fault >= 0; fault--) schema = mutated(schema, schemas, next);
  const given = real.tests.slice(0, VALUES_MAX).map(({ data }) => data);
  const instances = given.flatMap((value) => [value, mutated(value, given, next)]);
  try {
    check(schema, instances, next);
  } catch (error) {
    // Mask computation also has a work limit that ends a request.
    if (error instanceof ConstraintError) {
      counts.givenUp++;
      continue;
    }
    faults++;
    console.log(`${JSON.stringify(schema)}\n  ${error instanceof Error ? error.message : error}\n`);
  }
}
console.log(`${JSON.stringify(counts)}, slowest compile ${slowestMs.toFixed(0)} ms, ${faults} faults`);
process.exit(faults > 0 ? 1 : 0);
