import { openLength, trimmedEnd } from "./call-reader.ts";
import { cohereThinking } from "./cohere.ts";
import { gemmaThinking } from "./gemma.ts";
import { gptOssThinking } from "./gpt-oss.ts";
import type { ThinkingMarks } from "./thinking-marks.ts";

/** The section of an answer in which a model thinks before it speaks: at its beginning, between two marks. */
export interface ThinkingForm extends ThinkingMarks {
  /** The prompt ends with the opening mark. Else a section may come or not. */
  readonly isOpen: boolean;
  /** Tokens of thoughts, after which the closing mark comes; null: any number. */
  readonly tokensMax: number | null;
}

/** Those that models are trained with. */
const known: readonly ThinkingMarks[] = [
  { opening: "<think>", closing: "</think>" },
  { opening: "<seed:think>", closing: "</seed:think>" },
  { opening: "[THINK]", closing: "[/THINK]" },
  cohereThinking,
  { opening: "◁think▷", closing: "◁/think▷" },
  gptOssThinking,
  gemmaThinking,
];

/** Those of a model, which its chat template names; null: it does not think. */
export function thinkingMarksIn(template: string): ThinkingMarks | null {
  return (
    known.find(({ opening, closing }) => template.includes(opening) || template.includes(closing)) ?? null
  );
}

/** How an answer to this prompt begins. Null: the prompt has closed the section already. */
export function thinkingForm(
  marks: ThinkingMarks,
  prompt: string,
  tokensMax: number | null,
): ThinkingForm | null {
  const end = prompt.trimEnd();
  // Where text has a mark of its own, what closes thoughts is also the end of every prompt.
  if (marks.beforeText === undefined && end.endsWith(marks.closing)) return null;
  return { ...marks, isOpen: end.endsWith(marks.opening), tokensMax };
}

/** What was read of an answer: thoughts, and what follows them. */
export interface ReadThinking {
  readonly reasoning: string;
  readonly answer: string;
}

/**
 * Tells thoughts from the answer after them, in text that arrives in pieces. Marks belong to neither, nor does the white space
 * at both ends of the thoughts, nor do line breaks before the answer. What is told does not depend on how the text was cut.
 */
export class ThinkingReader {
  readonly #form: ThinkingForm;
  #state: "before" | "begins" | "open" | "closed" | "answer";
  readonly #beforeText: string;
  /** Not told yet. */
  #held = "";

  constructor(form: ThinkingForm) {
    this.#form = form;
    this.#beforeText = form.beforeText ?? "";
    this.#state = form.isOpen ? "begins" : "before";
  }

  /** What was read last is a thought. */
  get isOpen(): boolean {
    return this.#state === "begins" || this.#state === "open";
  }

  push(text: string): ReadThinking {
    const told = { reasoning: "", answer: "" };
    for (let rest = text; rest !== ""; ) {
      const all = this.#held + rest;
      this.#held = "";
      rest = this.#read(all, told);
    }
    return told;
  }

  /** The text ended. */
  end(): ReadThinking {
    const held = this.#held;
    this.#held = "";
    if (this.isOpen) return { reasoning: this.#state === "open" ? held.trimEnd() : "", answer: "" };
    return { reasoning: "", answer: held };
  }

  /** What follows the thoughts, or stands in their place, less the mark of text. */
  #beginText(text: string): string {
    const mark = this.#beforeText;
    if (mark.startsWith(text) && text !== mark) {
      this.#held = text;
      return "";
    }
    this.#state = "answer";
    return text.startsWith(mark) ? text.slice(mark.length) : text;
  }

  /** Returns what is left to read. */
  #read(all: string, told: { reasoning: string; answer: string }): string {
    const { opening, closing } = this.#form;
    switch (this.#state) {
      case "before": {
        const text = all.trimStart();
        if (text.startsWith(opening)) {
          this.#state = "begins";
          return text.slice(opening.length);
        }
        if (opening.startsWith(text)) {
          this.#held = all;
          return "";
        }
        if (this.#beforeText === "") {
          this.#state = "answer";
          return all;
        }
        return this.#beginText(text);
      }
      case "begins": {
        const text = all.trimStart();
        if (text !== "") this.#state = "open";
        return text;
      }
      case "open": {
        const at = all.indexOf(closing);
        const end = trimmedEnd(all, at < 0 ? all.length - openLength([closing], all) : at);
        told.reasoning += all.slice(0, end);
        if (at < 0) {
          this.#held = all.slice(end);
          return "";
        }
        this.#state = "closed";
        return all.slice(at + closing.length);
      }
      case "closed": {
        const text = all.replace(/^[\r\n]+/, "");
        return text === "" ? "" : this.#beginText(text);
      }
      case "answer": {
        const mark = this.#form.afterText ?? "";
        const at = mark === "" ? -1 : all.indexOf(mark);
        const end = at < 0 ? all.length - openLength(mark === "" ? [] : [mark], all) : at;
        told.answer += all.slice(0, end);
        if (at >= 0) return all.slice(at + mark.length);
        this.#held = all.slice(end);
        return "";
      }
    }
  }
}
