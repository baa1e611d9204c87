/** `reasoning`: how much to think. */
import type { ChatTemplate } from "../../text/template.ts";
import { effortArguments, efforts } from "../effort.ts";
import { type Fields, refusal } from "../fields.ts";

export interface Reasoning {
  readonly templateArguments: Readonly<Record<string, unknown>>;
  /** What a response says of it. */
  readonly echo: { readonly effort: string | null; readonly summary: string | null };
  /** Fields that were given and have no effect. */
  readonly ignored: readonly string[];
}

export function reasoningOf(fields: Fields, template: ChatTemplate | null, hasTools: boolean): Reasoning {
  const given = fields.object("reasoning");
  const asked = given?.string("effort");
  const effort = efforts.find((one) => one === asked) ?? null;
  if (asked !== undefined && effort === null) throw refusal("reasoning.effort", efforts.join(", "), asked);
  const summary = given?.string("summary") ?? given?.string("generate_summary") ?? null;
  const told = effort === null ? {} : effortArguments(effort, template, hasTools);
  const ignored = [
    ...(told === null ? ["reasoning.effort"] : []),
    ...(summary === null ? [] : ["reasoning.summary"]),
  ];
  return { templateArguments: told ?? {}, echo: { effort, summary: null }, ignored };
}
