/** What of a request is accepted and has no effect, and its marks for the cache. */
import { type Fields, refusal, tellable } from "../fields.ts";

/** Names for the header that tells of them, without the indices of lists: `messages.content.citations`. */
export class Ignored extends Set<string> {
  #ttlMs: number | null = null;

  /** A mark for the cache was read. */
  marked(ttlMs: number): void {
    this.#ttlMs = ttlMs;
  }

  /** Milliseconds of the last mark that was read since this was asked; null: there was none. */
  takeMark(): number | null {
    const ttlMs = this.#ttlMs;
    this.#ttlMs = null;
    return ttlMs;
  }
}

const ttlsMs = { "5m": 5 * 60_000, "1h": 60 * 60_000 };

/** Notes what is left of an object whose known fields are read: a mark for the cache, and unknown fields. */
export function noteTheRest(fields: Fields, place: string, ignored: Ignored): void {
  noteCacheControl(fields, ignored);
  for (const name of tellable(fields.unread())) ignored.add(`${place}.${name}`);
}

/** Notes a mark for the cache. Throws 400 for one that is none. */
export function noteCacheControl(fields: Fields, ignored: Ignored): void {
  const mark = fields.object("cache_control");
  if (mark === undefined) return;
  const type = mark.raw("type");
  if (type !== "ephemeral") throw refusal(mark.pathOf("type"), '"ephemeral"', type);
  const ttl = mark.raw("ttl") ?? "5m";
  if (ttl !== "5m" && ttl !== "1h") throw refusal(mark.pathOf("ttl"), "5m or 1h", ttl);
  ignored.marked(ttlsMs[ttl]);
}
