/**
 * Constrained output on real schemas: compile times, verdicts on values, and mask times. Needs the schemas of
 * MaskBench (guidance-ai/jsonschemabench, folder maskbench/data). Optional: the official test suite
 * (json-schema-org/JSON-Schema-Test-Suite) and a vocabulary.
 *
 *   npx bun benchmarks/constraint.ts <maskbench/data> [--every 10] [--first 0] [--suite <folder>]
 *     [--ranks <o200k_base.js>] [--only verdicts,delays,masks] [--slowest 5]
 *
 * It uses every tenth schema; `--every` and `--first` select others, `--every 1` all. Times are processor
 * time of one thread, without concurrent garbage collection and JIT compilation. Masks also have wall time,
 * which is meaningful on an idle machine. Masks are computed after the warm-up of an engine, and their
 * schemas compile on a separate thread, as in the server. The vocabulary is the first 151,936 tokens of
 * js-tiktoken's o200k_base if given. Otherwise it is a generated one of the same size, of syllables and JSON
 * fragments, whose masks vary less.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { WORK_STEPS } from "../gpu/constrained-device.ts";
import type { Grammar } from "../grammar/grammar.ts";
import { Parser } from "../grammar/parser/parser.ts";
import { Regexes } from "../grammar/regex/regexes.ts";
import { acceptsInAnyOrder } from "../tests/support/any-order.ts";
import { type Case, compile, parseExactly, quantiles, realSchemas, vocabulary } from "./constraint/cases.ts";
import { measureDelays } from "./constraint/delays.ts";
import { measureMasks } from "./constraint/masks.ts";
import { threadMs } from "./constraint/thread-clock.ts";

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

/** Measures compile times of schemas, and their verdicts on values. */
function measureVerdicts(cases: Iterable<Case>): void {
  const times: number[] = [];
  const verdicts = new Verdicts();
  let compiled = 0;
  for (const one of cases) {
    const beganMs = threadMs();
    const grammar = compile(one.schema);
    times.push(threadMs() - beganMs);
    if (grammar === null) continue;
    compiled++;
    verdicts.add(grammar, one);
  }
  const share = ((100 * compiled) / times.length).toFixed(1);
  console.log(`${times.length} real schemas: ${share} % compile, ms ${quantiles(times)}; ${verdicts}`);
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    every: { type: "string", default: "10" },
    first: { type: "string", default: "0" },
    slowest: { type: "string", default: "5" },
    suite: { type: "string" },
    ranks: { type: "string" },
    only: { type: "string" },
  },
});
if (values.suite !== undefined) suite(values.suite);
const [folder] = positionals;
if (folder !== undefined) {
  const ranks = values.ranks === undefined ? null : (await import(values.ranks)).default;
  const cases = (): Iterable<Case> => realSchemas(folder, Number(values.every), Number(values.first));
  const parts = (values.only ?? "verdicts,delays,masks").split(",");
  if (parts.includes("verdicts")) measureVerdicts(cases());
  if (parts.includes("delays"))
    for (const workSteps of [WORK_STEPS, Number.POSITIVE_INFINITY])
      measureDelays(vocabulary(ranks), workSteps);
  if (parts.includes("masks")) await measureMasks(cases(), vocabulary(ranks), Number(values.slowest));
}
