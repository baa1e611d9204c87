import type { TokenId } from "../base/token.ts";
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
 * Cache limits: grammars, and texts beyond twice the rows of a step. An evicted text is parsed again from its
 * drawn tokens. A text keeps its grammar alive, and the device is not notified when a sequence ends.
 */
export const PARSERS_MAX = 64;
const TEXTS_SPARE = 64;
/**
 * Limit of mask work before each device step, for all its rows, in the matcher's elementary operations; the same
 * again while the device computes.
 */
export const WORK_STEPS = 12_000;
/** Work limit for building a parser: more than any grammar needs that the compiler accepts. */
const PARSER_STEPS = 2 ** 26;
/** Maximum forced tokens after a drawn one; further ones follow the next draw. */
const FORCED_MAX = 32;
/**
 * Work of parsing one token of a text again, after its sequence came from another engine or its text was
 * evicted.
 */
const READ_STEPS = 48;

type MaskJob = Pick<Job<unknown>, "run" | "spent">;

/** Row ready for the device, a failed row, a row whose mask needs more work, or one whose draft is cut off. */
type Prepared =
  | { readonly kind: "row"; readonly row: ChunkRow }
  | { readonly kind: "failed"; readonly reason: string }
  | { readonly kind: "waits"; readonly job: MaskJob }
  | { readonly kind: "cut" };

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
  /** Drafted token that the row follows; null: it follows a known one. */
  readonly draft: TokenId | null;
  prepared: Prepared;
}

/**
 * Device that applies grammar constraints (guided decoding): it writes the token masks of constrained rows and
 * delegates the step to another device. Rows carry their drawn tokens, so the device is stateless; matchers are caches.
 *
 * Masks delay no step for long. The work before each step is limited and goes first to the rows that had least of
 * it. As much work again runs while the device computes. A row whose mask is not ready is deferred to the next step
 * with the last token of its chunk, which must not update a recurrent state twice. A row without a possible next
 * token, or whose mask is too much work, fails alone.
 *
 * The matcher accepts a draft token by token, then rolls back. So each row after a draft token has the mask of a
 * single step after the same tokens. A draft is cut before the first token that its row does not allow, or whose
 * mask is not ready; work on that mask continues while the device computes.
 *
 * Forced (jump-forward) tokens follow a drawn token, and the engine computes them in one chunk. Rows with logprobs
 * are drawn token by token, because each logprob needs a row of logits.
 */
export class ConstrainedDevice implements Device {
  readonly spec: Device["spec"];
  readonly #device: Device;
  readonly #opening: Pieces<Masks>;
  /** null until `#opening` is done: by the warm-up, or by the first constrained row. */
  #openMasks: Masks | null = null;
  /** Masks of the rows of the step in flight, returned to the mask memory before the next step. */
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
    const byChunk = step.chunks.map((chunk) => this.#rowsOf(chunk));
    const rows = byChunk.flat();
    let left = this.#work(rows);
    const ahead = new Set<MaskJob>();
    for (const own of byChunk) left = this.#readDraft(own, left, ahead);
    const textsMax = TEXTS_SPARE + 2 * step.chunks.length;
    for (const sequence of this.#texts.keys()) {
      if (this.#texts.size <= textsMax) break;
      this.#texts.delete(sequence);
    }
    const chunks = step.chunks.flatMap((chunk, index) => this.#cut(chunk, byChunk[index]!));
    this.#device.start({ ...step, chunks }, (result) =>
      done(result.kind === "done" ? { ...result, sampled: this.#sampled(rows, result.sampled) } : result),
    );
    // Prepares masks for the next step.
    let spare = this.#work(rows.map((row) => ({ ...row })));
    for (const job of ahead) spare -= workAhead(job, spare);
  }

  close(): void {
    this.#device.close();
  }

  #rowsOf({ sequence, samples, tokens, drafted = 0 }: Chunk): GivenRow[] {
    return samples.map((given, index): GivenRow => {
      const isDraft = index >= samples.length - drafted;
      const draft = isDraft ? tokens[given.afterIndex]! : null;
      // The text before a draft comes first.
      const prepared: Prepared =
        isDraft && isConstrained(given) ? { kind: "cut" } : this.#prepare(sequence, given);
      return { sequence, given, draft, prepared };
    });
  }

  /**
   * Reads the draft of a chunk's constrained sequence, and prepares its rows. Returns what is left of the work
   * limit; `ahead` gets jobs of masks that are not ready.
   */
  #readDraft(rows: readonly GivenRow[], left: number, ahead: Set<MaskJob>): number {
    const drafts = rows.filter(({ draft }) => draft !== null);
    const before = rows[rows.length - drafts.length - 1];
    const text = before === undefined ? undefined : this.#texts.get(before.sequence);
    if (drafts.length === 0 || text === undefined || before?.prepared.kind !== "row") return left;
    const { matcher } = text;
    const mark = matcher.mark();
    let spare = left;
    let { row } = before.prepared;
    for (const draft of drafts) {
      const { given } = draft;
      if (spare <= 0 || !isConstrained(given) || row.wants !== undefined || !isAllowed(row, draft.draft!))
        break;
      if (!matcher.accept(draft.draft!)) break;
      spare -= READ_STEPS;
      const prepared = this.#attempt(() => this.#rowAt(matcher, given, given.constraint));
      if (prepared.kind === "waits") ahead.add(prepared.job);
      if (prepared.kind !== "row") break;
      draft.prepared = prepared;
      row = prepared.row;
    }
    matcher.goBack(mark);
    return spare;
  }

  /**
   * Returns the part of a chunk that the device computes. It ends before the first draft whose row is not ready. If
   * the row of the last known token is deferred, that token and the checkpoint after it are left out too.
   */
  #cut(chunk: Chunk, rows: readonly GivenRow[]): Chunk | [] {
    const { drafted = 0, ...rest } = chunk;
    const known = rows.slice(0, rows.length - drafted);
    const isDeferred = known.some(({ prepared }) => prepared.kind === "waits");
    const isLost = known.some(({ prepared }) => prepared.kind === "failed");
    const drafts = rows.slice(rows.length - drafted);
    const end = isDeferred || isLost ? 0 : drafts.findIndex(({ prepared }) => prepared.kind !== "row");
    const kept = end < 0 ? drafted : end;
    for (const draft of drafts.slice(kept)) draft.prepared = { kind: "cut" };
    const samples = rows.flatMap(({ prepared }) => (prepared.kind === "row" ? prepared.row : []));
    const count = chunk.tokens.length - (drafted - kept) - (isDeferred ? 1 : 0);
    if (count === 0) return [];
    const all = { ...rest, samples, ...(kept === 0 ? {} : { drafted: kept }) };
    if (count === chunk.tokens.length) return all;
    const tokens = chunk.tokens.subarray(0, count);
    const pages = chunk.pages.subarray(0, Math.ceil((chunk.start + count) / this.spec.pageTokens));
    if (chunk.state === undefined) return { ...all, tokens, pages };
    const saves = chunk.state.saves.filter((save) => save.count <= count);
    return { ...all, tokens, pages, state: { ...chunk.state, saves } };
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

  /** Computes masks of waiting rows up to the work limit, the least advanced first; returns the rest of the limit. */
  #work(rows: readonly GivenRow[]): number {
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
    return left;
  }

