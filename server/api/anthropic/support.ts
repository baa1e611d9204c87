/** What of a request is accepted and has no effect. */
import { type Fields, refusal } from "../fields.ts";

/** Names for the header that tells of them, without the indices of lists: `messages.content.citations`. */
export type Ignored = Set<string>;

/** Notes what is left of an object whose known fields are read: a mark for the cache, checked, and unknown fields. */
export function noteTheRest(fields: Fields, place: string, ignored: Ignored): void {
  noteCacheControl(fields, ignored);
  for (const name of fields.unread()) {
    if (/^[A-Za-z0-9_.-]{1,64}$/.test(name)) ignored.add(`${place}.${name}`);
  }
}

/** Prompts are kept whether they are marked or not, for as long as there is room. Throws 400 for a mark that is none. */
export function noteCacheControl(fields: Fields, ignored: Ignored): void {
  const mark = fields.object("cache_control");
  if (mark === undefined) return;
  const type = mark.raw("type");
  if (type !== "ephemeral") throw refusal(mark.pathOf("type"), '"ephemeral"', type);
  const ttl = mark.raw("ttl");
  if (ttl !== undefined && ttl !== "5m" && ttl !== "1h") throw refusal(mark.pathOf("ttl"), "5m or 1h", ttl);
  ignored.add("cache_control");
}
