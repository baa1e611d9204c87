/** Hugging Face repositories for Ollama's model names. */

import type { PublishedModel } from "../../model/hub-cache.ts";

interface Row {
  /** Repository; `*` stands for the size as the hub writes it. */
  readonly repository: string;
  readonly quant: string;
  /** Sizes as Ollama writes them, first the one for a name without a tag; values are the hub's spelling. */
  readonly sizes: Readonly<Record<string, string>>;
}

const q4 = "Q4_K_M";

const rows: Readonly<Record<string, Row>> = {
  qwen3: {
    repository: "unsloth/Qwen3-*-GGUF",
    quant: q4,
    sizes: {
      "8b": "8B",
      "0.6b": "0.6B",
      "1.7b": "1.7B",
      "4b": "4B",
      "14b": "14B",
      "30b": "30B-A3B",
      "32b": "32B",
    },
  },
  "qwen2.5": {
    repository: "bartowski/Qwen2.5-*-Instruct-GGUF",
    quant: q4,
    sizes: {
      "7b": "7B",
      "0.5b": "0.5B",
      "1.5b": "1.5B",
      "3b": "3B",
      "14b": "14B",
      "32b": "32B",
      "72b": "72B",
    },
  },
  "qwen2.5-coder": {
    repository: "bartowski/Qwen2.5-Coder-*-Instruct-GGUF",
    quant: q4,
    sizes: { "7b": "7B", "0.5b": "0.5B", "1.5b": "1.5B", "3b": "3B", "14b": "14B", "32b": "32B" },
  },
  "llama3.2": {
    repository: "bartowski/Llama-3.2-*-Instruct-GGUF",
    quant: q4,
    sizes: { "3b": "3B", "1b": "1B" },
  },
  "llama3.1": {
    repository: "bartowski/Meta-Llama-3.1-*-Instruct-GGUF",
    quant: q4,
    sizes: { "8b": "8B", "70b": "70B" },
  },
  gemma3: {
    repository: "unsloth/gemma-3-*-it-GGUF",
    quant: q4,
    sizes: { "4b": "4b", "270m": "270m", "1b": "1b", "12b": "12b", "27b": "27b" },
  },
  "gpt-oss": {
    repository: "ggml-org/gpt-oss-*-GGUF",
    quant: "mxfp4",
    sizes: { "20b": "20b", "120b": "120b" },
  },
};

/** Model for one of Ollama's names, such as `qwen3:0.6b`; null if the table lacks it. */
export function ollamaModel(text: string): PublishedModel | null {
  const [, family = "", tag = "latest"] = /^([\w.-]+)(?::([\w.-]+))?$/.exec(text.toLowerCase()) ?? [];
  const row = Object.hasOwn(rows, family) ? rows[family]! : null;
  if (row === null) return null;
  const size = tag === "latest" ? Object.keys(row.sizes)[0]! : tag;
  const written = Object.hasOwn(row.sizes, size) ? row.sizes[size]! : null;
  if (written === null) return null;
  return { name: row.repository.replace("*", written), revision: "main", variant: row.quant };
}

/** Names in the table, for messages: "qwen3:0.6b". */
export function ollamaNames(): readonly string[] {
  return Object.entries(rows).flatMap(([family, { sizes }]) =>
    Object.keys(sizes).map((size) => `${family}:${size}`),
  );
}
