import type { Constraint } from "../grammar/constraint.ts";
import { type Budget, ConstraintError } from "../grammar/error.ts";
import { Job, type Pieces } from "../grammar/mask/job.ts";
import { Masks } from "../grammar/mask/masks.ts";
import { Matcher } from "../grammar/mask/matcher.ts";
import { remember } from "../grammar/mask/recent.ts";
import type { Mask, Vocabulary } from "../grammar/mask/vocabulary.ts";
import { warmUp } from "../grammar/mask/warm-up.ts";
import { Parser } from "../grammar/parser/parser.ts";
import type {
  Chunk,
  RowConstraint,
  Sampled,
  SampleRow,
  SequenceId,
  Step,
  StepResult,
  WantedRow,
} from "../scheduler/core.ts";
import type { Device } from "../scheduler/device.ts";

/** Begins the reason of a row that failed because of its constraint. */
export const UNSATISFIABLE = "constraint_unsatisfiable";

/** Grammars that are kept, and texts under way besides twice those of a step; others are begun again from what they were.
 *  A text holds on to its grammar, and nobody says when it ends. */
export const PARSERS_MAX = 64;
const TEXTS_SPARE = 64;
/** Steps of work in front of a step of the device, for all its rows, and while it is computed: a millisecond or less. */
export const WORK_STEPS = 12_000;
/** Of making a parser: more than any grammar takes that a compiler lets pass. */
const PARSER_STEPS = 2 ** 26;
/** Tokens that are forced to follow one that was drawn, at most: more come after the next. */
const FORCED_MAX = 32;
/** Of reading a token of a text that was begun elsewhere or before a preemption: some microseconds. */
const READ_STEPS = 48;

/** How a row is to be drawn from; or that it cannot be, yet or at all. */
type Prepared =
  | { readonly kind: "row"; readonly row: WantedRow }
  | { readonly kind: "failed"; readonly reason: string }
  | { readonly kind: "waits"; readonly job: Pick<Job<unknown>, "run" | "spent"> };

/** A text under way. */
interface Text {
  /** Of its constraint. */
  readonly id: string;
  readonly matcher: Matcher;
  /** Reads what was drawn before, where that is more than a step draws. */
  reading: Job<null> | null;
}

/** A row of a step. */
interface GivenRow {
  readonly sequence: SequenceId;
  readonly given: WantedRow;
  prepared: Prepared;
}

/**
 * A device that draws constrained rows from what their grammars allow: it writes the masks and leaves the rest to the device
 * that it stands for. Rows say what was drawn before, so nothing is to be kept: what is, saves reading it again.
 *
 * No step waits long for masks. So much work is done in front of each, first for the rows that have had least of it, and as
 * much again while the device computes; a row whose mask is not ready by then is deferred to the next step. A row that can go on
 * in no way, or whose mask is too much work, fails alone.
 *
 * After a token that was drawn come those that are forced to follow it (forced.ts), which the engine computes together. Rows
 * that want log probabilities are drawn token by token: there are none without a row of logits.
 */
export class ConstrainedDevice implements Device {
  readonly spec: Device["spec"];
  readonly #device: Device;
  readonly #masks: Masks;
  /** Of the rows of the step under way. */
  readonly #lent: Mask[] = [];
  readonly #workSteps: number;
  /** By the constraint's id, ordered by last use. */
  readonly #parsers = new Map<string, Parser>();
  /** By the constraint's id: parsers in the making. */
  readonly #parserJobs = new Map<string, Job<Parser>>();
  /** Ordered by last use. */
  readonly #texts = new Map<SequenceId, Text>();

  /** `workSteps`: steps of work per step of the device. */
  constructor(device: Device, vocabulary: Vocabulary, workSteps = WORK_STEPS) {
    this.spec = device.spec;
    this.#device = device;
    this.#masks = new Masks(vocabulary);
    this.#workSteps = workSteps;
  }

