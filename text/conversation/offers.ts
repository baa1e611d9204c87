/** Puts the functions that a client offers (`tools`) where the chat template reads them. */
import { jsonText } from "../jinja/json.ts";
import { jsonTextOf } from "../json-text.ts";
import type { ChatMessage } from "./messages.ts";

/**
 * Place from which a template reads offered functions: its variable `tools`; the same, but only if there is a
 * system message; or a field `tools` of that message, as in Phi-4-mini. "none": it writes them from no place.
 */
export type OffersPlace = "variable" | "beside system" | "in system" | "none";

/** Function offered in probes, to find where a template reads functions. */
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

/** The messages in the form in which the template writes offered functions. */
export function offeredIn(
  place: OffersPlace,
  messages: readonly ChatMessage[],
  tools: readonly unknown[],
): readonly ChatMessage[] {
  if (place === "in system") return offeredInSystem(messages, tools);
  return place === "beside system" ? besideSystem(messages) : messages;
}

/** The messages with a system message; adds an empty one if there is none. */
function besideSystem(messages: readonly ChatMessage[]): readonly [ChatMessage, ...ChatMessage[]] {
  const [first, ...others] = messages;
  if (first?.role === "system") return [first, ...others];
  return [{ role: "system", content: "" }, ...messages];
}

/** The messages with the functions in the field `tools` of their system message. */
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
