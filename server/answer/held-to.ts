import type { ConstraintSource } from "../../scheduler/constraint/compile.ts";
import { controlTextsIn } from "../text/formats/answer-format.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { GenerationRequest, RequestedConstraint } from "./generation.ts";

/**
 * What a request's answers are held to, all told: what the client asked for, from the end of the model's thoughts on, or
 * instead of it calls in the model's own form. Null: nothing.
 */
export function heldTo(
  { constraint, calls, format }: Pick<GenerationRequest, "constraint" | "calls" | "format">,
  tokenizer: Tokenizer,
): RequestedConstraint | null {
  const form = calls === undefined ? null : (format?.calls ?? null);
  if (calls === undefined || form === null) return constraint ?? null;
  const { functions, callsMax, mayTalk, param } = calls;
  const source: ConstraintSource = {
    kind: "calls",
    form,
    controlTexts: tokensOfTheirOwn(controlTextsIn(form, tokenizer.controlTexts), tokenizer),
    functions,
    callsMax,
    mayTalk,
    otherwise: constraint?.source ?? null,
  };
  return { source, param: constraint?.param ?? param };
}

/** Of control texts those whose tokens are no text; the others are written like any text. */
function tokensOfTheirOwn(texts: readonly string[], tokenizer: Tokenizer): string[] {
  return texts.filter((text) => tokenizer.isControl(tokenizer.tokenOf(text)!));
}