  start(step: Step, done: (result: StepResult) => void): void {
    if (!step.chunks.some((chunk) => chunk.samples.some(isHeld))) {
      this.#device.start(step, done);
      return;
    }
    // The step before has ended: there is one at a time.
    this.#masks.memory.giveBack(...this.#lent.splice(0));
    const rows = step.chunks.flatMap(({ sequence, samples }) =>
      samples.map((given): GivenRow => ({ sequence, given, prepared: this.#prepare(sequence, given) })),
    );
    this.#work(rows);
    const textsMax = TEXTS_SPARE + 2 * rows.length;
    for (const sequence of this.#texts.keys()) {
      if (this.#texts.size <= textsMax) break;
      this.#texts.delete(sequence);
    }
    let next = 0;
    const chunks = step.chunks.map((chunk): Chunk => {
      const own = rows.slice(next, next + chunk.samples.length);
      next += own.length;
      return {
        ...chunk,
        samples: own.flatMap(({ prepared }) => (prepared.kind === "row" ? prepared.row : [])),
      };
    });
    this.#device.start({ ...step, chunks }, (result) =>
      done(result.kind === "done" ? { ...result, sampled: this.#sampled(rows, result.sampled) } : result),
    );
    // Of use to the next step.
    this.#work(rows.map((row) => ({ ...row })));
  }

  close(): void {
    this.#device.close();
  }

  /** Runs what is slow the first time: to be called before anybody waits for a step. */
  warmUp(): void {
    warmUp(this.#masks);
  }

  /** What is remembered. */
  get kept(): { readonly grammars: number; readonly texts: number; readonly maskBytes: number } {
    return { grammars: this.#parsers.size, texts: this.#texts.size, maskBytes: this.#masks.keptBytes };
  }

  /** Works for rows that wait. */
  #work(rows: readonly GivenRow[]): void {
    const spentFor = ({ prepared }: GivenRow): number =>
      prepared.kind === "waits" ? prepared.job.spent : Number.POSITIVE_INFINITY;
    const waiting = rows.filter(({ prepared }) => prepared.kind === "waits");
    waiting.sort((a, b) => spentFor(a) - spentFor(b));
    let left = this.#workSteps;
    for (const row of waiting) {
      // Others may have done it.
      row.prepared = this.#prepare(row.sequence, row.given);
      while (left > 0 && row.prepared.kind === "waits") {
        const { job } = row.prepared;
        const before = job.spent;
        row.prepared = this.#attempt(() => {
          job.run(left);
          return this.#prepare(row.sequence, row.given);
        });
        left -= Math.max(1, job.spent - before);
      }
    }
  }

  /** What came of a step's rows. */
  #sampled(rows: readonly GivenRow[], drawn: readonly Sampled[]): Sampled[] {
    let next = 0;
    return rows.map(({ sequence, given, prepared }): Sampled => {
      if (prepared.kind === "waits") return { kind: "deferred", sequence };
      if (prepared.kind === "failed") return { kind: "failed", sequence, reason: prepared.reason };
      const one = drawn[next++]!;
      if (one.kind !== "token" || !isConstrained(given) || given.sampling.topLogprobs !== null) return one;
      const forced = this.#forcedAfter(sequence, given, given.constraint, one.token);
      return forced.length === 0 ? one : { ...one, forced };
    });
  }

  #forcedAfter(
    sequence: SequenceId,
    row: SampleRow,
    { endTokens }: NonNullable<SampleRow["constraint"]>,
    token: number,
  ): number[] {
    const matcher = this.#texts.get(sequence)?.matcher;
    if (matcher === undefined || endTokens.includes(token) || !matcher.accept(token)) return [];
    const forced = matcher.forcedTokens(FORCED_MAX);
    const end = forced.findIndex((one) => endTokens.includes(one) || !isAllowed(row, one));
    return end < 0 ? forced : forced.slice(0, end);
  }

  #prepare(sequence: SequenceId, row: WantedRow): Prepared {
    if (!isConstrained(row)) return isHeld(row) ? free(row) : { kind: "row", row };
    return this.#attempt(() => this.#masked(sequence, row, row.constraint));
  }

  #attempt(prepare: () => Prepared): Prepared {
    try {
      return prepare();
    } catch (error) {
      if (!(error instanceof ConstraintError)) throw error;
      return failed(error.message);
    }
  }

