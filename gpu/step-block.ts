/**
 * A Step as the flat block of engine.h, and the flat result as a StepResult. In the block chunks that share pages lie
 * together (shared-spans.ts); results come back in the order of the step.
 *
 * One buffer per direction, reused for every step and doubled when a step does not fit; nothing else is
 * allocated on the way in. Both are shared memory: native code keeps their addresses between stepStart and
 * stepWait, and a SharedArrayBuffer's storage never moves. Words are 32 bits, little-endian as every machine
 * here.
 */
import { assert } from "../base/assert.ts";
import type {
  Chunk,
  PageMove,
  PageTier,
  Sampled,
  SampleRow,
  SequenceId,
  Step,
  TokenLogprobs,
  WantedRow,
} from "../scheduler/core.ts";
import { type SharedSpan, sharingOrder } from "./shared-spans.ts";

const magic = 0x31505453;
/** The arrays of a block in the order of its header, and the words of an entry. */
const entryWords = {
  moves: 4,
  tokens: 1,
  chunks: 8,
  pages: 1,
  rows: 20,
  pairs: 2,
  maskWords: 1,
  spans: 4,
} as const;
type ArrayName = keyof typeof entryWords;
const arrayNames = Object.keys(entryWords) as readonly ArrayName[];
/** A number for each array: how many entries it has, at which word it begins, or which entry is written next. */
type Arrays = Record<ArrayName, number>;
/** By their values in engine.h. */
const tiers: Readonly<Record<PageTier, number>> = { device: 0 };
const headerWords = 2 + 2 * arrayNames.length;
const resultHeaderWords = 4;
const resultRowWords = 4;
/** Words of a row, and BUNTING_WANTS_HIDDEN. */
const afterIndexWord = 16;
const wantsWord = 17;
const wantsHidden = 1;

/** Both views over one buffer; `bytes` is what native code gets. */
class Words {
  readonly ints: Int32Array;
  readonly floats: Float32Array;
  readonly bytes: Uint8Array;

  constructor(count: number) {
    const buffer = new SharedArrayBuffer(count * 4);
    this.ints = new Int32Array(buffer);
    this.floats = new Float32Array(buffer);
    this.bytes = new Uint8Array(buffer);
  }
}

export class StepBlock {
  readonly #maskWords: number;
  readonly #pageTokens: number;
  #words = new Words(1024);
  readonly #places: RowPlaces = { draws: new Places(), hidden: new Places() };

  constructor(vocabSize: number, pageTokens: number) {
    this.#maskWords = Math.ceil(vocabSize / 32);
    this.#pageTokens = pageTokens;
  }

  /** The block last encoded, in its whole buffer: the header says how much of it counts. Changes when it
   *  grows. */
  get bytes(): Uint8Array {
    return this.#words.bytes;
  }

  /** Where the rows that the step last encoded draws from are among all such rows of the block, in the order of the step. */
  get draws(): Int32Array {
    return this.#places.draws.inOrder;
  }

  /** The same of the rows whose hidden states it wants. */
  get hidden(): Int32Array {
    return this.#places.hidden.inOrder;
  }

  encode(step: Step): void {
    const { order, spans } = sharingOrder(step.chunks, this.#pageTokens);
    const at = this.#begin(this.#count(step, spans.length));
    this.#encodeMoves(at.moves, step.moves);
    this.#encodeChunks(at, step.chunks, order);
    this.#encodeSpans(at, spans, order.length);
  }

  #count({ moves, chunks }: Step, spans: number): Arrays {
    const counts = { moves: moves.length, tokens: 0, chunks: chunks.length, pages: 0 };
    const ofRows = { rows: 0, pairs: 0, maskWords: 0 };
    for (const { tokens, pages, samples } of chunks) {
      counts.tokens += tokens.length;
      counts.pages += pages.length;
      for (const sample of samples) {
        ofRows.rows += 1;
        if (sample.wants === "hidden") continue;
        ofRows.pairs += pairCount(sample);
        if (sample.allowed !== null) ofRows.maskWords += this.#maskWords;
      }
    }
    return { ...counts, ...ofRows, spans };
  }

  /** Makes room, writes the header and returns at which words the arrays begin. */
  #begin(counts: Arrays): Arrays {
    const at = { ...counts };
    let total = headerWords;
    for (const name of arrayNames) {
      at[name] = total;
      total += counts[name] * entryWords[name];
    }
    this.#reserve(total);
    for (const places of [this.#places.draws, this.#places.hidden])
      places.reserve(counts.chunks, counts.rows);
    const { ints } = this.#words;
    let to = 0;
    ints[to++] = magic;
    ints[to++] = total;
    for (const name of arrayNames) ints[to++] = counts[name];
    for (const name of arrayNames) ints[to++] = at[name];
    return at;
  }

  #reserve(words: number): void {
    let capacity = this.#words.ints.length;
    if (words <= capacity) return;
    while (capacity < words) capacity *= 2;
    this.#words = new Words(capacity);
  }

