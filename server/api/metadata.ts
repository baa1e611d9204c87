/** OpenAI's `metadata`: what a client writes on what is kept here, for itself. */
import { type Fields, refusal } from "./fields.ts";

const PAIRS_MAX = 16;
const KEY_CHARACTERS_MAX = 64;
const VALUE_CHARACTERS_MAX = 512;

/** null: none was given. Throws 400. */
export function metadataOf(fields: Fields): Readonly<Record<string, string>> | null {
  const given = fields.raw("metadata");
  if (given === undefined) return null;
  const isRecord = typeof given === "object" && given !== null && !Array.isArray(given);
  const entries = isRecord ? Object.entries(given) : [];
  const fits = ([key, value]: [string, unknown]): boolean =>
    key.length <= KEY_CHARACTERS_MAX && typeof value === "string" && value.length <= VALUE_CHARACTERS_MAX;
  if (isRecord && entries.length <= PAIRS_MAX && entries.every(fits)) return given as Record<string, string>;
  const wanted = `an object of at most ${PAIRS_MAX} texts of ${VALUE_CHARACTERS_MAX} characters, with keys of ${KEY_CHARACTERS_MAX}`;
  throw refusal(fields.pathOf("metadata"), wanted, given);
}
