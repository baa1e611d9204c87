/** OpenAI's predicted outputs: a text that the answer is expected to resemble. */
import type { TokenId } from "../../../base/token.ts";
import { requestLimits } from "../../request/limits.ts";
import { type PromptServices, refuseBusy } from "../../request/prompt.ts";
import { type Fields, fieldsOf, objectKind, refusal, textOrPartsKind } from "../fields.ts";

/** UTF-16 units to tokenise per token of the context: text beyond them cannot be among the first tokens. */
const UNITS_PER_TOKEN = 64;

/** The text of `prediction`; null: the request has none. Throws 400. */
export function predictionOf(fields: Fields): string | null {
  const given = fields.object("prediction");
  if (given === undefined) return null;
  const type = given.raw("type", { enum: ["content"] });
  if (type !== "content") throw refusal(given.pathOf("type"), 'the string "content"', type);
  const content = given.raw("content", textOrPartsKind);
  if (typeof content === "string") return content;
  if (!Array.isArray(content))
    throw refusal(given.pathOf("content"), "a string or an array of texts", content);
  const texts = given.list("content", requestLimits.contentPartsMax, objectKind)!.map((part, index) => {
    const fields = fieldsOf(part, `${given.pathOf("content")}[${index}]`);
    const kind = fields.raw("type", { enum: ["text"] });
    if (kind !== "text") throw refusal(fields.pathOf("type"), 'the string "text"', kind);
    return fields.requiredString("text");
  });
  return texts.join("");
}

/** First tokens of a prediction, at most as many as the context has. */
export async function predictedTokens(
  text: string,
  { encoder, model }: PromptServices,
): Promise<readonly TokenId[]> {
  const units = text.slice(0, UNITS_PER_TOKEN * model.contextMax);
  const tokens = await encoder.encode(units, { addSpecialTokens: false }).catch(refuseBusy);
  return tokens.slice(0, model.contextMax);
}
