/** `reasoning`: how much to think. */
import type { ChatTemplate } from "../../text/template.ts";
import type { Fields } from "../fields.ts";
import { effortOf, settleThinking, type ThinkingSettled } from "../thinking.ts";

export interface Reasoning extends Omit<ThinkingSettled, "hasEffect"> {
  /** What a response says of it. */
  readonly echo: { readonly effort: string | null; readonly summary: string | null };
  /** Fields that were given and have no effect. */
  readonly ignored: readonly string[];
}

export function reasoningOf(fields: Fields, template: ChatTemplate | null, hasTools: boolean): Reasoning {
  const given = fields.object("reasoning");
  const effort = given === undefined ? null : effortOf(given, "effort");
  const asked = { isWanted: null, effort, tokensMax: null };
  const { hasEffect, ...settled } = settleThinking(asked, template, hasTools);
  const summary = given?.string("summary") ?? given?.string("generate_summary");
  const ignored = [
    ...(effort !== null && !hasEffect ? ["reasoning.effort"] : []),
    ...(summary === undefined ? [] : ["reasoning.summary"]),
  ];
  return { ...settled, echo: { effort, summary: null }, ignored };
}
