/** How much a model is to think, told to templates that ask; how long it then thinks is the model's own affair. */
import type { ChatTemplate } from "../text/template.ts";

export const efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;
export type Effort = (typeof efforts)[number];

/** Arguments for the template; null: it has none for this. `none` is to think not at all. */
export function effortArguments(
  effort: Effort,
  template: ChatTemplate | null,
  hasTools: boolean,
): Readonly<Record<string, unknown>> | null {
  const asks = (name: string): boolean => template?.mentions(name, hasTools) === true;
  const told = {
    ...(asks("enable_thinking") ? { enable_thinking: effort !== "none" } : {}),
    ...(asks("reasoning_effort") ? { reasoning_effort: effort } : {}),
  };
  return Object.keys(told).length === 0 ? null : told;
}
