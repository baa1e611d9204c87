import type { Constraint } from "../grammar/constraint.ts";
import { type Budget, ConstraintError } from "../grammar/error.ts";
import { allAtOnce, Job, type Pieces } from "../grammar/mask/job.ts";
import { remember } from "../grammar/mask/mask-memory.ts";
import { Masks } from "../grammar/mask/masks.ts";
import { Matcher } from "../grammar/mask/matcher.ts";
import type { Mask, Vocabulary } from "../grammar/mask/vocabulary.ts";
import { warmUp } from "../grammar/mask/warm-up.ts";
import { Parser } from "../grammar/parser/parser.ts";
import type {
  Chunk,
  ChunkRow,
  RowConstraint,
  Sampled,
  SampleRow,
  SequenceId,
  Step,
  StepResult,
} from "../scheduler/core.ts";
import type { Device } from "../scheduler/device.ts";

/** Prefix of the failure reason of a row that its constraint makes impossible. */
export const UNSATISFIABLE = "constraint_unsatisfiable";

/**
 * Cache limits: grammars, and texts beyond twice the rows of a step. Evicted texts are read again from their
 * drawn tokens. A text keeps its grammar alive, and the device is not notified when a sequence ends.
 */
export const PARSERS_MAX = 64;
const TEXTS_SPARE = 64;
/**
 * Work limit before each device step, for all its rows, and again while it computes: a millisecond or less.
 */
export const WORK_STEPS = 12_000;
/** Work limit for building a parser: more than any grammar needs that the compiler accepts. */
const PARSER_STEPS = 2 ** 26;
/** Maximum forced tokens after a drawn one; further ones follow the next draw. */
const FORCED_MAX = 32;
/**
 * Work for reading one token of a text that was begun elsewhere or before a preemption: some microseconds.
 */
const READ_STEPS = 48;

/** Row ready for the device, a failed row, or a row that waits for work. */
type Prepared =
  | { readonly kind: "row"; readonly row: ChunkRow }
  | { readonly kind: "failed"; readonly reason: string }
  | { readonly kind: "waits"; readonly job: Pick<Job<unknown>, "run" | "spent"> };

/** Parse state of a sequence's text. */
interface Text {
  /** Id of its constraint. */
  readonly id: string;
  readonly matcher: Matcher;
  /** Job that reads earlier tokens, if there are more of them than one step draws. */
  reading: Job<null> | null;
}

/** Row of a step, with its preparation. */
interface GivenRow {
  readonly sequence: SequenceId;
  readonly given: ChunkRow;
  prepared: Prepared;
}

/**
 * Device that applies grammar constraints: it writes the masks of constrained rows and delegates the step to
 * another device. Rows carry their drawn tokens, so the device is stateless; matchers are caches.
 *
 * Masks delay no step for long. The work before each step is limited and goes first to the rows that had
 * least of it. As much work again runs while the device computes. A row whose mask is not ready is deferred
 * to the next step, and so is the last token of its chunk: a recurrent state is never computed twice. A row that has no possible next token, or whose mask is too much work, fails alone.
 *
 * Forced tokens follow a drawn token (forced.ts), and the engine computes them in one chunk. Rows with log
 * probabilities are drawn token by token, because each log probability needs a row of logits.
 */
export class ConstrainedDevice implements Device {
  readonly spec: Device["spec"];
  readonly #device: Device;
  readonly #opening: Pieces<Masks>;
  /** null until `#opening` is done: by the warm-up, or by the first constrained row. */
  #openMasks: Masks | null = null;
  /** Masks that the rows of the step in flight use. */
  readonly #lent: Mask[] = [];
  readonly #workSteps: number;
  /** Parsers by constraint id, ordered by last use. */
  readonly #parsers = new Map<string, Parser>();
  /** Parsers under construction, by constraint id. */
  readonly #parserJobs = new Map<string, Job<Parser>>();
  /** Texts by sequence, ordered by last use. */
  readonly #texts = new Map<SequenceId, Text>();

  /** `workSteps`: work limit per device step. */
  constructor(device: Device, vocabulary: Vocabulary, workSteps = WORK_STEPS) {
    this.spec = device.spec;
    this.#device = device;
    this.#opening = Masks.open(vocabulary);
    this.#workSteps = workSteps;
  }

  start(step: Step, done: (result: StepResult) => void): void {
    if (!step.chunks.some((chunk) => chunk.samples.some(isHeld))) {
      this.#device.start(step, done);
      return;
    }
    // The previous step has ended: only one is in flight at a time.
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
    const chunks = step.chunks.flatMap((chunk): Chunk | [] => {
      const own = rows.slice(next, next + chunk.samples.length);
      next += own.length;
      const samples = own.flatMap(({ prepared }) => (prepared.kind === "row" ? prepared.row : []));
      const isDeferred = own.some(({ prepared }) => prepared.kind === "waits");
      return isDeferred ? this.#withoutLast({ ...chunk, samples }) : { ...chunk, samples };
    });
    this.#device.start({ ...step, chunks }, (result) =>
      done(result.kind === "done" ? { ...result, sampled: this.#sampled(rows, result.sampled) } : result),
    );
    // Prepares masks for the next step.
    this.#work(rows.map((row) => ({ ...row })));
  }

  close(): void {
    this.#device.close();
  }

  /** Cuts the last token off a chunk, and the checkpoint after it; nothing is left of a chunk of one token. */
  #withoutLast(chunk: Chunk): Chunk | [] {
    const tokens = chunk.tokens.subarray(0, -1);
    if (tokens.length === 0) return [];
    const pages = chunk.pages.subarray(0, Math.ceil((chunk.start + tokens.length) / this.spec.pageTokens));
    const cut = { ...chunk, tokens, pages };
    if (chunk.state === undefined) return cut;
    const saves = chunk.state.saves.filter(({ count }) => count <= tokens.length);
    return { ...cut, state: { ...chunk.state, saves } };
  }

