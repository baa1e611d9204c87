import { call } from "../api.ts";

interface Estimate {
  readonly position: number;
  readonly first_token_ms: { readonly expected: number; readonly low: number; readonly high: number };
}

/** Sentence about when the response to such a request would begin; null if the server gives none. */
export async function estimateOf(body: object): Promise<string | null> {
  try {
    const headers = { "content-type": "application/json" };
    const init = { method: "POST", headers, body: JSON.stringify({ ...body, stream: true }) };
    const { first_token_ms: first } = (await (await call("v1/estimate", init)).json()) as Estimate;
    const seconds = (ms: number): string => (ms / 1000).toFixed(ms < 10_000 ? 1 : 0);
    return `The first word comes in about ${seconds(first.expected)} s (${seconds(first.low)} to ${seconds(first.high)} s).`;
  } catch {
    return null;
  }
}
