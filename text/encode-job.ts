/** Jobs that render and tokenize prompts, on any thread. */

import { plainText } from "./control-text.ts";
import type { ChatMessage, RenderOptions } from "./conversation/messages.ts";
import { outlineOf, type PromptPart } from "./conversation/prompt-outline.ts";
import type { ModelText } from "./model-text.ts";
import type { ChatTemplate } from "./template.ts";
import { TemplateError } from "./template-error.ts";
import type { EncodeOptions, Tokenizer } from "./tokenizer.ts";

export interface TextJob {
  readonly kind: "text";
  readonly text: string;
  readonly options: EncodeOptions;
}

/** Messages to be rendered with the model's chat template. */
export interface ChatJob {
  readonly kind: "chat";
  readonly messages: readonly ChatMessage[];
  readonly options: RenderOptions;
  /**
   * Maximum tokens of the prompt. A text that must exceed it, whatever its tokens, is refused without
   * tokenization, which would take long.
   */
  readonly tokensMax: number;
  /** False if only the text is needed. */
  readonly wantsTokens: boolean;
}

export type EncodeJob = TextJob | ChatJob;

export interface TextOutcome {
  readonly kind: "encoded";
  readonly tokens: Int32Array<ArrayBuffer>;
}

export type ChatOutcome =
  | {
      readonly kind: "written";
      /** The prompt's text, without stand-ins. */
      readonly text: string;
      /** Empty if the job needs no tokens. */
      readonly tokens: Int32Array<ArrayBuffer>;
      /** Positions of the messages in the text; empty if the job needs no tokens. */
      readonly outline: readonly PromptPart[];
      /** Fields whose value in the prompt differs from the one that the client sent. */
      readonly ignored: readonly string[];
    }
  | { readonly kind: "tooLong"; readonly tokensAtLeast: number }
  /** The template refused the messages, or exceeded its limits. */
  | { readonly kind: "refused"; readonly reason: string };

export type OutcomeOf<Job extends EncodeJob> = Job extends ChatJob ? ChatOutcome : TextOutcome;

/**
 * Runs a job. Chats require a template. Calls `isWanted` now and then, and refuses a chat once that returns
 * false.
 */
export function runJob(
  job: EncodeJob,
  { tokenizer, template }: ModelText,
  isWanted: () => boolean = () => true,
): TextOutcome | ChatOutcome {
  if (job.kind === "chat") return writeChat(job, tokenizer, template!, isWanted);
  return { kind: "encoded", tokens: Int32Array.from(tokenizer.encode(job.text, job.options)) };
}

function writeChat(
  job: ChatJob,
  tokenizer: Tokenizer,
  template: ChatTemplate,
  isWanted: () => boolean,
): ChatOutcome {
  try {
    const rendered = template.write(job.messages, job.options, isWanted);
    const text = plainText(rendered);
    const tokensAtLeast = tokenizer.tokensAtLeast(Buffer.byteLength(text));
    if (tokensAtLeast > job.tokensMax) return { kind: "tooLong", tokensAtLeast };
    const tokens = Int32Array.from(job.wantsTokens ? tokenizer.encodeRendered(rendered) : []);
    const hasTools = (job.options.tools?.length ?? 0) > 0;
    const outline = job.wantsTokens ? outlineOf(text, job.messages, hasTools) : [];
    return { kind: "written", text, tokens, outline, ignored: rendered.ignored };
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error;
    return { kind: "refused", reason: error.message };
  }
}

/** Cost of one value in a template, in UTF-16 units of text to tokenise. A message has three values. */
const valueUnits = 16;

/** True if the job takes longer than tokenizing `units` UTF-16 units of text. */
export function takesLonger(job: EncodeJob, units: number): boolean {
  return unitsOf(job, units) > units;
}

/** Cost of a job in UTF-16 units of text to tokenise; stops counting above `max`. */
export function unitsOf(job: EncodeJob, max: number): number {
  if (job.kind === "text") return job.text.length;
  const { tools, templateKwargs } = job.options;
  return unitsIn([job.messages, tools, templateKwargs], max);
}

function unitsIn(value: unknown, max: number): number {
  if (typeof value === "string") return valueUnits + value.length;
  if (typeof value !== "object" || value === null) return valueUnits;
  let units = valueUnits;
  for (const member of Array.isArray(value) ? value : Object.values(value)) {
    if (units > max) break;
    units += unitsIn(member, max - units);
  }
  return units;
}
