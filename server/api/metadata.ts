/** OpenAI's `metadata`: a client's own notes on the objects stored here. */
import { type Fields, refusal, textKind } from "./fields.ts";

const PAIRS_MAX = 16;
const KEY_CHARACTERS_MAX = 64;
const VALUE_CHARACTERS_MAX = 512;

/** Null if the client sent none. Throws 400. */
export function metadataOf(fields: Fields): Readonly<Record<string, string>> | null {
  const given = fields.raw("metadata", { type: "object", values: textKind, maxProperties: PAIRS_MAX });
  if (given === undefined) return null;
  const isRecord = typeof given === "object" && given !== null && !Array.isArray(given);
  const entries = isRecord ? Object.entries(given) : [];
  const path = fields.pathOf("metadata");
  if (!isRecord || entries.length > PAIRS_MAX) {
    throw refusal(path, `an object of at most ${PAIRS_MAX} texts`, isRecord ? entries.length : given);
  }
  for (const [key, value] of entries) {
    if (key.length > KEY_CHARACTERS_MAX)
      throw refusal(path, `keys of at most ${KEY_CHARACTERS_MAX} characters`, key);
    if (typeof value !== "string" || value.length > VALUE_CHARACTERS_MAX) {
      throw refusal(`${path}.${key}`, `a text of at most ${VALUE_CHARACTERS_MAX} characters`, value);
    }
  }
  return given as Record<string, string>;
}
