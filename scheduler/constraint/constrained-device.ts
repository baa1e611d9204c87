import type { SampleRow, SequenceId, Step, StepResult } from "../core.ts";
import type { Device } from "../device.ts";
import { ConstraintError } from "./error.ts";
import { Masks } from "./masks.ts";
import { Matcher, parserOf } from "./matcher.ts";
import type { Parser } from "./parser.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** Begins the reason of a row that failed because of its constraint. */
export const UNSATISFIABLE = "constraint_unsatisfiable";

/** Grammars and texts under way that are kept; others are begun again from what they were. */
const PARSERS_MAX = 64;
const MATCHERS_MAX = 4096;

/** What a constrained row is drawn with, and why it cannot be drawn, if it cannot. */
interface MaskedRow {
  readonly row: SampleRow;
  readonly failure: string | null;
}

/**
 * A device that draws constrained rows from what their grammars allow: it writes the masks and leaves the rest to the device
 * that it stands for. Rows say what was drawn before, so nothing is to be kept: what is, saves reading it again.
 *
 * A row that can go on in no way, or whose mask is too much work, fails alone.
 */
export class ConstrainedDevice implements Device {
  readonly spec: Device["spec"];
  readonly #device: Device;
  readonly #masks: Masks;
  /** By the constraint's id, ordered by last use. */
  readonly #parsers = new Map<string, Parser>();
  /** Ordered by last use. */
  readonly #matchers = new Map<SequenceId, { readonly id: string; readonly matcher: Matcher }>();

  constructor(device: Device, vocabulary: Vocabulary) {
    this.spec = device.spec;
    this.#device = device;
    this.#masks = new Masks(vocabulary);
  }

  start(step: Step, done: (result: StepResult) => void): void {
    if (!step.chunks.some((chunk) => chunk.samples.some((row) => row.constraint !== undefined))) {
      this.#device.start(step, done);
      return;
    }
    /** By place in the step's rows. */
    const failures = new Map<number, string>();
    let place = 0;
    const chunks = step.chunks.map((chunk) => {
      const samples = chunk.samples.map((given) => {
        const { row, failure } = this.#masked(chunk.sequence, given);
        if (failure !== null) failures.set(place, failure);
        place += 1;
        return row;
      });
      return { ...chunk, samples };
    });
    this.#device.start({ ...step, chunks }, (result) => {
      if (result.kind !== "done" || failures.size === 0) done(result);
      else
        done({
          ...result,
          sampled: result.sampled.map((one, index) => {
            const reason = failures.get(index);
            return reason === undefined ? one : { kind: "failed", sequence: one.sequence, reason };
          }),
        });
    });
  }

  close(): void {
    this.#device.close();
  }

  #masked(sequence: SequenceId, row: SampleRow): MaskedRow {
    if (row.constraint === undefined) return { row, failure: null };
    try {
      return this.#maskedBy(sequence, row, row.constraint);
    } catch (error) {
      if (!(error instanceof ConstraintError)) throw error;
      return this.#failed(row, error.message);
    }
  }

  #maskedBy(
    sequence: SequenceId,
    row: SampleRow,
    constraint: NonNullable<SampleRow["constraint"]>,
  ): MaskedRow {
    const matcher = this.#matcherOf(sequence, constraint);
    if (matcher === null) return this.#failed(row, "what was drawn before does not obey it");
    const mask = matcher.mask();
    const { endTokens } = constraint;
    const allowed = mask.slice();
    // A text that is complete may end, and no other may.
    for (const token of endTokens) {
      const bit = 1 << (token & 31);
      if (matcher.mayEnd) allowed[token >>> 5]! |= bit;
      else allowed[token >>> 5]! &= ~bit;
    }
    if (allowed.every((word) => word === 0)) {
      return this.#failed(row, "no token of the model's vocabulary goes on with the text");
    }
    // The fewest tokens that were asked for give way to a text that is complete.
    const mustEnd = matcher.mayEnd && mask.every((word) => word === 0);
    return { row: { ...row, allowed, banned: mustEnd ? [] : row.banned }, failure: null };
  }

  /** Drawn from nothing. */
  #failed(row: SampleRow, why: string): MaskedRow {
    const allowed = new Uint32Array(Math.ceil(this.spec.vocabSize / 32));
    return { row: { ...row, allowed }, failure: `${UNSATISFIABLE}: ${why}` };
  }

  /** Null: what was drawn is not what the grammar allows. */
  #matcherOf(sequence: SequenceId, { of, drawn }: NonNullable<SampleRow["constraint"]>): Matcher | null {
    let known = this.#matchers.get(sequence);
    if (known === undefined || known.id !== of.id || known.matcher.length > drawn.length) {
      known = { id: of.id, matcher: Matcher.of(this.#parserOf(of), this.#masks) };
    }
    this.#matchers.delete(sequence);
    if (this.#matchers.size >= MATCHERS_MAX) this.#matchers.delete(this.#matchers.keys().next().value!);
    this.#matchers.set(sequence, known);
    const { matcher } = known;
    while (matcher.length < drawn.length) if (!matcher.accept(drawn[matcher.length]!)) return null;
    return matcher;
  }

  #parserOf({ id, grammar }: NonNullable<SampleRow["constraint"]>["of"]): Parser {
    let parser = this.#parsers.get(id);
    if (parser === undefined) {
      parser = parserOf(grammar, this.#masks);
      if (this.#parsers.size >= PARSERS_MAX) this.#parsers.delete(this.#parsers.keys().next().value!);
    } else this.#parsers.delete(id);
    this.#parsers.set(id, parser);
    return parser;
  }
}
