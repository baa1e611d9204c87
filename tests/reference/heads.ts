/**
 * Models of families.ts with a random head that drafts tokens, and what a computation of torch drafts with it.
 * heads.py computes it.
 *
 *   npx bun tests/reference/heads.ts <folder>
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { writeFamily } from "./families.ts";

/** Models with a head, by their name in families.ts. */
export const headNames = [
  "mimo",
  "glm4-moe",
  "deepseek-v3",
  "glm4-moe-lite",
  "qwen3-5",
  "qwen3-next",
] as const;

/** Drafts of a head after each of `positions` of the prompt, if the model draws its likeliest token there. */
export interface HeadReference {
  readonly positions: readonly number[];
  /** Token that the model draws. */
  readonly next: readonly number[];
  /** Tokens that the head drafts after it, and the logarithm of the probability that it gives each. */
  readonly drafts: readonly (readonly number[])[];
  readonly logprobs: readonly (readonly number[])[];
}

export function headReference(name: string): HeadReference {
  return JSON.parse(readFileSync(join(import.meta.dir, "heads", `${name}.json`), "utf8")) as HeadReference;
}

if (import.meta.main) {
  const folder = process.argv[2];
  if (folder === undefined) throw new Error("wanted: a folder to write to");
  for (const name of headNames) writeFamily(name, join(folder, name), {}, true);
}
