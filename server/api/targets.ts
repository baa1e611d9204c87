/** Latency targets of a client. They are headers, so that every wire format and every proxy can set them. */

import { badRequest, quote } from "../http/errors.ts";

/** Upper bounds in milliseconds; null: none. */
export interface Targets {
  /** Inter-token latency, also called time between tokens (TBT) or time per output token (TPOT). */
  readonly tbtMs: number | null;
  /** Time to first token (TTFT), from the request's arrival at an engine. */
  readonly ttftMs: number | null;
}

export const noTargets: Targets = Object.freeze({ tbtMs: null, ttftMs: null });

/** Header names: ours, and the one that gateways use. */
export const tbtHeaders = ["x-bunting-tbt-ms", "x-slo-tpot-ms"] as const;
export const ttftHeaders = ["x-bunting-ttft-ms", "x-slo-ttft-ms"] as const;
export const tbtMsMax = 60_000;
export const ttftMsMax = 600_000;

/** Reads the targets. Throws 400 for a value out of range, and for two headers that disagree. */
export function targetsOf(headers: Headers): Targets {
  return { tbtMs: timeOf(headers, tbtHeaders, tbtMsMax), ttftMs: timeOf(headers, ttftHeaders, ttftMsMax) };
}

function timeOf(headers: Headers, names: readonly string[], msMax: number): number | null {
  const given = names.flatMap((name) => {
    const text = headers.get(name);
    return text === null ? [] : [{ name, ms: parseMs(name, text, msMax) }];
  });
  const [first, second] = given;
  if (first !== undefined && second !== undefined && first.ms !== second.ms) {
    throw badRequest(
      `the headers ${first.name} and ${second.name} say ${first.ms} and ${second.ms}: give one`,
    );
  }
  return first?.ms ?? null;
}

function parseMs(name: string, text: string, msMax: number): number {
  const ms = /^\d+(\.\d+)?$/.test(text.trim()) ? Number(text) : Number.NaN;
  if (ms >= 1 && ms <= msMax) return ms;
  throw badRequest(`the header ${name} must be milliseconds from 1 to ${msMax}, but is ${quote(text)}`);
}
