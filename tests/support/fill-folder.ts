/** Tokenizer of the demo model plus fill-in-the-middle tokens, as code models have. */
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const demo = join(import.meta.dir, "../../models/demo");
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
