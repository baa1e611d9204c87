import type { AdapterId, SequenceId } from "../../scheduler/core.ts";
import { type RecordLinks, type RequestFacts, RequestRecord } from "./request-record.ts";

/** Requests that are remembered, of all keys together. */
export const RECORDS_MAX = 10_000;

/** Opens the record of a request to one model. */
export type RequestRecorder = (facts: RequestFacts) => RequestRecord;

/** Order of a list of requests. */
export type RequestOrder = "created" | "duration" | "first_token";

/** A reader of records: a key, or an operator, who sees all. */
export interface Reader {
  readonly tenant: string;
  readonly isAdmin: boolean;
}

/** Keeps the records of the last requests, running ones included. */
export class RequestRecords {
  /** Records by tenant and id, oldest first. */
  readonly #records = new Map<string, RequestRecord>();
  /** Records by sequence of the engines that each record's request went to. */
  readonly #named = new WeakMap<RequestRecord, Map<SequenceId, RequestRecord>>();

  /**
   * Opens records of a model, or of its adapters. `onClosed` receives the time of a request by cause when it has
   * ended.
   */
  recorder(nameOf: (adapter: AdapterId) => string, onClosed: (ms: Float64Array) => void): RequestRecorder {
    const bySequence = new Map<SequenceId, RequestRecord>();
    const links: RecordLinks = {
      requestOf: (sequence, tenant) => {
        const facts = bySequence.get(sequence)?.facts;
        return facts?.tenant === tenant ? facts.id : null;
      },
      names: (record, sequences) => {
        for (const sequence of sequences) bySequence.set(sequence, record);
      },
      onClosed,
    };
    return (facts) => {
      const record = new RequestRecord(facts, nameOf(facts.adapter), links);
      this.#named.set(record, bySequence);
      const key = keyOf(facts.tenant, facts.id);
      this.#forget(key);
      this.#records.set(key, record);
      if (this.#records.size > RECORDS_MAX) this.#forget(this.#records.keys().next().value!);
      return record;
    };
  }

  /** The record of a request; null: the reader has none of that id. */
  find(id: string, { tenant, isAdmin }: Reader): RequestRecord | null {
    const own = this.#records.get(keyOf(tenant, id));
    if (own !== undefined || !isAdmin) return own ?? null;
    return [...this.#records.values()].findLast(({ facts }) => facts.id === id) ?? null;
  }

  /** Records of requests that took at least `slowMs`, `limit` of them at most. */
  list(
    { tenant, isAdmin }: Reader,
    {
      slowMs,
      order,
      limit,
    }: { readonly slowMs: number; readonly order: RequestOrder; readonly limit: number },
  ): { readonly records: readonly RequestRecord[]; readonly hasMore: boolean } {
    const rows = [...this.#records.values()]
      .filter(({ facts }) => isAdmin || facts.tenant === tenant)
      .map((record) => ({ record, totalMs: record.totalMs, firstMs: record.firstMs ?? -1 }))
      .filter(({ totalMs }) => totalMs >= slowMs)
      .reverse();
    if (order === "duration") rows.sort((a, b) => b.totalMs - a.totalMs);
    if (order === "first_token") rows.sort((a, b) => b.firstMs - a.firstMs);
    return { records: rows.slice(0, limit).map(({ record }) => record), hasMore: rows.length > limit };
  }

  /** Records of requests that have not ended, the oldest first, `limit` of them at most. */
  running(limit: number): readonly RequestRecord[] {
    const found: RequestRecord[] = [];
    for (const record of this.#records.values()) {
      if (record.status === "running") found.push(record);
      if (found.length === limit) break;
    }
    return found;
  }

  #forget(key: string): void {
    const record = this.#records.get(key);
    if (record === undefined) return;
    this.#records.delete(key);
    const named = this.#named.get(record);
    for (const sequence of record.sequences) if (named?.get(sequence) === record) named.delete(sequence);
  }
}

/** Tenants are hexadecimal or empty. */
function keyOf(tenant: string, id: string): string {
  return `${tenant} ${id}`;
}