  /** Results of all rows of a step, in order; `drawn` has those of the prepared rows only. */
  #sampled(rows: readonly GivenRow[], drawn: readonly Sampled[]): Sampled[] {
    let next = 0;
    /** The last draw if all drafts before it were accepted; null: a draft was rejected. */
    let live: TokenId | null = null;
    return rows.map(({ sequence, given, draft, prepared }, index): Sampled => {
      if (prepared.kind === "waits" || prepared.kind === "cut") return { kind: "deferred", sequence };
      if (prepared.kind === "failed") return { kind: "failed", sequence, reason: prepared.reason };
      const one = drawn[next++]!;
      const counts = draft === null || draft === live;
      live = counts && one.kind === "token" ? one.token : null;
      if (live === null || !isConstrained(given) || given.sampling.topLogprobs !== null) return one;
      const matcher = this.#texts.get(sequence)?.matcher;
      if (matcher === undefined || given.constraint.endTokens.includes(live) || !matcher.accept(live))
        return one;
      const after = rows[index + 1];
      // The next row verifies the draft here, so no forced tokens are inserted.
      if (after?.prepared.kind === "row" && after.draft === live) return one;
      const forced = forcedAfter(matcher, given, given.constraint);
      return forced.length === 0 ? one : ({ ...one, forced } as Sampled);
    });
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
    return this.#rowAt(matcher, row, { endTokens });
  }

  /** Prepares a row whose text the matcher has read. */
  #rowAt(matcher: Matcher, row: SampleRow, { endTokens }: Pick<RowConstraint, "endTokens">): Prepared {
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
      return failed(isNone(mask) ? "no token of the model's vocabulary continues the text" : NONE_LEFT);
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
const NONE_LEFT = "allowed tokens, bad words and the minimum number of tokens leave no token to draw";

/** True if the row needs preparation before its draw. */
function isHeld(row: ChunkRow): row is SampleRow {
  return row.wants === undefined && (row.constraint !== undefined || row.allowed !== null);
}

/** Prepares a row that has no constraint. */
function free(row: SampleRow): Prepared {
  const isLost = row.allowed !== null && isNone(without(row.allowed.slice(), row.banned));
  return isLost ? failed(NONE_LEFT) : { kind: "row", row };
}

/** Tokens that are forced to follow those that the matcher has read. */
function forcedAfter(matcher: Matcher, row: SampleRow, { endTokens }: RowConstraint): number[] {
  const forced = matcher.forcedTokens(FORCED_MAX);
  const end = forced.findIndex((one) => endTokens.includes(one) || !isAllowed(row, one));
  return end < 0 ? forced : forced.slice(0, end);
}

/** Runs a job ahead of its row, up to a limit; returns the work done. A failed job starts again when its row comes. */
function workAhead(job: MaskJob, limit: number): number {
  const before = job.spent;
  try {
    if (limit > 0) job.run(limit);
  } catch (error) {
    if (!(error instanceof ConstraintError)) throw error;
  }
  return job.spent - before;
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
      throw new ConstraintError("the tokens drawn so far violate it");
  }
}

function isConstrained(row: ChunkRow): row is SampleRow & { readonly constraint: RowConstraint } {
  return row.wants === undefined && row.constraint !== undefined;
}

function isNone(mask: Mask): boolean {
  return mask.every((word) => word === 0);
}
