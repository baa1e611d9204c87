import type { Criteria } from "../../../scheduler/program/spec.ts";
import { refusal } from "../fields.ts";
import { tbtMsMax, ttftMsMax } from "../targets.ts";

/**
 * Parses the criteria of an awaited value: `latency`, `throughput`, `ttft:200` or `tbt:50` (milliseconds), or
 * several, separated by commas. A target implies latency. Throws 400.
 */
export function criteriaOf(given: unknown, path: string): Criteria {
  const expected = `latency, throughput, ttft:1 to ttft:${ttftMsMax} or tbt:1 to tbt:${tbtMsMax}, with commas between several`;
  let objective: Criteria["objective"] = "latency";
  let ttftMs: number | null = null;
  let tbtMs: number | null = null;
  for (const wish of typeof given === "string" ? given.split(",") : [""]) {
    const target = /^(ttft|tbt):(\d{1,9}(?:\.\d{1,3})?)$/.exec(wish.trim());
    const ms = Number(target?.[2]);
    if (target?.[1] === "ttft" && ms >= 1 && ms <= ttftMsMax) ttftMs = ms;
    else if (target?.[1] === "tbt" && ms >= 1 && ms <= tbtMsMax) tbtMs = ms;
    else if (wish.trim() === "throughput") objective = "throughput";
    else if (wish.trim() !== "latency") throw refusal(path, expected, given);
  }
  if (objective === "throughput" && (ttftMs !== null || tbtMs !== null)) throw refusal(path, expected, given);
  return { objective, ttftMs, tbtMs };
}