  #encodeMoves(at: number, moves: readonly PageMove[]): void {
    const { ints } = this.#words;
    let word = at;
    for (const { from, to, count, tier } of moves) {
      ints[word++] = from;
      ints[word++] = to;
      ints[word++] = count;
      ints[word++] = tiers[tier];
    }
  }

  /** The chunks with all that belongs to them, in the given order. */
  #encodeChunks(at: Arrays, chunks: readonly Chunk[], order: readonly number[]): void {
    const { ints } = this.#words;
    const { draws, hidden } = this.#places;
    const next = { tokens: 0, pages: 0, rows: 0, pairs: 0, maskWords: 0, draws: 0, hidden: 0 };
    let to = at.chunks;
    for (const index of order) {
      const { start, tokens, pages, samples, adapter } = chunks[index]!;
      ints[to++] = next.tokens;
      ints[to++] = tokens.length;
      ints[to++] = start;
      ints[to++] = next.pages;
      ints[to++] = pages.length;
      ints[to++] = next.rows;
      ints[to++] = samples.length;
      ints[to++] = adapter;
      ints.set(tokens, at.tokens + next.tokens);
      ints.set(pages, at.pages + next.pages);
      draws.first[index] = next.draws;
      hidden.first[index] = next.hidden;
      for (const row of samples) {
        this.#encodeRow(at, next, row);
        next.rows += 1;
        if (row.wants === "hidden") {
          next.hidden += 1;
          continue;
        }
        next.draws += 1;
        next.pairs += pairCount(row);
        if (row.allowed !== null) next.maskWords += this.#maskWords;
      }
      next.tokens += tokens.length;
      next.pages += pages.length;
    }
    for (const [index, { samples }] of chunks.entries()) {
      for (const { wants } of samples) (wants === "hidden" ? hidden : draws).add(index);
    }
  }

  /** Writes a row with its pairs and its mask, all at the next entries of their arrays. */
  #encodeRow(at: Arrays, next: Pick<Arrays, "rows" | "pairs" | "maskWords">, row: WantedRow): void {
    const { ints, floats } = this.#words;
    const to = at.rows + next.rows * entryWords.rows;
    ints.fill(0, to, to + entryWords.rows);
    ints[to + afterIndexWord] = row.afterIndex;
    if (row.wants === "hidden") {
      ints[to + wantsWord] = wantsHidden;
      return;
    }
    const { sampling, banned, seen, allowed } = row;
    const biasCount = sampling.logitBias.length + banned.length;
    floats[to] = sampling.temperature;
    floats[to + 1] = sampling.topP;
    floats[to + 2] = sampling.minP;
    floats[to + 3] = sampling.repetitionPenalty;
    floats[to + 4] = sampling.presencePenalty;
    floats[to + 5] = sampling.frequencyPenalty;
    ints[to + 6] = sampling.topK;
    ints[to + 7] = sampling.seed[0];
    ints[to + 8] = sampling.seed[1];
    ints[to + 9] = row.position;
    ints[to + 10] = next.pairs;
    ints[to + 11] = biasCount;
    ints[to + 12] = next.pairs + biasCount;
    ints[to + 13] = seen === null ? 0 : seen.length;
    ints[to + 14] = allowed === null ? -1 : next.maskWords;
    ints[to + 15] = sampling.topLogprobs ?? -1;
    this.#encodePairs(at.pairs + next.pairs * entryWords.pairs, row);
    if (allowed === null) return;
    assert(allowed.length === this.#maskWords, "a mask has one bit per vocabulary entry");
    ints.set(allowed, at.maskWords + next.maskWords);
  }

  #encodePairs(at: number, { sampling, banned, seen }: SampleRow): void {
    const { ints, floats } = this.#words;
    let to = at;
    for (const [token, bias] of sampling.logitBias) {
      ints[to++] = token;
      floats[to++] = bias;
    }
    for (const token of banned) {
      ints[to++] = token;
      floats[to++] = Number.NEGATIVE_INFINITY;
    }
    if (seen === null) return;
    for (let i = 0; i < seen.length; i += 1) {
      ints[to++] = seen.tokens[i]!;
      ints[to++] = seen.counts[i]!;
    }
  }

  /** Chunks of a span by the first tokens of the chunks where it begins and ends. */
  #encodeSpans(at: Arrays, spans: readonly SharedSpan[], chunks: number): void {
    const { ints } = this.#words;
    const tokens = at.chunks - at.tokens;
    const firstToken = (chunk: number): number =>
      chunk < chunks ? ints[at.chunks + chunk * entryWords.chunks]! : tokens;
    let to = at.spans;
    for (const { chunkBegin, chunkEnd, begin, end } of spans) {
      ints[to++] = firstToken(chunkBegin);
      ints[to++] = firstToken(chunkEnd);
      ints[to++] = begin;
      ints[to++] = end;
    }
  }
}

