/**
 * Reasoning options of a request, in the notations of several servers, for templates with different arguments
 * for them.
 */

import { thinkingMarksIn } from "../../text/formats/thinking.ts";
import type { ChatTemplate } from "../../text/template.ts";
import { type Fields, fieldsOf, refusal, reportable } from "./fields.ts";
import { templateArgumentsOf } from "./openai/inputs.ts";

const efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;
export type Effort = (typeof efforts)[number];

/**
 * Maximum reasoning tokens by effort, for models whose template does not read an effort. Efforts not listed have
 * no limit.
 */
const effortTokens: Partial<Record<Effort, number>> = { minimal: 256, low: 1024, medium: 4096 };

/** Reasoning options that a request sets; null for an option that it does not set. */
export interface ThinkingAsked {
  /** True to reason, false not to. */
  readonly isWanted: boolean | null;
  readonly effort: Effort | null;
  /** Reasoning tokens at most. */
  readonly tokensMax: number | null;
}

/** Effect of the reasoning options with a given chat template. */
export interface ThinkingSettled {
  /** Arguments for the template. */
  readonly templateArguments: Readonly<Record<string, unknown>>;
  readonly tokensMax: number | null;
  /** True for each option that changes the prompt or limits the reasoning. */
  readonly has: Readonly<Record<keyof ThinkingAsked, boolean>>;
}

/** A request's reasoning options, and the template's other arguments. */
export interface Thinking extends Omit<ThinkingSettled, "has"> {
  /** True if the answer must leave out the reasoning. */
  readonly isHidden: boolean;
  /** Names of fields that the client sent and that have no effect. */
  readonly ignored: readonly string[];
}

/** Reasoning option as one field of the body sets it. */
interface Wish {
  readonly path: string;
  readonly kind: keyof ThinkingAsked;
  readonly value: boolean | Effort | number;
}

/**
 * Reads all reasoning fields of a body. Among fields of one kind, the first in this order wins: the switches
 * `enable_thinking`, `thinking`, `think`, `reasoning`; efforts; limits. Arguments named in
 * `chat_template_kwargs` take precedence over all. `mayHide`: the wire format can leave the reasoning out of
 * answers.
 */
export function thinkingOf(
  fields: Fields,
  template: ChatTemplate | null,
  hasTools: boolean,
  mayHide = false,
): Thinking {
  const given = templateArgumentsOf(fields);
  const rest: string[] = [];
  const { wishes, isHidden } = wishesOf(fields, rest, mayHide);
  const chosen = (kind: Wish["kind"]): Wish | undefined => wishes.find((wish) => wish.kind === kind);
  const wished = <Value>(kind: Wish["kind"]): Value | null => (chosen(kind)?.value ?? null) as Value | null;
  const asked: ThinkingAsked = {
    isWanted: wished("isWanted"),
    effort: wished("effort"),
    tokensMax: wished("tokensMax"),
  };
  const { templateArguments, tokensMax, has } = settleThinking(asked, template, hasTools, given);
  const counts = ({ kind, value }: Wish): boolean => has[kind] && value === chosen(kind)!.value;
  const unknown = Object.keys(given).filter((name) => template?.mentions(name, hasTools) !== true);
  return {
    // The client's own object where nothing is added: its numbers and keys are read from its text.
    templateArguments:
      Object.keys(templateArguments).length === 0 ? given : { ...templateArguments, ...given },
    tokensMax,
    isHidden,
    ignored: reportable([
      ...wishes.filter((wish) => !counts(wish)).map(({ path }) => path),
      ...rest,
      ...unknown.map((name) => `chat_template_kwargs.${name}`),
    ]),
  };
}

/**
 * Applies the options to a template. `given`: the client's `chat_template_kwargs`, which they do not override.
 */
export function settleThinking(
  { isWanted, effort, tokensMax }: ThinkingAsked,
  template: ChatTemplate | null,
  hasTools: boolean,
  given: Readonly<Record<string, unknown>> = {},
): ThinkingSettled {
  const thinks = template !== null && thinkingMarksIn(template.sourceText(hasTools)) !== null;
  const reads = (name: string): boolean => template?.reads(name, hasTools) === true;
  const takes = (name: string): boolean => reads(name) && !Object.hasOwn(given, name);
  const templateArguments: Record<string, unknown> = {};
  const wanted = isWanted ?? (effort === null ? null : effort !== "none");
  const off = switchOff(template, hasTools);
  const switchName = switches.find(reads) ?? (wanted === false ? off?.name : undefined);
  const hasSwitch = switchName !== undefined && takes(switchName);
  if (wanted !== null && hasSwitch)
    templateArguments[switchName] = switchName === off?.name ? off.value : wanted;
  const knowsEffort = reads("reasoning_effort");
  if (effort !== null && takes("reasoning_effort")) templateArguments.reasoning_effort = effort;
  const ofEffort = effort === null || knowsEffort ? null : (effortTokens[effort] ?? null);
  const limit = thinks ? (tokensMax ?? ofEffort) : null;
  if (limit !== null && takes(BUDGET) && templateArguments[BUDGET] === undefined)
    templateArguments[BUDGET] = limit;
  return {
    templateArguments,
    tokensMax: limit,
    has: {
      isWanted: isWanted !== null && hasSwitch,
      effort:
        effort !== null &&
        (takes("reasoning_effort") ||
          (hasSwitch && isWanted === null) ||
          (thinks && tokensMax === null && ofEffort !== null)),
      tokensMax: tokensMax !== null && limit !== null,
    },
  };
}