  /**
   * Runs code paths that are slow the first time (JIT compilation). Steps may be started between its pieces.
   */
  *warmUp(): Pieces<void> {
    while (this.#openMasks === null) {
      const { done, value } = this.#opening.next();
      if (done === true) this.#openMasks = value;
      yield;
    }
    yield* warmUp(this.#openMasks);
  }

  get #masks(): Masks {
    this.#openMasks ??= allAtOnce(this.#opening);
    return this.#openMasks;
  }

  /** Sizes of the caches. */
  get kept(): { readonly grammars: number; readonly texts: number; readonly maskBytes: number } {
    return {
      grammars: this.#parsers.size,
      texts: this.#texts.size,
      maskBytes: this.#openMasks?.keptBytes ?? 0,
    };
  }

  /** Works for waiting rows until the work limit is reached. */
  #work(rows: readonly GivenRow[]): void {
    const spentFor = ({ prepared }: GivenRow): number =>
      prepared.kind === "waits" ? prepared.job.spent : Number.POSITIVE_INFINITY;
    const waiting = rows.filter(({ prepared }) => prepared.kind === "waits");
    waiting.sort((a, b) => spentFor(a) - spentFor(b));
    let left = this.#workSteps;
    for (const row of waiting) {
      // An earlier row's work may have produced this mask.
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

  /** Results of all rows of a step, in order; `drawn` has those of the prepared rows only. */
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

  #prepare(sequence: SequenceId, row: ChunkRow): Prepared {
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
      // The forced token wins over banned tokens.
      return { kind: "row", row: { ...row, allowed, banned: [] } };
    }
    const mask = matcher.findMask();
    if (mask instanceof Job) return { kind: "waits", job: mask };
    const allowed = this.#lend(this.#masks.memory.copyOf(mask));
    if (row.allowed !== null) narrow(allowed, row.allowed);
    without(allowed, row.banned);
    for (const token of endTokens) allowed[token >>> 5]! &= ~(1 << (token & 31));
    // Only a complete text may end. `min_tokens` yields if the text cannot continue.
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

/** Failure reason of a row whose sampling limits leave no token. */
const NONE_LEFT = "allowed tokens, bad words and the fewest tokens that are wanted leave no token";

/** True if the row needs preparation before its draw. */
function isHeld(row: ChunkRow): row is SampleRow {
  return row.wants === undefined && (row.constraint !== undefined || row.allowed !== null);
}

/** Prepares a row that has no constraint. */
function free(row: SampleRow): Prepared {
  const isLost = row.allowed !== null && isNone(without(row.allowed.slice(), row.banned));
  return isLost ? failed(NONE_LEFT) : { kind: "row", row };
}

function isAllowed({ allowed }: SampleRow, token: number): boolean {
  return allowed === null || ((allowed[token >>> 5]! >>> (token & 31)) & 1) === 1;
}

/** Removes all tokens from `mask` that are not in `other`. */
function narrow(mask: Mask, other: Mask): void {
  for (let word = 0; word < mask.length; word++) mask[word]! &= other[word]!;
}

/** Removes tokens from a mask. */
function without(mask: Mask, tokens: readonly number[]): Mask {
  for (const token of tokens) mask[token >>> 5]! &= ~(1 << (token & 31));
  return mask;
}

function failed(why: string): Prepared {
  return { kind: "failed", reason: `${UNSATISFIABLE}: ${why}` };
}

/**
 * Reads drawn tokens that the matcher has not read yet, in pieces. Throws ConstraintError if the grammar
 * rejects one.
 */
function* read(matcher: Matcher, drawn: Int32Array, budget: Budget): Pieces<null> {
  while (matcher.length < drawn.length) {
    readNext(matcher, drawn, matcher.length + 1);
    budget.spend(READ_STEPS);
    if (budget.isPaused) yield;
  }
  return null;
}

/** Reads drawn tokens up to `end` in one piece. */
function readNext(matcher: Matcher, drawn: Int32Array, end: number): void {
  while (matcher.length < end) {
    if (!matcher.accept(drawn[matcher.length]!))
      throw new ConstraintError("what was drawn before does not obey it");
  }
}

function isConstrained(row: ChunkRow): row is SampleRow & { readonly constraint: RowConstraint } {
  return row.wants === undefined && row.constraint !== undefined;
}

function isNone(mask: Mask): boolean {
  return mask.every((word) => word === 0);
}
