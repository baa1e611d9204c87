import { openLength, trimmedEnd } from "./call-reader.ts";

/** Delimiters of reasoning. */
export interface ThinkingMarks {
  readonly opening: string;
  readonly closing: string;
  /** Delimiter before an answer's text, with or without reasoning; absent: none. */
  readonly beforeText?: string;
  /** Optional delimiter after the text; absent: none. */
  readonly afterText?: string;
  /** True if the delimiters of text are tags: both are optional, and line breaks inside them are no text. */
  readonly hasTags?: true;
}

/** Section of reasoning at the beginning of an answer, between two delimiters. */
export interface ThinkingForm extends ThinkingMarks {
  /** True if the prompt ends with the opening delimiter; else the section is optional. */
  readonly isOpen: boolean;
  /** Reasoning tokens before the closing delimiter is forced; null: no limit. */
  readonly tokensMax: number | null;
}

/** Delimiters of reasoning and of the answer, a tag. */
function tags(name: string): ThinkingMarks {
  const [beforeText, afterText] = [`<${name}>`, `</${name}>`];
  return { opening: "<think>", closing: "</think>", beforeText, afterText, hasTags: true };
}

/**
 * Delimiters of models whose whole response is in tags, by a text of their templates: Hunyuan and KAT, ERNIE,
 * Granite 3. Other templates use the same tags for results of calls.
 */
const tagged: readonly (readonly [text: string, marks: ThinkingMarks])[] = [
  [".split('<answer>", tags("answer")],
  ["<global_setting>", tags("response")],
  ["between <response></response>", tags("response")],
];

/** Delimiters that models are trained with. */
const known: readonly ThinkingMarks[] = [
  { opening: "<think>", closing: "</think>" },
  { opening: "<seed:think>", closing: "</seed:think>" },
  { opening: "[THINK]", closing: "[/THINK]" },
  // Cohere's reasoning, followed by calls or by text, which has delimiters too.
  {
    opening: "<|START_THINKING|>",
    closing: "<|END_THINKING|>",
    beforeText: "<|START_RESPONSE|>",
    afterText: "<|END_RESPONSE|>",
  },
  { opening: "◁think▷", closing: "◁/think▷" },
  // Reasoning of gpt-oss: a message of its own, as is the answer's text.
  {
    opening: "<|channel|>analysis<|message|>",
    closing: "<|end|><|start|>assistant",
    beforeText: "<|channel|>final<|message|>",
  },
  // Reasoning of Apertus.
  { opening: "<|inner_prefix|>", closing: "<|inner_suffix|>" },
  // Reasoning of Gemma 4, a channel.
  { opening: "<|channel>thought", closing: "<channel|>" },
];

/** Delimiters of a model's reasoning, as in its chat template; null: it does not reason. */
export function thinkingMarksIn(template: string): ThinkingMarks | null {
  const shows = ({ opening, closing }: ThinkingMarks): boolean =>
    template.includes(opening) || template.includes(closing);
  const inTags = tagged.find(([text, marks]) => template.includes(text) && shows(marks));
  return inTags?.[1] ?? known.find(shows) ?? null;
}

/** Reasoning section of the response to this prompt. Null: the prompt has closed the section already. */
export function thinkingForm(
  marks: ThinkingMarks,
  prompt: string,
  tokensMax: number | null,
): ThinkingForm | null {
  const end = prompt.trimEnd();
  // For models with a delimiter before text, the closing delimiter also ends every prompt.
  if (marks.beforeText === undefined && end.endsWith(marks.closing)) return null;
  return { ...marks, isOpen: end.endsWith(marks.opening), tokensMax };
}

/** Parsed text: reasoning, and the answer after it. */
export interface ReadThinking {
  readonly reasoning: string;
  readonly answer: string;
}

/**
 * Separates reasoning from the answer after it, in text that arrives in pieces. The output has no delimiters,
 * no white space at both ends of the reasoning, and no line breaks before the answer. It does not depend on
 * how the text was split.
 */
export class ThinkingReader {
  readonly #form: ThinkingForm;
  #state: "before" | "begins" | "open" | "closed" | "tagged" | "answer";
  readonly #beforeText: string;
  /** Text that was held back. */
  #held = "";

  constructor(form: ThinkingForm) {
    this.#form = form;
    this.#beforeText = form.beforeText ?? "";
    this.#state = form.isOpen ? "begins" : "before";
  }

  /** True if the last text read was reasoning. */
  get isOpen(): boolean {
    return this.#state === "begins" || this.#state === "open";
  }

  push(text: string): ReadThinking {
    const emitted = { reasoning: "", answer: "" };
    for (let rest = text; rest !== ""; ) {
      const all = this.#held + rest;
      this.#held = "";
      rest = this.#read(all, emitted);
    }
    return emitted;
  }

  /** Ends the text and emits the rest. */
  end(): ReadThinking {
    const held = this.#held;
    this.#held = "";
    if (this.isOpen) return { reasoning: this.#state === "open" ? held.trimEnd() : "", answer: "" };
    return { reasoning: "", answer: held };
  }

  /** Text after the reasoning, or in place of it, without its delimiter. */
  #beginText(text: string): string {
    const mark = this.#beforeText;
    if (mark.startsWith(text) && text !== mark) {
      this.#held = text;
      return "";
    }
    const isMarked = mark !== "" && text.startsWith(mark);
    this.#state = isMarked && this.#form.hasTags ? "tagged" : "answer";
    return isMarked ? text.slice(mark.length) : text;
  }

  /** Reads text. Returns the rest. */
  #read(all: string, emitted: { reasoning: string; answer: string }): string {
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
        emitted.reasoning += all.slice(0, end);
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
      case "tagged": {
        const text = all.replace(/^[\r\n]+/, "");
        if (text !== "") this.#state = "answer";
        return text;
      }
      case "answer": {
        const { afterText: mark = "", hasTags = false } = this.#form;
        const at = mark === "" ? -1 : all.indexOf(mark);
        const open = at < 0 ? all.length - openLength(mark === "" ? [] : [mark], all) : at;
        const end = hasTags ? trimmedEnd(all, open) : open;
        emitted.answer += all.slice(0, end);
        if (at >= 0) {
          if (hasTags) this.#state = "tagged";
          return all.slice(at + mark.length);
        }
        this.#held = all.slice(end);
        return "";
      }
    }
  }
}
