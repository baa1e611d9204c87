/** Schemas and vocabularies for the measurements. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { compileConstraint } from "../../grammar/compile.ts";
import { ConstraintError } from "../../grammar/error.ts";
import type { Grammar } from "../../grammar/grammar.ts";
import { type Vocabulary, vocabularyOf } from "../../grammar/mask/vocabulary.ts";
import { NumberText } from "../../tests/support/any-order.ts";

const VOCABULARY = 151_936;

/** Schemas with the costliest known masks: each character counts, in several ways. */
export const worstMasks = [9, 19, 29, 39].map((words) => ({
  type: "string",
  minLength: 200,
  maxLength: 500,
  pattern: `^(?:\\S+\\s+){0,${words}}\\S+$`,
}));

/** Schema with values whose validity is known. */
export interface Case {
  /** Name of its file. */
  readonly name: string;
  readonly schema: unknown;
  readonly tests: readonly { readonly data: unknown; readonly valid: boolean }[];
}

/** Parses JSON and keeps the digits of numbers: 2.0 is not the text of an integer. */
export function parseExactly(text: string): unknown {
  return JSON.parse(text, (_, value, context?: { readonly source?: string }) =>
    typeof value === "number" ? new NumberText(context?.source ?? String(value)) : value,
  );
}

/**
 * Yields every `every`th file of the folder, from the `first`th on. Reads lazily, since live objects slow
 * down each garbage collection.
 */
export function* realSchemas(folder: string, every: number, first: number): Generator<Case> {
  for (const [index, file] of readdirSync(folder).sort().entries()) {
    if (index % every !== first) continue;
    const text = readFileSync(join(folder, file), "utf8");
    const { schema } = JSON.parse(text) as Case;
    yield { name: file, schema, tests: (parseExactly(text) as Case).tests };
  }
}

/** Compiles a schema; null: refused. */
export function compile(schema: unknown): Grammar | null {
  try {
    return compileConstraint({ kind: "schema", schema, layout: "compact" }).grammar;
  } catch (error) {
    if (error instanceof ConstraintError) return null;
    throw error;
  }
}

/** Builds a vocabulary from the file's tokens, by rank, or a generated one. */
export function vocabulary(ranks: { readonly bpe_ranks: string } | null): Vocabulary {
  const texts = tokens(ranks);
  return vocabularyOf(texts.length, (token) => texts[token]!);
}

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

export function quantiles(values: readonly number[]): string {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share: number): string =>
    (sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0).toPrecision(3);
  return `p50 ${at(0.5)}  p90 ${at(0.9)}  p99 ${at(0.99)}  max ${at(1)}`;
}
