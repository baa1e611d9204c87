/** How much a model is to think, as clients of several servers say it, for templates that take it in several ways. */

import { thinkingMarksIn } from "../text/formats/thinking.ts";
import type { ChatTemplate } from "../text/template.ts";
import { type Fields, refusal } from "./fields.ts";

const efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;
export type Effort = (typeof efforts)[number];

/** Tokens of thoughts that an effort is worth where the model itself does not know of efforts; others have no limit. */
const effortTokens: Partial<Record<Effort, number>> = { minimal: 256, low: 1024, medium: 4096 };

/** What a request says of thinking; null where it says nothing. */
export interface ThinkingAsked {
  /** Whether to think at all. */
  readonly isWanted: boolean | null;
  readonly effort: Effort | null;
  /** Tokens of thoughts at most. */
  readonly tokensMax: number | null;
}

/** What becomes of it with a model's template. */
export interface ThinkingSettled {
  /** For the template. */
  readonly templateArguments: Readonly<Record<string, unknown>>;
  readonly tokensMax: number | null;
  /** Whether any of it had an effect. */
  readonly hasEffect: boolean;
}

/** Arguments for the template: what the client gave by name goes before what follows from other fields. */
export function withGiven(
  own: Readonly<Record<string, unknown>>,
  given: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  return Object.keys(own).length === 0 ? given : { ...own, ...given };
}

/** The effort that a field names. Throws 400 for what is none. */
export function effortOf(fields: Fields, name: string): Effort | null {
  const given = fields.raw(name);
  if (given === undefined) return null;
  const effort = efforts.find((known) => known === given);
  if (effort === undefined) throw refusal(fields.pathOf(name), efforts.join(", "), given);
  return effort;
}

export function settleThinking(
  { isWanted, effort, tokensMax }: ThinkingAsked,
  template: ChatTemplate | null,
  hasTools: boolean,
): ThinkingSettled {
  const thinks = template !== null && thinkingMarksIn(template.sourceText(hasTools)) !== null;
  const mentions = (name: string): boolean => template?.mentions(name, hasTools) === true;
  const wanted = isWanted ?? (effort === null ? null : effort !== "none");
  const templateArguments: Record<string, unknown> = {};
  const switchName = ["enable_thinking", "thinking"].find(mentions);
  if (wanted !== null && switchName !== undefined) templateArguments[switchName] = wanted;
  const knowsEffort = mentions("reasoning_effort");
  if (effort !== null && knowsEffort) templateArguments.reasoning_effort = effort;
  const ofEffort = effort === null || knowsEffort ? null : (effortTokens[effort] ?? null);
  const limit = thinks ? (tokensMax ?? ofEffort) : null;
  const hasEffect = limit !== null || Object.keys(templateArguments).length > 0;
  return { templateArguments, tokensMax: limit, hasEffect };
}
