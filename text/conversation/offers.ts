/** Functions that a client offers, in the place where a chat template reads them. */
import { jsonText } from "../jinja/json.ts";
import { jsonTextOf } from "../json-text.ts";
import type { ChatMessage } from "./messages.ts";

/**
 * Place where a template reads offered functions: its variable `tools`, the same if there is a system message, or a
 * text `tools` of that message, as in Phi-4-mini's. "none": it writes them from neither.
 */
export type OffersPlace = "variable" | "beside system" | "in system" | "none";

/** Function by which a template shows where it reads functions. */
export const probeOffer = {
  type: "function",
  function: { name: "Fzq6", description: "Another.", parameters: { type: "object", properties: {} } },
};

/** Finds the place. `write` renders a conversation with the probe on offer; null: the template refuses it. */
export function placeOfOffers(write: (messages: readonly ChatMessage[]) => string | null): OffersPlace {
  const user = { role: "user", content: "Azq1" };
  const isShown = (messages: readonly ChatMessage[]): boolean =>
    write(messages)?.includes(probeOffer.function.name) ?? true;
  if (isShown([user])) return "variable";
  if (isShown(besideSystem([user]))) return "beside system";
  if (isShown(offeredInSystem([user], [probeOffer]))) return "in system";
  return isShown([{ role: "system", content: "Bzq2" }, user]) ? "variable" : "none";
}

/** The messages as a template needs them to write offered functions. */
export function offeredIn(
  place: OffersPlace,
  messages: readonly ChatMessage[],
  tools: readonly unknown[],
): readonly ChatMessage[] {
  if (place === "in system") return offeredInSystem(messages, tools);
  return place === "beside system" ? besideSystem(messages) : messages;
}

/** The messages with a system message, empty if there was none. */
function besideSystem(messages: readonly ChatMessage[]): readonly [ChatMessage, ...ChatMessage[]] {
  const [first, ...others] = messages;
  if (first?.role === "system") return [first, ...others];
  return [{ role: "system", content: "" }, ...messages];
}

/** The messages with functions in their system message. */
function offeredInSystem(
  messages: readonly ChatMessage[],
  tools: readonly unknown[],
): readonly ChatMessage[] {
  const texts = tools.map((tool) => {
    const offered = (tool as { readonly function?: object }).function ?? (tool as object);
    return jsonTextOf(offered) ?? jsonText(offered);
  });
  const [system, ...others] = besideSystem(messages);
  return [{ ...system, tools: `[${texts.join(", ")}]` }, ...others];
}
