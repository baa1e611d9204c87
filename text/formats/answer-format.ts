import type { CallForm } from "../../grammar/tools/call-form.ts";
import type { ControlTexts } from "../control-text.ts";
import { callFormIn } from "./call-forms.ts";
import { type ThinkingForm, thinkingForm, thinkingMarksIn } from "./thinking.ts";

/** How a model writes what in its answers is not text: told from its chat template, and from the prompt that it continues. */
export interface AnswerFormat {
  /** Null: calls cannot be read. */
  readonly calls: CallForm | null;
  /** Null: there is no section of thoughts. */
  readonly thinking: ThinkingForm | null;
}

/** Everything is text. */
export const plainFormat: AnswerFormat = { calls: null, thinking: null };

/** Of an answer to a prompt that a chat template (its Jinja) wrote. `thoughtsMax`: tokens of thoughts. */
export function answerFormat(template: string, prompt: string, thoughtsMax: number | null): AnswerFormat {
  const marks = thinkingMarksIn(template);
  return {
    calls: callFormIn(template),
    thinking: marks === null ? null : thinkingForm(marks, prompt, thoughtsMax),
  };
}

/** Marks of a form that are control texts. */
export function controlTextsIn(form: CallForm | ThinkingForm | null, controlTexts: ControlTexts): string[] {
  const marks = form === null ? [] : [...Object.values(form), ...argumentMarks(form)];
  const found = marks.flatMap((mark: unknown) => (typeof mark === "string" ? controlTexts.split(mark) : []));
  return [...new Set(found.flatMap((piece) => (piece.kind === "control" ? [piece.text] : [])))];
}

function argumentMarks(form: CallForm | ThinkingForm): unknown[] {
  return "arguments" in form ? Object.values(form.arguments) : [];
}
