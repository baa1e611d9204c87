/** Prompts that are to be filled in the middle, by the model's own tokens for it. */
import type { TokenId } from "../../base/token.ts";
import type { FillForm } from "../../text/fill.ts";
import type { GenerationOptions } from "../answer/generation.ts";
import { badRequest } from "../http/errors.ts";
import type { Prompt } from "../request/chat-message.ts";
import { type PromptServices, promptTokens, refuseBusy, refuseEnormous } from "../request/prompt.ts";
import type { ServedModel } from "../request/served-model.ts";

/** What stands around the text that is wanted, besides the prompt, which stands before it. */
export interface Fill {
  readonly form: FillForm;
  readonly suffix: string;
  /** The field that the suffix came in. */
  readonly param: string;
}

/** A text of another file, for the model to know. */
export interface FillExtra {
  readonly name: string;
  readonly text: string;
}

/** Null: there is no suffix. Throws 400 where the model's vocabulary has no tokens for one. */
export function fillOf(suffix: string | undefined, param: string, served: ServedModel): Fill | null {
  return suffix === undefined || suffix === "" ? null : { form: fillFormFor(served, param), suffix, param };
}

/** Throws 400 where the vocabulary has no tokens for it. */
export function fillFormFor({ fill }: ServedModel, param: string): FillForm {
  if (fill !== undefined && fill !== null) return fill;
  throw badRequest(
    `${param}: this model's vocabulary has no tokens for filling in the middle, so it can only go on with a prompt`,
    param,
  );
}

/** The model's tokens for filling end an answer as its end tokens do. */
export function endingFill(generation: GenerationOptions, fill: Fill | null): GenerationOptions {
  if (fill === null || generation.ignoreEos) return generation;
  return { ...generation, stopTokens: [...new Set([...generation.stopTokens, ...fill.form.ends])] };
}

/** What a prompt's answer goes on with, or, with `fill`, is filled into. */
export async function completionTokens(
  prompt: Prompt,
  fill: Fill | null,
  addSpecialTokens: boolean,
  services: PromptServices,
): Promise<readonly TokenId[]> {
  if (fill === null) return promptTokens(prompt, addSpecialTokens, services);
  const { form, suffix, param } = fill;
  refuseEnormous([suffix], param, services);
  // Control text of a program's source is text.
  const before = typeof prompt === "string" ? await plainTokens(prompt, false, "prompt", services) : prompt;
  const behind = await plainTokens(suffix, true, param, services);
  const start = addSpecialTokens ? services.tokenizer.encode("", { addSpecialTokens: true }) : [];
  const parts = [
    [form.prefix, ...before],
    [form.suffix, ...behind],
  ];
  const ordered = form.isSuffixFirst ? parts.reverse() : parts;
  return [...start, ...ordered.flat(), ...(form.middle === null ? [] : [form.middle])];
}

/**
 * Tokens of other files' texts, as many of the last ones as there is room for. Where the model has no token before a file's name,
 * a line tells where one ends, as llama-server writes it.
 */
export async function extraTokens(
  extras: readonly FillExtra[],
  { repository, file }: FillForm,
  room: number,
  services: PromptServices,
): Promise<{ readonly tokens: readonly TokenId[]; readonly taken: number }> {
  const head =
    repository === null
      ? []
      : [repository, ...(await plainTokens("myproject\n", true, "input_extra", services))];
  let tokens: TokenId[] = [];
  let taken = 0;
  for (const { name, text } of extras.toReversed()) {
    const title = file === null ? "\n\n--- snippet ---\n\n" : `${name}\n`;
    const own = await plainTokens(title + text, true, "input_extra", services);
    const all = [...(file === null ? [] : [file]), ...own, ...tokens];
    if (head.length + all.length > room) break;
    tokens = all;
    taken += 1;
  }
  return { tokens: taken === 0 ? [] : [...head, ...tokens], taken };
}

async function plainTokens(
  text: string,
  continues: boolean,
  param: string,
  services: PromptServices,
): Promise<readonly TokenId[]> {
  refuseEnormous([text], param, services);
  return services.encoder.encode(text, { addSpecialTokens: false, continues }).catch(refuseBusy);
}
