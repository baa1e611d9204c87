/** Checks and plans a draft model for speculative decoding beside its target model. */

import { PAGE_TOKENS, servedShape } from "../../gpu/native/open.ts";
import type { ComputeOptions, EngineLimits, NativeLibrary } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import { ModelError } from "../../model/model-error.ts";
import type { ModelFolder } from "../../model/model-folder.ts";
import type { ModelShape } from "../../model/shape.ts";
import { openTokenizer } from "../../text/model-text.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { type Config, ConfigError } from "../config.ts";

export interface DraftPlan {
  readonly folder: ModelFolder;
  readonly compute: ComputeOptions;
  readonly shape: ModelShape;
  readonly weightBytes: number;
  readonly pageBytes: number;
  /** Folders for packed weights, best first. */
  readonly packedFolders: readonly string[];
}

/**
 * Maximum difference of the two vocabulary sizes as a share of the target's: embeddings may have padding
 * rows.
 */
const LONGER_SHARE = 0.01;

/** Throws ConfigError if `--speculate` and `--draft-model` contradict each other. */
export function expectDraftChoice({ speculate, draftModel }: Pick<Config, "speculate" | "draftModel">): void {
  if (draftModel === null && speculate === "draft")
    throw new ConfigError(
      "--speculate draft: no draft model is named; give one with --draft-model, or use --speculate auto.",
    );
  if (draftModel !== null && speculate !== "draft" && speculate !== "auto")
    throw new ConfigError(
      `--draft-model goes with --speculate auto or draft, not with ${speculate}; leave one of the two out.`,
    );
}

/** Replaces the name of the draft model, if one is named, by its path. */
export async function withDraftPath(
  config: Config,
  pathOf: (model: string, config: Config) => Promise<string> | string,
): Promise<Config> {
  const { draftModel } = config;
  return draftModel === null ? config : { ...config, draftModel: await pathOf(draftModel, config) };
}

/** Opens the draft model; null if none is configured. Throws ConfigError if it cannot draft for `target`. */
export function openDraftModel(
  config: Pick<Config, "speculate" | "draftModel">,
  target: ModelFolder,
  isGpu: boolean,
): ModelFolder | null {
  expectDraftChoice(config);
  const { draftModel } = config;
  if (draftModel === null) return null;
  const refuse = (reason: string): never => {
    throw new ConfigError(`--draft-model ${draftModel}: ${reason}.`);
  };
  if (isGpu) refuse("a GPU computes no draft model; use --device cpu, or leave the draft model out");
  if (target.config.shape.encoder !== undefined)
    refuse("an encoder draws no tokens, for which one could draft");
  const draft = openedDraft(draftModel);
  const { encoder, states } = draft.config.shape;
  if (encoder !== undefined) refuse("an encoder draws no tokens");
  if (states !== undefined)
    refuse(`models of the family ${draft.config.family} have recurrent states, with which none drafts yet`);
  if (draft.config.isHeadless) refuse("it has no vocabulary projection, and so draws no tokens");
  const different = differentToken(openTokenizer(target.dir), openTokenizer(draft.dir));
  if (different !== null) refuse(`${different}; a draft model has the vocabulary of the model`);
  return draft;
}

function openedDraft(path: string): ModelFolder {
  try {
    return openModelFolder(path);
  } catch (error) {
    if (!(error instanceof ModelError)) throw error;
    const { file, message, reason } = error;
    throw new ConfigError(`--draft-model ${path}: ${file === path ? reason : message}.`);
  }
}

/** Describes the first token in which the vocabularies differ; null if they agree. */
export function differentToken(target: Tokenizer, draft: Tokenizer): string | null {
  const both = Math.min(target.vocabSize, draft.vocabSize);
  const textOf = (tokenizer: Tokenizer, token: number): string =>
    JSON.stringify(new TextDecoder().decode(tokenizer.bytesOf(token)));
  for (let token = 0; token < both; token++) {
    if (Buffer.compare(target.bytesOf(token), draft.bytesOf(token)) === 0) continue;
    return `its token ${token} is ${textOf(draft, token)}, and the model's is ${textOf(target, token)}`;
  }
  if (Math.abs(target.vocabSize - draft.vocabSize) <= LONGER_SHARE * target.vocabSize) return null;
  return draft.vocabSize > both
    ? `its token ${both} is ${textOf(draft, both)}, and the model has no such token`
    : `it has no token ${both}, and the model's is ${textOf(target, both)}`;
}

/** Plans the sizes of a draft model. `contextMax`: context of the target model, in tokens. */
export function planDraft(
  library: NativeLibrary,
  folder: ModelFolder,
  compute: ComputeOptions,
  contextMax: number,
  packedFolders: (weightBytes: number) => readonly string[],
): DraftPlan {
  const shape = servedShape(folder.config.shape, contextMax);
  const { weightBytes, pageBytes } = library.modelPlan(shape, compute, PAGE_TOKENS);
  return { folder, compute, shape, weightBytes, pageBytes, packedFolders: packedFolders(weightBytes) };
}

/** Workspace bytes of a draft model in an engine with these limits; 0 without a draft model. */
export function draftWorkspace(
  library: NativeLibrary,
  draft: DraftPlan | null,
  limits: EngineLimits,
): number {
  return draft === null ? 0 : library.draftPlan(draft.shape, draft.compute, limits);
}
