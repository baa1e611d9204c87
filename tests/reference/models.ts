/**
 * Reference models of this folder, for tests: their prompts and the answers of transformers. See README.md.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

export type PromptName = "long" | "branch" | "short";
/** Compute type of the engine: BUNTING_F32 or BUNTING_BF16. */
export type Compute = "f32" | "bf16";

export interface ReferenceModel {
  readonly name: string;
  /** Model folder, complete except for a tokenizer. */
  readonly dir: string;
  readonly vocab: number;
  /** Prompts; `branch` shares its first `branchAt` tokens with `long`. */
  readonly prompts: Readonly<Record<PromptName, readonly number[]>>;
  readonly branchAt: number;
  /**
   * Tokens that transformers' greedy decoding (float32, weights as stored) appends to each prompt, 32 per
   * prompt.
   */
  readonly greedy: Readonly<Record<PromptName, readonly number[]>>;
  /**
   * Returns transformers' float32 logits [vocab] after `position` of a prompt. Weights are as stored for f32,
   * or rounded to bf16 first.
   */
  logits(compute: Compute, prompt: PromptName, position: number): Float32Array;
  /**
   * Returns transformers' float32 hidden states of `long` after the final norm, [53, hidden], with weights as
   * stored.
   */
  hidden(): Float32Array;
}

export const referenceNames = [
  "llama3",
  "llama2",
  "mistral",
  "qwen2",
  "qwen3",
  "llama3-96",
  "qwen3-128",
] as const;

/** Models with head sizes that GPU kernels support. */
export const gpuReferenceNames: readonly ReferenceName[] = ["mistral", "qwen2", "llama3-96", "qwen3-128"];

export type ReferenceName = (typeof referenceNames)[number];

export function referenceModel(name: ReferenceName): ReferenceModel {
  const dir = join(import.meta.dir, name);
  const reference = JSON.parse(readFileSync(join(dir, "reference.json"), "utf8")) as Pick<
    ReferenceModel,
    "vocab" | "prompts" | "branchAt" | "greedy"
  >;
  const { vocab, prompts, branchAt } = reference;
  const exact = readFloats(join(dir, "logits.f32.bin"));
  const roundedFile = join(dir, "logits.bf16.bin");
  const rounded = existsSync(roundedFile) ? readFloats(roundedFile) : exact; // bf16 weights need no rounding

  // Rows of both files: every position of `long`, of `short`, and of `branch` from where it leaves `long`.
  const rowOf = (prompt: PromptName, position: number): number => {
    if (prompt === "long" || (prompt === "branch" && position < branchAt)) return position;
    const afterLong = prompts.long.length;
    return prompt === "short"
      ? afterLong + position
      : afterLong + prompts.short.length + (position - branchAt);
  };
  return {
    ...reference,
    name,
    dir,
    logits(compute, prompt, position) {
      const start = rowOf(prompt, position) * vocab;
      return (compute === "f32" ? exact : rounded).subarray(start, start + vocab);
    },
    hidden: () => readFloats(join(dir, "hidden.f32.bin")),
  };
}

/** Loads all reference models. */
export function referenceModels(): readonly ReferenceModel[] {
  return referenceNames.map(referenceModel);
}

function readFloats(file: string): Float32Array {
  const bytes = readFileSync(file);
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
}
