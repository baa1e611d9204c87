/** Estimates a model's speed from the rates of a machine. Pure. */

import type { MatrixWork, ModelWork } from "../../model/work.ts";
import { ceilingOf, type Limit, type MachineRates, type MatrixShare } from "./measure.ts";

/** Prompt tokens, and context tokens of a decode step, for which speed is estimated. */
export const ESTIMATE_TOKENS = 512;

/**
 * Estimated speed of one request: prefill and decode tokens per second. Counts matrices and attention; norms,
 * sampling and the server take additional time.
 */
export interface SpeedEstimate {
  /** Bytes of all matrices in memory. */
  readonly matrixBytes: number;
  readonly promptTokensPerSecond: number;
  readonly promptLimit: Limit;
  readonly streamTokensPerSecond: number;
  readonly streamLimit: Limit;
}

/** Seconds of a step, split by the ceiling that limits each part of it. */
type Times = Record<Limit, number>;

export function estimateSpeed(work: ModelWork, rates: MachineRates): SpeedEstimate {
  const prompt = stepTimes(work, rates, ESTIMATE_TOKENS);
  const stream = stepTimes(work, rates, 1);
  return {
    matrixBytes: work.matrices.reduce((sum, matrix) => sum + matrix.numbers * numberBytes(rates, matrix), 0),
    promptTokensPerSecond: ESTIMATE_TOKENS / (prompt.memory + prompt.arithmetic),
    promptLimit: largest(prompt),
    streamTokensPerSecond: 1 / (stream.memory + stream.arithmetic),
    streamLimit: largest(stream),
  };
}

function largest({ memory, arithmetic }: Times): Limit {
  return memory > arithmetic ? "memory" : "arithmetic";
}

/** Seconds of a step that computes a prompt of `tokens` tokens, or one token after ESTIMATE_TOKENS others. */
function stepTimes(work: ModelWork, rates: MachineRates, tokens: number): Times {
  const times: Times = { memory: 0, arithmetic: 0 };
  for (const matrix of work.matrices) {
    const rows = matrix.tokens === "drawn" ? 1 : tokens;
    const bytes = matrix.numbers * readShare(matrix, rows) * numberBytes(rates, matrix);
    const operations = 2 * rows * matrix.numbers * matrix.share;
    const { share } = nearest(rates, matrix.format, rows * matrix.share);
    addWork(times, rates, { bytes, operations, arithmetic: ceilingOf(matrix.format), share });
  }
  const positions = tokens > 1 ? tokens / 2 : ESTIMATE_TOKENS;
  addWork(times, rates, {
    bytes: positions * work.positionBytes,
    operations: tokens * positions * work.positionOperations,
    arithmetic: "bf16",
    share: attentionShare(rates, tokens),
  });
  return times;
}

/** Share of a matrix that a step of `rows` tokens reads: experts that no token uses are not read. */
function readShare({ share }: MatrixWork, rows: number): number {
  return 1 - (1 - share) ** rows;
}

function addWork(
  times: Times,
  { ceilings }: MachineRates,
  part: {
    readonly bytes: number;
    readonly operations: number;
    readonly arithmetic: ReturnType<typeof ceilingOf>;
    readonly share: number;
  },
): void {
  const memory = part.bytes / ceilings.read;
  const arithmetic = part.operations / ceilings[part.arithmetic];
  const limit: Limit = memory > arithmetic ? "memory" : "arithmetic";
  times[limit] += Math.max(memory, arithmetic) / part.share;
}

/**
 * Measured matrix of the same format and the nearest number of rows; of another format if that one was not
 * measured.
 */
function nearest({ matrices }: MachineRates, format: number, rows: number): MatrixShare {
  const same = matrices.filter((one) => one.format === format);
  const alike = matrices.filter((one) => ceilingOf(one.format) === ceilingOf(format));
  const among = [same, alike, matrices].find((list) => list.length > 0)!;
  const distance = (one: MatrixShare): number => Math.abs(Math.log(one.rows / Math.max(1, rows)));
  return among.reduce((best, one) => (distance(one) < distance(best) ? one : best));
}

function numberBytes(rates: MachineRates, { format }: MatrixWork): number {
  return nearest(rates, format, 1).numberBytes;
}

/** Share of the ceiling that attention reaches; 1 if it was not measured. */
function attentionShare({ attention }: MachineRates, tokens: number): number {
  const one = attention.find((measured) => measured.tokens > 1 === tokens > 1);
  return one?.share ?? 1;
}