/** Variables by which templates switch reasoning on and off. */
const switches = ["enable_thinking", "thinking", "enable_reasoning", "reasoning"];
/** Variable of templates that write the number of reasoning tokens into the prompt. */
const BUDGET = "thinking_budget";

/** Argument that switches reasoning off in a template without a switch; null: there is none. */
function switchOff(
  template: ChatTemplate | null,
  hasTools: boolean,
): { readonly name: string; readonly value: unknown } | null {
  if (template?.reads(BUDGET, hasTools)) return { name: BUDGET, value: 0 };
  const knowsNone =
    template?.reads("reasoning_effort", hasTools) && /["']none["']/.test(template.sourceText(hasTools));
  return knowsNone ? { name: "reasoning_effort", value: "none" } : null;
}

/** True if the model generates reasoning, or its template reads an argument about it. */
export function canThink(template: ChatTemplate | null): boolean {
  if (template === null) return false;
  const names = [...switches, BUDGET, "reasoning_effort"];
  return (
    thinkingMarksIn(template.sourceText(false)) !== null || names.some((name) => template.reads(name, false))
  );
}

const budgetNames = [
  "thinking_token_budget",
  "thinking_budget_tokens",
  "thinking_budget",
  "reasoning_budget",
];

/** Collects the options of all reasoning fields. Adds the unread names in their objects to `rest`. */
function wishesOf(
  fields: Fields,
  rest: string[],
  mayHide: boolean,
): { readonly wishes: readonly Wish[]; readonly isHidden: boolean } {
  const wishes: Wish[] = [];
  const wish = (path: string, kind: Wish["kind"], value: Wish["value"] | null | undefined): void => {
    if (value !== undefined && value !== null) wishes.push({ path, kind, value });
  };
  const within = (name: string, read: (inner: Fields) => void): void => {
    const inner = fieldsOf(fields.taken(name), name);
    read(inner);
    rest.push(...inner.unread().map((one) => inner.pathOf(one)));
  };
  wish("enable_thinking", "isWanted", fields.boolean("enable_thinking"));
  const thinking = fields.raw("thinking", { type: ["boolean", "object"] });
  if (typeof thinking === "boolean") wish("thinking", "isWanted", thinking);
  else if (thinking !== undefined)
    within("thinking", (inner) => {
      wish("thinking", "isWanted", isWantedBy(inner));
      wish("thinking.budget_tokens", "tokensMax", inner.integer("budget_tokens", tokenRange));
    });
  const think = fields.raw("think", { type: "boolean" });
  if (typeof think === "boolean") wish("think", "isWanted", think);
  wish("reasoning_effort", "effort", effortOf(fields, "reasoning_effort"));
  if (typeof think !== "boolean") wish("think", "effort", effortOf(fields, "think"));
  let isHidden = mayHide && fields.boolean("include_reasoning") === false;
  if (fields.raw("reasoning", { type: "object" }) !== undefined)
    within("reasoning", (inner) => {
      wish("reasoning.enabled", "isWanted", inner.boolean("enabled"));
      wish("reasoning.effort", "effort", effortOf(inner, "effort"));
      wish("reasoning.max_tokens", "tokensMax", inner.integer("max_tokens", tokenRange));
      if (mayHide && inner.boolean("exclude") === true) isHidden = true;
    });
  const output = fields.object("output_config");
  if (output !== undefined) wish("output_config.effort", "effort", effortOf(output, "effort"));
  for (const name of budgetNames) wish(name, "tokensMax", budgetOf(fields, name));
  return { wishes, isHidden };
}

const tokenRange = { min: 0, max: Number.MAX_SAFE_INTEGER };

/** Reads `type` as in Anthropic's API and others. Throws 400. */
function isWantedBy(thinking: Fields): boolean {
  const type = thinking.raw("type", { enum: ["enabled", "adaptive", "disabled"] });
  if (type !== "enabled" && type !== "adaptive" && type !== "disabled")
    throw refusal(thinking.pathOf("type"), "enabled, adaptive or disabled", type);
  return type !== "disabled";
}

/** Effort that a field names; null for none. Throws 400 for an unknown one. */
function effortOf(fields: Fields, name: string): Effort | null {
  const given = fields.raw(name, { enum: [...efforts, ""] });
  if (given === undefined || given === "") return null;
  const effort = efforts.find((known) => known === given);
  if (effort === undefined) throw refusal(fields.pathOf(name), `one of ${efforts.join(", ")}`, given);
  return effort;
}

/** Token limit that a field sets. -1 means no limit, except in vLLM's `thinking_token_budget`. Throws 400. */
function budgetOf(fields: Fields, name: string): number | undefined {
  const isUnlimited = name !== "thinking_token_budget" && fields.raw(name, { enum: [-1] }) === -1;
  return isUnlimited ? undefined : fields.integer(name, tokenRange);
}
