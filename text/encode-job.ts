/** What makes tokens of texts and chats, on whichever thread. */

import { plainText } from "./control-text.ts";
import type { ChatMessage, RenderOptions } from "./conversation/messages.ts";
import type { ModelText } from "./model-text.ts";
import type { ChatTemplate } from "./template.ts";
import { TemplateError } from "./template-error.ts";
import type { EncodeOptions, Tokenizer } from "./tokenizer.ts";

export interface TextJob {
  readonly kind: "text";
  readonly text: string;
  readonly options: EncodeOptions;
}

/** Messages, to be written by the model's chat template. */
export interface ChatJob {
  readonly kind: "chat";
  readonly messages: readonly ChatMessage[];
  readonly options: RenderOptions;
  /** A text that has more tokens, however it is cut, is not made into tokens: that would take long. */
  readonly tokensMax: number;
  /** Otherwise the text is enough. */
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
      /** As a person would read it. */
      readonly text: string;
      /** Empty where none are wanted. */
      readonly tokens: Int32Array<ArrayBuffer>;
      /** Fields that the template was given otherwise than they were sent. */
      readonly ignored: readonly string[];
    }
  | { readonly kind: "tooLong"; readonly tokensAtLeast: number }
  /** The template refused the messages, or ran away. */
  | { readonly kind: "refused"; readonly reason: string };

export type OutcomeOf<Job extends EncodeJob> = Job extends ChatJob ? ChatOutcome : TextOutcome;

/** Chats are only for models with a template. `isWanted` is asked now and then: what is not wanted any more is refused. */
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
    return { kind: "written", text, tokens, ignored: rendered.ignored };
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error;
    return { kind: "refused", reason: error.message };
  }
}

/** What a template does with a message, three values, takes as long as making tokens of 48 UTF-16 units of text. */
const valueUnits = 16;

/** Whether a job takes longer than making tokens of a text of so many UTF-16 units. */
export function takesLonger(job: EncodeJob, units: number): boolean {
  return unitsOf(job, units) > units;
}

/** UTF-16 units of a text that takes as long as a job; counts no further than above `max`. */
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
