/** Requests as returned by `GET /v1/requests`. */
import { type Cause, causes } from "../../../scheduler/explain/causes.ts";
import type { RequestFacts } from "../../explain/request-facts.ts";

/** Part of a request's time. */
export interface Part extends Pick<Cause, "name" | "phase" | "words"> {
  readonly ms: number;
  /** Milliseconds of the parts before it. */
  readonly fromMs: number;
}

/** Parts of a request's time in the order of causes. They follow each other: their sum is the request's time. */
export function partsOf({ causes: given }: Pick<RequestFacts, "causes">): readonly Part[] {
  const parts: Part[] = [];
  let fromMs = 0;
  for (const cause of causes) {
    const ms = given[cause.name] ?? 0;
    const words = cause.phase === "waiting" ? `waiting for ${cause.words}` : cause.words;
    if (ms > 0) parts.push({ ...cause, words, ms, fromMs });
    fromMs += ms;
  }
  return parts;
}

/** "0.4 ms", "83 ms", "1.24 s". */
export function duration(ms: number | null): string {
  if (ms === null) return "–";
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  return ms >= 10 ? `${ms.toFixed(0)} ms` : `${ms.toFixed(1)} ms`;
}
