/** What the store keeps of files and batches. Times are seconds since 1970. */

/** An id of a file, a batch, or a result. One that a process makes later sorts behind, also within a millisecond: lists go by it. */
export function newId(prefix: string): string {
  return `${prefix}${Bun.randomUUIDv7().replaceAll("-", "")}`;
}

/** The second in which an id was made; null: it is none of these. */
export function timeOfId(id: string): number | null {
  const found = /^[a-z_-]+([0-9a-f]{12})7[0-9a-f]{19}$/.exec(id);
  return found === null ? null : Math.floor(Number.parseInt(found[1]!, 16) / 1000);
}

/** What batches may ask of each line. */
export const batchEndpoints = [
  "/v1/chat/completions",
  "/v1/completions",
  "/v1/embeddings",
  "/v1/responses",
] as const;

export type BatchEndpoint = (typeof batchEndpoints)[number];

/** A file: what was uploaded, or what came of a batch. */
export interface FileRecord {
  readonly id: string;
  /** The key that it belongs to; "" where no keys are needed. */
  readonly owner: string;
  readonly purpose: "batch" | "batch_output";
  readonly filename: string;
  readonly bytes: number;
  readonly createdAt: number;
  /** null: never. */
  readonly expiresAt: number | null;
  readonly content:
    | { readonly kind: "upload"; readonly sha256: string }
    /** The answers of a batch's lines, or what they failed by, in order of the lines. */
    | { readonly kind: "results"; readonly batch: string; readonly state: LineState };
}

/** Of a line: not done, answered, failed. */
export const OPEN = 0;
export const ANSWERED = 1;
export const FAILED = 2;
export type LineState = typeof OPEN | typeof ANSWERED | typeof FAILED;

export type BatchStatus =
  | "validating"
  | "failed"
  | "in_progress"
  | "finalizing"
  | "completed"
  | "expired"
  | "cancelling"
  | "cancelled";

/** A fault of an input file; `line` counts from 1. */
export interface BatchFault {
  readonly code: string;
  readonly line: number | null;
  readonly message: string;
  readonly param: string | null;
}

export interface BatchUsage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
}

export interface BatchRecord {
  readonly id: string;
  readonly owner: string;
  readonly endpoint: BatchEndpoint;
  readonly completionWindow: string;
  readonly inputFile: string;
  /** The model that its lines name; null until they were read. */
  readonly model: string | null;
  /** Among jobs: a lower number goes first. */
  readonly priority: number;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** Seconds after which results may be deleted; null: the server's own. */
  readonly outputExpiresAfter: number | null;
  readonly status: BatchStatus;
  readonly faults: readonly BatchFault[];
  readonly outputFile: string | null;
  readonly errorFile: string | null;
  /** Lines. */
  readonly total: number;
  readonly completed: number;
  readonly failed: number;
  readonly usage: BatchUsage;
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly inProgressAt: number | null;
  readonly finalizingAt: number | null;
  readonly completedAt: number | null;
  readonly failedAt: number | null;
  readonly expiredAt: number | null;
  readonly cancellingAt: number | null;
  readonly cancelledAt: number | null;
}

/** Whether nothing will change of it any more. */
export function isEnded({ status }: BatchRecord): boolean {
  return status === "failed" || status === "completed" || status === "expired" || status === "cancelled";
}

/** A line of a batch's input, where it is in the file, and what it was when it was checked. */
export interface LineRecord {
  /** From 1. */
  readonly line: number;
  readonly customId: string;
  readonly start: number;
  readonly bytes: number;
  /** Of its bytes. */
  readonly digest: string;
}

/** What came of a line: one JSON object, as the client gets it. */
export interface LineResult {
  readonly line: number;
  readonly state: typeof ANSWERED | typeof FAILED;
  readonly result: string;
  readonly usage: BatchUsage;
}
