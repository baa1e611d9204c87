/** Plan of a draft model beside the model that it drafts for. */

import { PAGE_TOKENS, servedShape } from "../../gpu/native/open.ts";
import type { ComputeOptions, EngineLimits, NativeLibrary } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
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

/** Tokens by which one vocabulary may be longer, as a share of the other: rows that pad an embedding. */
const LONGER_SHARE = 0.01;

/** Throws ConfigError if the choice of drafts and the draft model do not go together. */
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

/** The settings with the path of the draft model, if one is named. */
export async function withDraftPath(
  config: Config,
  pathOf: (model: string, config: Config) => Promise<string> | string,
): Promise<Config> {
  const { draftModel } = config;
  return draftModel === null ? config : { ...config, draftModel: await pathOf(draftModel, config) };
}

/** Opens the draft model of a server; null: it has none. Throws ConfigError if it cannot draft for the model. */
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
  const draft = openModelFolder(draftModel);
  const { encoder, states } = draft.config.shape;
  if (encoder !== undefined) refuse("an encoder draws no tokens");
  if (states !== undefined)
    refuse(`models of the family ${draft.config.family} have recurrent states, with which none drafts yet`);
  if (draft.config.isHeadless) refuse("it has no vocabulary projection, and so draws no tokens");
  const different = differentToken(openTokenizer(target.dir), openTokenizer(draft.dir));
  if (different !== null) refuse(`${different}; a draft model has the vocabulary of the model`);
  return draft;
}

/** First token in which two vocabularies differ, in words; null: there is none. */
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

/** Sizes of a draft model. `contextMax`: of the model. */
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

/** Workspace of a draft model in an engine with these limits; 0 for none. */
export function draftWorkspace(
  library: NativeLibrary,
  draft: DraftPlan | null,
  limits: EngineLimits,
): number {
  return draft === null ? 0 : library.draftPlan(draft.shape, draft.compute, limits);
}
