import type { SequenceId } from "../core.ts";

/** Record of a step as it ran, for traces and logs. */
export interface StepTrace {
  /** Times of its start and of its result. */
  readonly startMs: number;
  readonly endMs: number;
  readonly deviceMs: number;
  readonly number: number;
  readonly chunks: readonly {
    readonly sequence: SequenceId;
    readonly start: number;
    readonly count: number;
    /** Number of draft tokens behind them. */
    readonly drafted: number;
    /** True if the chunk is one token of output, not of a prompt. */
    readonly isDecode: boolean;
  }[];
  /** Pages that are neither free nor evictable, while the step ran. */
  readonly pagesUsed: number;
  readonly pagesTotal: number;
  /** Events since the step before: cached prefixes, preemptions, ends. */
  readonly notes: readonly StepNote[];
}

export type StepNote =
  | { readonly kind: "cached"; readonly sequence: SequenceId; readonly tokens: number }
  | { readonly kind: "waits"; readonly sequence: SequenceId; readonly owner: SequenceId }
  | { readonly kind: "preempted"; readonly sequence: SequenceId }
  | { readonly kind: "first"; readonly sequence: SequenceId; readonly atMs: number }
  | { readonly kind: "ended"; readonly sequence: SequenceId; readonly how: string };

/** Column heads for `formatStep`. */
export const traceHeader = "    t_ms  step  decode prompt  pages    chunks                            notes";

/**
 * Formats a step in one line: `A+1` is a decode of sequence A, `A+1?3` one with three draft tokens, `B[0..512)`
 * prompt tokens of B. `name` returns a sequence's name.
 *
 *     16.24     2       1    511  32/256   A+1 B[0..511)                      A first 16.24
 */
export function formatStep(step: StepTrace, name: (sequence: SequenceId) => string = letters): string {
  const decodes = step.chunks.filter((chunk) => chunk.isDecode).length;
  const tokens = step.chunks.reduce((sum, chunk) => sum + chunk.count, 0);
  const chunks = step.chunks.map(({ sequence, start, count, drafted, isDecode }) =>
    isDecode
      ? `${name(sequence)}+1${drafted > 0 ? `?${drafted}` : ""}`
      : `${name(sequence)}[${start}..${start + count})`,
  );
  const columns = [
    step.startMs.toFixed(2).padStart(8),
    String(step.number).padStart(5),
    String(decodes).padStart(7),
    String(tokens - decodes).padStart(6),
    ` ${step.pagesUsed}/${step.pagesTotal}`.padEnd(9),
    chunks.join(" ").padEnd(33),
    step.notes.map((note) => formatNote(note, name)).join(", "),
  ];
  return columns.join(" ").trimEnd();
}

function formatNote(note: StepNote, name: (sequence: SequenceId) => string): string {
  const label = name(note.sequence);
  switch (note.kind) {
    case "cached":
      return `${label} cached ${note.tokens}`;
    case "waits":
      return `${label} waits for ${name(note.owner)}`;
    case "preempted":
      return `${label} preempted`;
    case "first":
      return `${label} first ${note.atMs.toFixed(2)}`;
    case "ended":
      return `${label} ${note.how}`;
  }
}

/** Names a sequence: 0 is A, 25 is Z, later ones have their number. */
function letters(sequence: SequenceId): string {
  return sequence < 26 ? String.fromCharCode(65 + sequence) : `#${sequence}`;
}
