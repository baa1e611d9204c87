/** Blocks of system messages that offer tools from there on, or withdraw them. */
import { badRequest } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import { type Fields, fieldsOf, refusal } from "../fields.ts";
import { note } from "../past.ts";
import type { Ignored } from "./support.ts";

const types: readonly unknown[] = ["tool_addition", "tool_removal"];

/** True if the block changes the tools on offer instead of holding text. Marks it as read. */
export function isToolChange(block: Fields): boolean {
  if (!types.includes(block.raw("type", { type: "string" }))) return false;
  block.taken("tool");
  return true;
}

/**
 * Tools on offer at the end of the conversation; `tools` are those at its start. Adds changes of unknown tools to
 * `ignored`. Throws 400.
 */
export function changedTools(
  tools: readonly Fields[],
  messages: unknown,
  ignored: Ignored,
): readonly Fields[] {
  const nameOf = (tool: Fields): unknown => tool.peek("name");
  const known = [...tools];
  let offered = [...tools];
  for (const block of changesIn(messages)) {
    const tool = block.object("tool");
    if (tool === undefined) throw refusal(block.pathOf("tool"), "an object", undefined);
    const definition = tool.object("definition");
    if (definition !== undefined) known.push(definition);
    const name = definition === undefined ? tool.string("name") : nameOf(definition);
    const changed = known.findLast((one) => nameOf(one) === name);
    const isAdded = block.peek("type") === "tool_addition";
    if (changed === undefined)
      note(ignored, `messages.content.${isAdded ? "tool_addition" : "tool_removal"}`);
    if (changed === undefined || (isAdded && offered.includes(changed))) continue;
    offered = offered.filter((one) => nameOf(one) !== name);
    if (isAdded) offered.push(changed);
  }
  if (offered.length > requestLimits.toolsMax)
    throw badRequest(
      `tools may hold ${requestLimits.toolsMax} items at most, added ones included, but holds ${offered.length}`,
      "tools",
    );
  return offered;
}

function changesIn(messages: unknown): readonly Fields[] {
  if (!Array.isArray(messages)) return [];
  return messages.flatMap((message: { readonly role?: unknown; readonly content?: unknown } | null, at) => {
    if (message?.role !== "system" || !Array.isArray(message.content)) return [];
    return message.content.flatMap((block: { readonly type?: unknown } | null, index) =>
      types.includes(block?.type) ? [fieldsOf(block, `messages[${at}].content[${index}]`)] : [],
    );
  });
}
