/** Small random encoders, with what sentence-transformers and tokenizers make of them (encoders.py). */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { TokenId } from "../../base/token.ts";

/** Contents of expected.json. */
export interface ExpectedOfEncoder {
  readonly texts: readonly string[];
  readonly tokens: readonly TokenId[][];
  readonly vectors?: readonly number[][];
  /** Vector of the first text with the prompt "query". */
  readonly query?: readonly number[];
  readonly pairs?: readonly [string, string][];
  readonly pairTokens?: readonly TokenId[][];
  readonly scores?: readonly number[];
}

const root = join(import.meta.dir, "encoders");

export interface EncoderFolder {
  readonly name: string;
  readonly dir: string;
}

export function encoderFolders(): readonly EncoderFolder[] {
  const names = readdirSync(root).filter((name) => existsSync(join(root, name, "expected.json")));
  return names.toSorted().map((name) => ({ name, dir: join(root, name) }));
}

export function encoderFolder(name: string): string {
  return join(root, name);
}

export function expectedOfEncoder(name: string): ExpectedOfEncoder {
  return JSON.parse(readFileSync(join(root, name, "expected.json"), "utf8")) as ExpectedOfEncoder;
}

/** GGUF file of the model that llama.cpp's converter made; null if there is none. */
export function encoderFile(name: string): string | null {
  const file = join(root, name, "f16.gguf");
  return existsSync(file) ? file : null;
}

/** GGUF file of a small model of Qwen3-Reranker's kind, with what transformers makes of pairs (rerankers_gguf.py). */
export function qwen3Reranker() {
  const dir = join(import.meta.dir, "qwen3-reranker");
  const expected = JSON.parse(readFileSync(join(dir, "expected.json"), "utf8")) as {
    readonly pairs: readonly [string, string][];
    readonly tokens: readonly TokenId[][];
    readonly scores: readonly number[];
  };
  return { file: join(dir, "f16.gguf"), ...expected };
}
