/** Records of files and batches in the store. Times are seconds since 1970. */

/**
 * New id of a file, a batch, or a result. Ids of one process sort in order of creation, even within a
 * millisecond; listings rely on it.
 */
export function newId(prefix: string): string {
  return `${prefix}${Bun.randomUUIDv7().replaceAll("-", "")}`;
}

/** Second in which an id was made; null if it has another format. */
export function timeOfId(id: string): number | null {
  const found = /^[a-z_-]+([0-9a-f]{12})7[0-9a-f]{19}$/.exec(id);
  return found === null ? null : Math.floor(Number.parseInt(found[1]!, 16) / 1000);
}

/** Endpoints that the lines of an uploaded file may call. */
export const batchEndpoints = [
  "/v1/chat/completions",
  "/v1/completions",
  "/v1/embeddings",
  "/v1/responses",
] as const;

/** Endpoint of a batch of messages, whose lines and results have Anthropic's format. */
export const MESSAGES = "/v1/messages";

export type BatchEndpoint = (typeof batchEndpoints)[number] | typeof MESSAGES;

/** An uploaded file, or the results of a batch. */
export interface FileRecord {
  readonly id: string;
  /** API key that owns it; "" if the server needs no keys. */
  readonly owner: string;
  readonly purpose: "batch" | "batch_output";
  readonly filename: string;
  readonly bytes: number;
  readonly createdAt: number;
  /** null: never expires. */
  readonly expiresAt: number | null;
  readonly content:
    | { readonly kind: "upload"; readonly sha256: string }
    /** Answers or errors of a batch's lines, in order of the lines. */
    | { readonly kind: "results"; readonly batch: string; readonly state: LineState };
}

/** State of a line: without result, answered, failed. */
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

/** Fault of an input file; `line` counts from 1. */
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
  /** Model that its lines name; null until they are read. */
  readonly model: string | null;
  /** Priority among jobs: a lower number goes first. */
  readonly priority: number;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** Seconds after which results may be deleted; null for the server's default. */
  readonly outputExpiresAfter: number | null;
  readonly status: BatchStatus;
  readonly faults: readonly BatchFault[];
  readonly outputFile: string | null;
  readonly errorFile: string | null;
  /** Number of lines. */
  readonly total: number;
  readonly completed: number;
  readonly failed: number;
  /** Failed lines that did not run because the batch was cancelled or expired; absent: none. */
  readonly unrun?: number;
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
  /** Time at which results were deleted; absent: they are there. */
  readonly archivedAt?: number;
}

/** State of a batch whose file has not been read. */
export const unreadBatch = {
  model: null,
  status: "validating",
  faults: [],
  outputFile: null,
  errorFile: null,
  total: 0,
  completed: 0,
  failed: 0,
  usage: { promptTokens: 0, cachedTokens: 0, completionTokens: 0 },
  inProgressAt: null,
  finalizingAt: null,
  completedAt: null,
  failedAt: null,
  expiredAt: null,
  cancellingAt: null,
  cancelledAt: null,
} as const satisfies Partial<BatchRecord>;

/** True if the batch has reached a final state. */
export function isEnded({ status }: BatchRecord): boolean {
  return status === "failed" || status === "completed" || status === "expired" || status === "cancelled";
}

/** Line of a batch's input: its place in the file and its digest when it was checked. */
export interface LineRecord {
  /** Line number, from 1. */
  readonly line: number;
  readonly customId: string;
  readonly start: number;
  readonly bytes: number;
  /** Digest of its bytes. */
  readonly digest: string;
}

/** Result of a line: one JSON object, as the client gets it. */
export interface LineResult {
  readonly line: number;
  readonly state: typeof ANSWERED | typeof FAILED;
  readonly result: string;
  readonly usage: BatchUsage;
  /** True for a line that did not run because the batch was cancelled or expired. */
  readonly isUnrun?: boolean;
}
