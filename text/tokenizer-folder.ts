/** Files of a tokenizer in a model's folder. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { tekkenTokenizer } from "./tekken.ts";
import { specialTokensIn } from "./template-source.ts";
import { type JsonObject, TokenizerError } from "./tokenizer-file.ts";

export interface TokenizerFiles {
  /** Path of the file with the vocabulary. */
  readonly file: string;
  /** Contents of a tokenizer.json, read or converted. */
  readonly tokenizer: JsonObject;
  /** Contents of tokenizer_config.json and special_tokens_map.json. */
  readonly config: JsonObject;
}

/** Reads tokenizer.json, else tekken.json, with the configuration beside it. Throws TokenizerError. */
export function readTokenizerFiles(folder: string): TokenizerFiles {
  const file = join(folder, "tokenizer.json");
  const config = specialTokensIn(folder, readJson(join(folder, "tokenizer_config.json")) ?? {});
  const tokenizer = readJson(file);
  if (tokenizer !== null) return { file, tokenizer, config };
  const tekkenFile = join(folder, "tekken.json");
  const tekken = readJson(tekkenFile);
  if (tekken === null) throw new TokenizerError(`${file}: no such file${insteadOf(folder)}`);
  try {
    const converted = tekkenTokenizer(tekken);
    return { file: tekkenFile, tokenizer: converted.tokenizer, config: { ...converted.config, ...config } };
  } catch (error) {
    throw error instanceof TokenizerError ? new TokenizerError(`${tekkenFile}: ${error.message}`) : error;
  }
}

/** Advice for a folder with a tokenizer in another form. */
function insteadOf(folder: string): string {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  const found = names.find((name) =>
    /^(tokenizer\.model|vocab\.(json|txt)|.*\.tiktoken|.*\.model(\.v\d)?)$/.test(name),
  );
  if (found === undefined) return "";
  return `; the folder has ${found}, of which transformers makes one: AutoTokenizer.from_pretrained("${folder}").save_pretrained("${folder}")`;
}

function readJson(path: string): JsonObject | null {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw new TokenizerError(`${path}: ${(error as Error).message}`);
  }
  try {
    const value: unknown = JSON.parse(text);
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value as JsonObject;
  } catch (error) {
    throw new TokenizerError(`${path}: ${(error as Error).message}`);
  }
  throw new TokenizerError(`${path}: expected a JSON object`);
}
