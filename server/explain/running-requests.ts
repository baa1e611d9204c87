/** The requests that run, and what each of them spends its time on now. */
import { CAUSES, type CauseName, causes } from "../../scheduler/explain/causes.ts";
import type { RequestRecord } from "./request-record.ts";

/** A request that has not ended. */
export interface RunningRequest {
  readonly id: string;
  readonly model: string;
  readonly route: string;
  readonly totalMs: number;
  /** Null: it has no token yet. */
  readonly firstMs: number | null;
  readonly promptTokens: number;
  readonly generated: number;
  /** Cause of most of its last seconds. */
  readonly cause: CauseName;
}

/** Looks over which the cause is taken. Engines report what time was spent on once a second. */
const LOOKS = 6;

/** Watches running requests from look to look. */
export class RunningRequests {
  /** Milliseconds by cause at the last looks, by id. */
  #past = new Map<string, readonly Float64Array[]>();

  look(records: readonly RequestRecord[]): readonly RunningRequest[] {
    const kept = new Map<string, readonly Float64Array[]>();
    const rows = records.map((record) => {
      const { id } = record.facts;
      const { model, route, total_ms: totalMs, first_token_ms: firstMs, tokens } = record.json();
      const { ms } = record.times();
      const past = [...(this.#past.get(id) ?? []), ms].slice(-LOOKS);
      kept.set(id, past);
      const before = past.length === LOOKS ? past[0]! : new Float64Array(CAUSES);
      const cause = causes[largestGrowth(before, ms)]!.name;
      return {
        ...{ id, model, route, totalMs, firstMs, cause },
        promptTokens: tokens.prompt,
        generated: tokens.generated,
      };
    });
    this.#past = kept;
    return rows;
  }
}

function largestGrowth(before: Float64Array, now: Float64Array): number {
  let largest = 0;
  for (let cause = 1; cause < CAUSES; cause++) {
    if (now[cause]! - before[cause]! > now[largest]! - before[largest]!) largest = cause;
  }
  return largest;
}
