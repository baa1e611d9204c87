/** Files of a tokenizer in a model's folder. */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { readExactly, withFile } from "../model/json.ts";
import { tekkenTokenizer } from "./tekken.ts";
import { specialTokensIn } from "./template-source.ts";
import { type JsonObject, naming, TokenizerError } from "./tokenizer-file.ts";

export interface TokenizerFiles {
  /** Path of the file with the vocabulary. */
  readonly file: string;
  /** Contents of a tokenizer.json, read or converted. */
  readonly tokenizer: JsonObject;
  /** Contents of tokenizer_config.json and special_tokens_map.json. */
  readonly config: JsonObject;
}

/** Throws TokenizerError for a folder without a tokenizer. Quick: it reads no vocabulary. */
export function expectTokenizer(folder: string): void {
  const file = join(folder, "tokenizer.json");
  if (!existsSync(file) && !existsSync(join(folder, "tekken.json")))
    throw new TokenizerError(`${file}: no such file${insteadOf(folder)}`);
}

/** Reads tokenizer.json, else tekken.json, with the configuration beside it. Throws TokenizerError. */
export function readTokenizerFiles(folder: string): TokenizerFiles {
  const file = join(folder, "tokenizer.json");
  const config = specialTokensIn(folder, readJson(join(folder, "tokenizer_config.json")) ?? {});
  const tokenizer = readJson(file);
  const tekkenFile = join(folder, "tekken.json");
  if (tokenizer !== null) return { file, tokenizer: withPatternOf(tekkenFile, tokenizer), config };
  const tekken = readJson(tekkenFile);
  if (tekken === null) throw new TokenizerError(`${file}: no such file${insteadOf(folder)}`);
  const converted = naming(tekkenFile, () => tekkenTokenizer(tekken));
  return { file: tekkenFile, tokenizer: converted.tokenizer, config: { ...converted.config, ...config } };
}

/** Bytes at the beginning of tekken.json that hold its pattern. */
const headBytes = 8192;

/**
 * The tokenizer with the pattern of tekken.json beside it, from which it was converted: some of Mistral's
 * folders have another one in tokenizer.json, which cuts texts wrongly.
 */
function withPatternOf(tekkenFile: string, tokenizer: JsonObject): JsonObject {
  const whole = tokenizer.pre_tokenizer as JsonObject | null;
  const stages = whole?.type === "Sequence" ? whole.pretokenizers : null;
  if (!Array.isArray(stages) || stages[0]?.type !== "Split" || !existsSync(tekkenFile)) return tokenizer;
  const head = withFile(tekkenFile, (descriptor, bytes) =>
    readExactly(tekkenFile, descriptor, 0, Math.min(headBytes, bytes)),
  );
  const quoted = /"pattern"\s*:\s*("(?:[^"\\]|\\.)*")/.exec(new TextDecoder().decode(head))?.[1];
  if (quoted === undefined) return tokenizer;
  const pattern = { Regex: naming(tekkenFile, () => JSON.parse(quoted) as string) };
  const pretokenizers = [{ ...(stages[0] as JsonObject), pattern }, ...stages.slice(1)];
  return { ...tokenizer, pre_tokenizer: { ...whole, pretokenizers } };
}

/** Advice for a folder with a tokenizer in another form. */
function insteadOf(folder: string): string {
  const names = statSync(folder, { throwIfNoEntry: false })?.isDirectory() ? readdirSync(folder) : [];
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
  if (text.startsWith("version https://git-lfs"))
    throw new TokenizerError(`${path}: is a pointer of Git LFS: \`git lfs pull\` fetches the file itself`);
  try {
    const value: unknown = JSON.parse(text);
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value as JsonObject;
  } catch (error) {
    throw new TokenizerError(`${path}: ${(error as Error).message}`);
  }
  throw new TokenizerError(`${path}: expected a JSON object`);
}