/** Of the rows of one kind. */
interface RowPlaces {
  readonly draws: Places;
  readonly hidden: Places;
}

/** Where a step's rows of one kind are among those of the block, whose chunks have another order. */
class Places {
  /** By chunk of the step: its next row that is not told yet. */
  first = new Int32Array(64);
  #inOrder = new Int32Array(64);
  #count = 0;

  /** Forgets the step before. */
  reserve(chunks: number, rows: number): void {
    this.first = withRoom(this.first, chunks);
    this.#inOrder = withRoom(this.#inOrder, rows);
    this.#count = 0;
  }

  /** The next row of a chunk. */
  add(chunk: number): void {
    this.#inOrder[this.#count++] = this.first[chunk]!++;
  }

  get inOrder(): Int32Array {
    return this.#inOrder.subarray(0, this.#count);
  }
}

/** The array, or a larger one whose content is unspecified. */
function withRoom(array: Int32Array<ArrayBuffer>, count: number): Int32Array<ArrayBuffer> {
  return array.length < count ? new Int32Array(2 * count) : array;
}

function pairCount({ sampling, banned, seen }: SampleRow): number {
  return sampling.logitBias.length + banned.length + (seen === null ? 0 : seen.length);
}

/** The most that a step's result may hold. */
export interface ResultLimits {
  readonly drawsMax: number;
  readonly topLogprobsMax: number;
  readonly hiddenMax: number;
  /** Numbers of a hidden state. */
  readonly hiddenSize: number;
}

/** Where the engine writes what came of a step's rows: memory for as many as there may be. */
export class StepResultBlock {
  readonly #words: Words;
  readonly #stride: number;
  readonly #hiddenSize: number;

  constructor({ drawsMax, topLogprobsMax, hiddenMax, hiddenSize }: ResultLimits) {
    this.#stride = resultRowWords + 2 * topLogprobsMax;
    this.#hiddenSize = hiddenSize;
    this.#words = new Words(resultHeaderWords + drawsMax * this.#stride + hiddenMax * hiddenSize);
  }

  get bytes(): Uint8Array {
    return this.#words.bytes;
  }

  /** Wall time of the computation. */
  get deviceMs(): number {
    return this.#words.floats[1]!;
  }

  /** What came of the rows of `step`, in their order; `places` says where each of them is in the block. */
  decode(step: Step, places: Pick<StepBlock, "draws" | "hidden">): Sampled[] {
    const { ints, floats } = this.#words;
    const { draws, hidden } = places;
    assert(ints[0] === draws.length, `the engine drew ${ints[0]} rows of ${draws.length}`);
    assert(ints[2] === hidden.length, `the engine told ${ints[2]} hidden states of ${hidden.length}`);
    assert(floats[1]! >= 0, "a step takes time");
    const sampled: Sampled[] = [];
    let nextDraw = 0;
    let nextHidden = 0;
    for (const { sequence, samples } of step.chunks) {
      for (const row of samples) {
        sampled.push(
          row.wants === "hidden"
            ? this.#hidden(sequence, draws.length, hidden[nextHidden++]!)
            : this.#drawn(sequence, row, draws[nextDraw++]!),
        );
      }
    }
    return sampled;
  }

  #drawn(sequence: SequenceId, { sampling }: SampleRow, place: number): Sampled {
    const { ints } = this.#words;
    const at = resultHeaderWords + place * this.#stride;
    const status = ints[at]!;
    if (status !== 0) return { kind: "failed", sequence, reason: rowFailure(status) };
    const logprobs = sampling.topLogprobs === null ? null : this.#logprobs(at);
    return { kind: "token", sequence, token: ints[at + 1]!, logprobs };
  }

  #hidden(sequence: SequenceId, draws: number, place: number): Sampled {
    const at = resultHeaderWords + draws * this.#stride + place * this.#hiddenSize;
    const hidden = this.#words.floats.slice(at, at + this.#hiddenSize);
    if (hidden.every(Number.isFinite)) return { kind: "hidden", sequence, hidden };
    return { kind: "failed", sequence, reason: "the model computed hidden states that are not finite" };
  }

  #logprobs(at: number): TokenLogprobs {
    const { ints, floats } = this.#words;
    const top = [];
    const count = ints[at + 3]!;
    for (let i = 0; i < count; i += 1) {
      const entry = at + resultRowWords + 2 * i;
      top.push({ token: ints[entry]!, logprob: floats[entry + 1]! });
    }
    return { logprob: floats[at + 2]!, top };
  }
}

function rowFailure(status: number): string {
  switch (status) {
    case 1:
      return "the model computed logits that are not finite";
    case 2:
      return "every token was forbidden";
    default:
      return `the engine failed this row with status ${status}`;
  }
}
