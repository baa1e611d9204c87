import type { ThoughtsLimit } from "../../grammar/constraint.ts";
import { ConstraintError } from "../../grammar/error.ts";
import { type ConstraintSource, noMarks, type TextMarks } from "../../grammar/source.ts";
import { markBytes } from "../../grammar/tools/marked-texts.ts";
import { controlTextsIn } from "../../text/formats/answer-format.ts";
import type { ThinkingMarks } from "../../text/formats/thinking.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import type { GenerationRequest, RequestedConstraint } from "./generation.ts";

type Request = Pick<GenerationRequest, "constraint" | "calls" | "format">;

/**
 * Combined constraint on a request's answers: optional reasoning, then the client's constraint or calls in
 * the model's own format. Null: none. Throws ConstraintError for calls if the model's call format is unknown.
 */
export function heldTo(request: Request, tokenizer: Tokenizer): RequestedConstraint | null {
  const held = answerHeldTo(request, tokenizer);
  const thinking = request.format?.thinking ?? null;
  if (thinking === null || (held === null && thinking.tokensMax === null)) return held;
  const { opening, closing, isOpen } = thinking;
  const controlTexts = tokensOfTheirOwn(controlTextsIn(thinking, tokenizer.controlTexts), tokenizer);
  const answer = held?.source ?? null;
  // With calls, the delimiters apply only to text that is no call.
  const marks = textMarks(answer?.kind === "calls" ? null : thinking);
  const param = held?.param ?? "thinking_token_budget";
  return { source: { kind: "thinking", opening, closing, isOpen, controlTexts, answer, marks }, param };
}

/** Limit on a request's reasoning tokens; null: none. */
export function thoughtsLimit({ format }: Request, tokenizer: Tokenizer): ThoughtsLimit | null {
  const thinking = format?.thinking ?? null;
  if (thinking === null || thinking.tokensMax === null) return null;
  const { opening, closing, isOpen, tokensMax } = thinking;
  const controlTexts = tokensOfTheirOwn(controlTextsIn(thinking, tokenizer.controlTexts), tokenizer);
  return {
    tokensMax,
    isOpen,
    opening: markBytes(opening, controlTexts),
    closing: markBytes(closing, controlTexts),
    closingTokens: tokenizer.encode(closing, {
      addSpecialTokens: false,
      parseControlText: true,
      continues: true,
    }),
  };
}

/**
 * Constraint after the reasoning. The client's constraint applies to text, and so has no effect if the answer
 * must be a call.
 */
function answerHeldTo(
  { constraint, calls, format }: Request,
  tokenizer: Tokenizer,
): RequestedConstraint | null {
  const form = calls === undefined ? null : (format?.calls ?? null);
  if (calls === undefined || (form === null && calls.mayTalk)) return constraint ?? null;
  if (form === null) throw new ConstraintError("the form in which this model writes calls is not known");
  const { functions, callsMax, mayTalk, param } = calls;
  const thinking = format?.thinking ?? null;
  const marks = [form, thinking].flatMap((one) => controlTextsIn(one, tokenizer.controlTexts));
  const source: ConstraintSource = {
    kind: "calls",
    form,
    controlTexts: tokensOfTheirOwn(marks, tokenizer),
    functions,
    callsMax,
    mayTalk,
    otherwise: mayTalk ? (constraint?.source ?? null) : null,
    marks: textMarks(thinking),
  };
  return { source, param: constraint?.param ?? param };
}

function textMarks(thinking: ThinkingMarks | null): TextMarks {
  if (thinking === null) return noMarks;
  const { beforeText = "", afterText = "", hasTags = false } = thinking;
  return { before: beforeText, after: afterText, areTags: hasTags };
}

/** Control texts whose tokens are control tokens. Other control texts are generated like any text. */
function tokensOfTheirOwn(texts: readonly string[], tokenizer: Tokenizer): string[] {
  return texts.filter((text) => tokenizer.isControl(tokenizer.tokenOf(text)!));
}
