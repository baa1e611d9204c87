/** Variants of the embedded model: with a tokenizer that a GGUF file can name, and with fill-in-the-middle tokens. */
import { copyFileSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const demo = join(import.meta.dir, "../../models/demo");

/**
 * Writes the folder `dir`: models/demo with SmolLM's pre-tokenizer. That one cuts digits one by one, also
 * before longer words. GGUF files only name a pre-tokenizer, and this one has a name ("smollm"). The model
 * answers worse with it.
 */
export function demoCutAsSmolLm(dir: string): string {
  mkdirSync(dir, { recursive: true });
  for (const name of readdirSync(demo)) {
    if (name === "model.safetensors") symlinkSync(join(demo, name), join(dir, name));
    else if (name.endsWith(".json")) copyFileSync(join(demo, name), join(dir, name));
  }
  const path = join(dir, "tokenizer.json");
  const tokenizer = JSON.parse(readFileSync(path, "utf8")) as {
    pre_tokenizer: { pretokenizers: { type: string }[] };
  };
  const steps = tokenizer.pre_tokenizer;
  steps.pretokenizers = steps.pretokenizers.filter(({ type }) => type !== "Split");
  writeFileSync(path, JSON.stringify(tokenizer));
  return dir;
}

/** ID of the first added token; those of the demo model are lower. */
export const FIRST_ADDED = 4096;

/** Writes the tokenizer to the folder `dir`, with one more token per text. */
export function tokenizerWith(dir: string, texts: readonly string[]): string {
  const tokenizer = JSON.parse(readFileSync(join(demo, "tokenizer.json"), "utf8")) as {
    added_tokens: object[];
  };
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  tokenizer.added_tokens.push(...texts.map((content, at) => ({ id: FIRST_ADDED + at, content, ...flags })));
  writeFileSync(join(dir, "tokenizer.json"), JSON.stringify(tokenizer));
  copyFileSync(join(demo, "tokenizer_config.json"), join(dir, "tokenizer_config.json"));
  return dir;
}
