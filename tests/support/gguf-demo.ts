/** The embedded model with a tokenizer that a GGUF file can name. */
import { copyFileSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const demo = join(import.meta.dir, "../../models/demo");

/** Makes the folder `dir` out of models/demo with its text cut as SmolLM's is, digits one by one, and not before longer words
 *  too: GGUF files only name how a text is cut, and that way has a name ("smollm"). The model answers worse for it. */
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
