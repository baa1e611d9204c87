/** Prompts for filling in the middle (FIM), written with the model's own FIM tokens. */
import type { TokenId } from "../../base/token.ts";
import type { FillForm } from "../../text/fill.ts";
import type { GenerationOptions } from "../answer/generation.ts";
import { badRequest } from "../http/errors.ts";
import type { Prompt } from "../request/chat-message.ts";
import { type PromptServices, promptTokens, refuseBusy, refuseEnormous } from "../request/prompt.ts";
import type { ServedModel } from "../request/served-model.ts";

/** Text behind the gap of a FIM prompt. The prompt is the text before it. */
export interface Fill {
  readonly form: FillForm;
  readonly suffix: string;
  /** Name of the request field of the suffix. */
  readonly param: string;
}

/** Another file's text as context for the model. */
export interface FillExtra {
  readonly name: string;
  readonly text: string;
}

/** Null if there is no suffix. Throws 400 if the model's vocabulary has no FIM tokens. */
export function fillOf(suffix: string | undefined, param: string, served: ServedModel): Fill | null {
  return suffix === undefined || suffix === "" ? null : { form: fillFormFor(served, param), suffix, param };
}

/** Throws 400 if the model's vocabulary has no FIM tokens. */
export function fillFormFor({ fill }: ServedModel, param: string): FillForm {
  if (fill !== undefined && fill !== null) return fill;
  throw badRequest(
    `${param}: this model's vocabulary has no tokens for filling in the middle, so it can only continue a prompt`,
    param,
  );
}

/** Adds the FIM tokens that end an answer to the stop tokens. */
export function endingFill(generation: GenerationOptions, fill: Fill | null): GenerationOptions {
  if (fill === null || generation.ignoreEos) return generation;
  return { ...generation, stopTokens: [...new Set([...generation.stopTokens, ...fill.form.ends])] };
}

/** Tokens of a prompt to continue or, with `fill`, to fill in the middle. */
export async function completionTokens(
  prompt: Prompt,
  fill: Fill | null,
  addSpecialTokens: boolean,
  services: PromptServices,
): Promise<readonly TokenId[]> {
  if (fill === null) return promptTokens(prompt, addSpecialTokens, services);
  const { form, suffix, param } = fill;
  refuseEnormous([suffix], param, services);
  // A program's source may contain control texts: they are encoded as plain text.
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
 * Tokens of other files' texts: as many of the last ones as fit into `room`. Without a file-name token in the
 * vocabulary, a separator line precedes each file, as in llama-server.
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
