/** Accepted fields without effect, and cache marks of a request. */
import { type Fields, refusal, reportable } from "../fields.ts";

/** Names for the header `x-bunting-ignored`, without list indices: `messages.content.citations`. */
export class Ignored extends Set<string> {
  #ttlMs: number | null = null;

  /** Records a cache mark. */
  marked(ttlMs: number): void {
    this.#ttlMs = ttlMs;
  }

  /** Lifetime of the last cache mark since the previous call; null for none. */
  takeMark(): number | null {
    const ttlMs = this.#ttlMs;
    this.#ttlMs = null;
    return ttlMs;
  }
}

const ttlsMs = { "5m": 5 * 60_000, "1h": 60 * 60_000 };

/** Notes the rest of an object whose known fields are read: a cache mark and unknown fields. */
export function noteTheRest(fields: Fields, place: string, ignored: Ignored): void {
  noteCacheControl(fields, ignored);
  for (const name of reportable(fields.unread())) ignored.add(`${place}.${name}`);
}

/** Notes a cache mark. Throws 400 for an invalid one. */
export function noteCacheControl(fields: Fields, ignored: Ignored): void {
  const mark = fields.object("cache_control");
  if (mark === undefined) return;
  const type = mark.raw("type", { type: "string" });
  if (type !== "ephemeral") throw refusal(mark.pathOf("type"), '"ephemeral"', type);
  const ttl = mark.raw("ttl", { type: "string" }) ?? "5m";
  if (ttl !== "5m" && ttl !== "1h") throw refusal(mark.pathOf("ttl"), "5m or 1h", ttl);
  ignored.marked(ttlsMs[ttl]);
}
