/**
 * Published vocabularies, compared with the token ids that their own tokenizers produce. FOLDER has
 * llama.cpp's layout: `NAME.gguf` is a vocabulary, `NAME.gguf.inp` has texts and `NAME.gguf.out` their
 * tokens, a line each.
 *
 *   npx bun tests/suites/vocabularies.ts FOLDER
 *
 * Prints a line per vocabulary: the number of texts with the published tokens, and of all; or why it cannot
 * be read. Exits with 1 if any differs. Some published tokens were made without Unicode normalization (form
 * C), which the model's own tokenizer does. Texts that are equal except for that are counted separately.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { readGgufFile } from "../../model/gguf-file.ts";
import { ModelError } from "../../model/model-error.ts";
import { ggufTokenizer } from "../../text/gguf-tokenizer.ts";
import { createTokenizer, type Tokenizer } from "../../text/tokenizer.ts";

const separator = "\n__ggml_vocab_test__\n";

interface Tokenizers {
  readonly whole: Tokenizer;
  /** Tokenizer without its Unicode normalization, if it has one; else null. */
  readonly uncomposed: Tokenizer | null;
}

/** Loads both tokenizers, or returns why the file is refused. */
function tokenizersOf(path: string): Tokenizers | string {
  try {
    const { tokenizer, config } = ggufTokenizer(readGgufFile(path));
    const composes = (tokenizer.normalizer as { type?: string } | null)?.type === "NFC";
    const uncomposed = composes ? createTokenizer({ ...tokenizer, normalizer: null }, config) : null;
    return { whole: createTokenizer(tokenizer, config), uncomposed };
  } catch (error) {
    if (!(error instanceof ModelError)) throw error;
    return error.message.replace(`${path}: `, "");
  }
}

const idsOf = (tokenizer: Tokenizer, text: string): string =>
  tokenizer.encode(text, { addSpecialTokens: false }).join(" ");

const [folder = ""] = process.argv.slice(2);
let differing = 0;
for (const file of readdirSync(folder).toSorted()) {
  const path = join(folder, file);
  if (!file.endsWith(".gguf") || !existsSync(`${path}.inp`)) continue;
  const name = file.replace(/^ggml-vocab-|\.gguf$/g, "");
  const tokenizers = tokenizersOf(path);
  if (typeof tokenizers === "string") {
    console.log(`${name}: refused: ${tokenizers}`);
    continue;
  }
  const { whole, uncomposed } = tokenizers;
  const texts = readFileSync(`${path}.inp`, "utf8").split(separator);
  const lines = readFileSync(`${path}.out`, "utf8").split("\n");
  let equal = 0;
  let equalUncomposed = 0;
  for (const [index, text] of texts.entries()) {
    const published = lines[index]!.trim();
    const ours = idsOf(whole, text);
    if (ours === published) equal++;
    else if (uncomposed !== null && idsOf(uncomposed, text) === published) equalUncomposed++;
    else console.log(`  ${JSON.stringify(text)}\n    published ${published}\n    ours      ${ours}`);
  }
  if (equal + equalUncomposed < texts.length) differing++;
  const rest = equalUncomposed > 0 ? `, and ${equalUncomposed} but for composing` : "";
  console.log(`${name}: ${equal} of ${texts.length}${rest}`);
}
process.exitCode = differing > 0 ? 1 : 0;
