/** `reasoning`: whether to think, told to templates that ask; how long is the model's own affair. */
import type { ChatTemplate } from "../../text/template.ts";
import { type Fields, refusal } from "../fields.ts";

const efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

export interface Reasoning {
  readonly templateArguments: Readonly<Record<string, unknown>>;
  /** What a response says of it. */
  readonly echo: { readonly effort: string | null; readonly summary: string | null };
  /** Fields that were given and have no effect. */
  readonly ignored: readonly string[];
}

export function reasoningOf(fields: Fields, template: ChatTemplate | null, hasTools: boolean): Reasoning {
  const given = fields.object("reasoning");
  const effort = given?.string("effort") ?? null;
  if (effort !== null && !efforts.includes(effort))
    throw refusal("reasoning.effort", efforts.join(", "), effort);
  const summary = given?.string("summary") ?? given?.string("generate_summary") ?? null;
  const asks = (name: string): boolean => effort !== null && template?.mentions(name, hasTools) === true;
  const templateArguments = {
    ...(asks("enable_thinking") ? { enable_thinking: effort !== "none" } : {}),
    ...(asks("reasoning_effort") ? { reasoning_effort: effort } : {}),
  };
  const isTold = Object.keys(templateArguments).length > 0;
  const ignored = [
    ...(effort !== null && !isTold ? ["reasoning.effort"] : []),
    ...(summary === null ? [] : ["reasoning.summary"]),
  ];
  return { templateArguments, echo: { effort, summary: null }, ignored };
}