  #masked(
    sequence: SequenceId,
    row: SampleRow,
    { of, drawn, endTokens }: NonNullable<SampleRow["constraint"]>,
  ): Prepared {
    const text = this.#textOf(sequence, of, drawn);
    if (text instanceof Job) return { kind: "waits", job: text };
    const { matcher } = text;
    if (drawn.length - matcher.length > FORCED_MAX + 1) {
      text.reading ??= new Job(
        Number.POSITIVE_INFINITY,
        (budget) => read(matcher, drawn, budget),
        () => {
          text.reading = null;
        },
      );
      return { kind: "waits", job: text.reading };
    }
    readNext(matcher, drawn, drawn.length);
    const [forced] = matcher.forcedTokens(1);
    if (forced !== undefined && !endTokens.includes(forced) && isAllowed(row, forced)) {
      const allowed = this.#lend(this.#masks.memory.none());
      allowed[forced >>> 5] = 1 << (forced & 31);
      // What must be written is, bad words or not.
      return { kind: "row", row: { ...row, allowed, banned: [] } };
    }
    const mask = matcher.findMask();
    if (mask instanceof Job) return { kind: "waits", job: mask };
    const allowed = this.#lend(this.#masks.memory.copyOf(mask));
    if (row.allowed !== null) narrow(allowed, row.allowed);
    without(allowed, row.banned);
    for (const token of endTokens) allowed[token >>> 5]! &= ~(1 << (token & 31));
    // A text that is complete may end, and no other may. The fewest tokens that were asked for give way where nothing follows.
    const mustEnd = isNone(allowed);
    if (matcher.mayEnd) {
      for (const token of endTokens)
        if (mustEnd || !row.banned.includes(token)) allowed[token >>> 5]! |= 1 << (token & 31);
    }
    if (isNone(allowed)) {
      return failed(isNone(mask) ? "no token of the model's vocabulary goes on with the text" : NONE_LEFT);
    }
    return { kind: "row", row: { ...row, allowed, banned: [] } };
  }

  #lend(mask: Mask): Mask {
    this.#lent.push(mask);
    return mask;
  }

  #textOf(sequence: SequenceId, of: Constraint, drawn: Int32Array): Text | Job<Parser> {
    let known = this.#texts.get(sequence);
    if (known === undefined || known.id !== of.id || known.matcher.length > drawn.length) {
      const parser = this.#parserOf(of);
      if (parser instanceof Job) return parser;
      known = { id: of.id, matcher: new Matcher(parser, this.#masks, of.thoughts), reading: null };
    }
    remember(this.#texts, sequence, known, Number.POSITIVE_INFINITY);
    return known;
  }

  #parserOf({ id, grammar }: NonNullable<SampleRow["constraint"]>["of"]): Parser | Job<Parser> {
    const { regexes } = this.#masks;
    const parser = this.#parsers.get(id);
    if (parser !== undefined && parser.lexer.regexes !== regexes) this.#parsers.clear();
    else if (parser !== undefined) {
      remember(this.#parsers, id, parser, PARSERS_MAX);
      return parser;
    }
    const job =
      this.#parserJobs.get(id) ??
      new Job<Parser>(
        PARSER_STEPS,
        (budget) => Parser.inPieces(grammar, regexes, budget),
        (made) => {
          this.#parserJobs.delete(id);
          if (made !== null) remember(this.#parsers, id, made, PARSERS_MAX);
        },
      );
    remember(this.#parserJobs, id, job, PARSERS_MAX);
    return job;
  }
}

/** Why a row fails of which the client's own limits leave nothing. */
const NONE_LEFT = "allowed tokens, bad words and the fewest tokens that are wanted leave no token";

/** Whether the row's draw has to be prepared. */
function isHeld(row: WantedRow): row is SampleRow {
  return row.wants === undefined && (row.constraint !== undefined || row.allowed !== null);
}

/** Of a row without a constraint. */
function free(row: SampleRow): Prepared {
  const isLost = row.allowed !== null && isNone(without(row.allowed.slice(), row.banned));
  return isLost ? failed(NONE_LEFT) : { kind: "row", row };
}

function isAllowed({ allowed }: SampleRow, token: number): boolean {
  return allowed === null || ((allowed[token >>> 5]! >>> (token & 31)) & 1) === 1;
}

/** Takes all tokens out of the mask that are not in the other. */
function narrow(mask: Mask, other: Mask): void {
  for (let word = 0; word < mask.length; word++) mask[word]! &= other[word]!;
}

/** Takes the tokens out of the mask. */
function without(mask: Mask, tokens: readonly number[]): Mask {
  for (const token of tokens) mask[token >>> 5]! &= ~(1 << (token & 31));
  return mask;
}

function failed(why: string): Prepared {
  return { kind: "failed", reason: `${UNSATISFIABLE}: ${why}` };
}

/** Reads what the matcher has not read yet, a piece at a time. Throws ConstraintError when it is not what the grammar allows. */
function* read(matcher: Matcher, drawn: Int32Array, budget: Budget): Pieces<null> {
  while (matcher.length < drawn.length) {
    readNext(matcher, drawn, matcher.length + 1);
    budget.spend(READ_STEPS);
    if (budget.isPaused) yield;
  }
  return null;
}

/** The same in one piece, up to a place. */
function readNext(matcher: Matcher, drawn: Int32Array, end: number): void {
  while (matcher.length < end) {
    if (!matcher.accept(drawn[matcher.length]!))
      throw new ConstraintError("what was drawn before does not obey it");
  }
}

function isConstrained(row: WantedRow): row is SampleRow & { readonly constraint: RowConstraint } {
  return row.wants === undefined && row.constraint !== undefined;
}

function isNone(mask: Mask): boolean {
  return mask.every((word) => word === 0);
}
