/** Hugging Face repositories for Ollama's model names. */

import type { PublishedModel } from "../../model/hub-cache.ts";

interface Row {
  /** Repository; `*` stands for the value of a size. */
  readonly repository: string;
  readonly quant: string;
  /**
   * Sizes as Ollama writes them, first the one for a name without a tag. Values are the hub's spelling, or whole
   * repositories where these have no common name.
   */
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
  "qwen3.5": {
    repository: "unsloth/Qwen3.5-*-GGUF",
    quant: q4,
    sizes: { "9b": "9B", "0.8b": "0.8B", "2b": "2B", "4b": "4B", "27b": "27B", "35b": "35B-A3B" },
  },
  "qwen3.6": {
    repository: "*",
    quant: q4,
    sizes: { "35b": "ggml-org/Qwen3.6-35B-A3B-GGUF", "27b": "unsloth/Qwen3.6-27B-GGUF" },
  },
  "qwen3-coder": {
    repository: "unsloth/Qwen3-Coder-*-Instruct-GGUF",
    quant: q4,
    sizes: { "30b": "30B-A3B" },
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
  "llama3.3": {
    repository: "bartowski/Llama-3.3-*-Instruct-GGUF",
    quant: q4,
    sizes: { "70b": "70B" },
  },
  gemma4: {
    repository: "*-it-GGUF",
    quant: q4,
    sizes: {
      e4b: "unsloth/gemma-4-E4B",
      e2b: "unsloth/gemma-4-E2B",
      "12b": "unsloth/gemma-4-12b",
      "26b": "ggml-org/gemma-4-26B-A4B",
      "31b": "unsloth/gemma-4-31B",
    },
  },
  gemma3n: {
    repository: "unsloth/gemma-3n-*-it-GGUF",
    quant: q4,
    sizes: { e4b: "E4B", e2b: "E2B" },
  },
  gemma3: {
    repository: "unsloth/gemma-3-*-it-GGUF",
    quant: q4,
    sizes: { "4b": "4b", "270m": "270m", "1b": "1b", "12b": "12b", "27b": "27b" },
  },
  gemma2: {
    repository: "bartowski/gemma-2-*-it-GGUF",
    quant: q4,
    sizes: { "9b": "9b", "2b": "2b", "27b": "27b" },
  },
  "deepseek-r1": {
    repository: "*-GGUF",
    quant: q4,
    sizes: {
      "8b": "unsloth/DeepSeek-R1-0528-Qwen3-8B",
      "1.5b": "bartowski/DeepSeek-R1-Distill-Qwen-1.5B",
      "7b": "bartowski/DeepSeek-R1-Distill-Qwen-7B",
      "14b": "bartowski/DeepSeek-R1-Distill-Qwen-14B",
      "32b": "bartowski/DeepSeek-R1-Distill-Qwen-32B",
      "70b": "bartowski/DeepSeek-R1-Distill-Llama-70B",
    },
  },
  mistral: {
    repository: "bartowski/Mistral-*-Instruct-v0.3-GGUF",
    quant: q4,
    sizes: { "7b": "7B" },
  },
  "mistral-small3.2": {
    repository: "unsloth/Mistral-Small-3.2-*-Instruct-2506-GGUF",
    quant: q4,
    sizes: { "24b": "24B" },
  },
  phi4: {
    repository: "bartowski/*-GGUF",
    quant: q4,
    sizes: { "14b": "phi-4" },
  },
  smollm2: {
    repository: "bartowski/SmolLM2-*-Instruct-GGUF",
    quant: q4,
    sizes: { "1.7b": "1.7B", "360m": "360M", "135m": "135M" },
  },
  "glm-4.7-flash": {
    repository: "unsloth/GLM-4.7-Flash-GGUF",
    quant: q4,
    sizes: { q4_k_m: "" },
  },
  "command-r": {
    repository: "bartowski/c4ai-*-GGUF",
    quant: q4,
    sizes: { "35b": "command-r-08-2024" },
  },
  "aya-expanse": {
    repository: "bartowski/aya-expanse-*-GGUF",
    quant: q4,
    sizes: { "8b": "8b", "32b": "32b" },
  },
  "exaone3.5": {
    repository: "bartowski/EXAONE-3.5-*-Instruct-GGUF",
    quant: q4,
    sizes: { "7.8b": "7.8B", "2.4b": "2.4B", "32b": "32B" },
  },
  "nemotron-mini": {
    repository: "bartowski/Nemotron-Mini-*-Instruct-GGUF",
    quant: q4,
    sizes: { "4b": "4B" },
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
