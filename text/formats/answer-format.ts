import type { CallForm } from "../../grammar/tools/call-form.ts";
import type { ControlTexts } from "../control-text.ts";
import { callFormIn } from "./call-forms.ts";
import { type ThinkingForm, thinkingForm, thinkingMarksIn } from "./thinking.ts";

/** Format of a response's tool calls and reasoning, derived from the chat template and the prompt. */
export interface AnswerFormat {
  /** Null: calls cannot be parsed. */
  readonly calls: CallForm | null;
  /** Null: the response has no reasoning section. */
  readonly thinking: ThinkingForm | null;
}

/** Format of responses that are plain text. */
export const plainFormat: AnswerFormat = { calls: null, thinking: null };

/**
 * Format of the response to a prompt that the chat template (Jinja) rendered. `thoughtsMax`: maximum
 * reasoning tokens.
 */
export function answerFormat(template: string, prompt: string, thoughtsMax: number | null): AnswerFormat {
  const marks = thinkingMarksIn(template);
  return {
    calls: callFormIn(template),
    thinking: marks === null ? null : thinkingForm(marks, prompt, thoughtsMax),
  };
}

/** Delimiters of a form that are control texts. */
export function controlTextsIn(form: CallForm | ThinkingForm | null, controlTexts: ControlTexts): string[] {
  const marks = form === null ? [] : [...Object.values(form), ...argumentMarks(form)];
  const found = marks.flatMap((mark: unknown) => (typeof mark === "string" ? controlTexts.split(mark) : []));
  return [...new Set(found.flatMap((piece) => (piece.kind === "control" ? [piece.text] : [])))];
}

function argumentMarks(form: CallForm | ThinkingForm): unknown[] {
  return "arguments" in form ? Object.values(form.arguments) : [];
}
