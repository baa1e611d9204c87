/**
 * Encodes a Step as the flat block of engine.h, and decodes the flat result to a StepResult. The block groups
 * chunks that share pages (shared-spans.ts); results come back in the order of the step.
 *
 * Each direction has one buffer, reused for every step and doubled when a step does not fit; encoding
 * allocates nothing else. Native code keeps their addresses between stepStart and stepWait, so both are
 * SharedArrayBuffers, whose storage never moves. Words are 32 bits, little-endian like every supported
 * machine.
 */
import { assert } from "../base/assert.ts";
import type {
  AdapterId,
  Chunk,
  ChunkRow,
  DeviceDraft,
  PageMove,
  PageTier,
  Sampled,
  SampleRow,
  SequenceId,
  Step,
  TokenLogprobs,
} from "../scheduler/core.ts";
import { type SharedSpan, sharingOrder } from "./shared-spans.ts";

const magic = 0x31505453;
/** Arrays of a block in the order of its header, with the words per entry. */
const entryWords = {
  moves: 4,
  tokens: 1,
  chunks: 15,
  pages: 1,
  rows: 20,
  pairs: 2,
  maskWords: 1,
  spans: 4,
  saves: 2,
  unread: 1,
} as const;
type ArrayName = keyof typeof entryWords;
const arrayNames = Object.keys(entryWords) as readonly ArrayName[];
/** A number for each array: its entry count, its first word, or its next entry to write. */
type Arrays = Record<ArrayName, number>;
/** Tier numbers of engine.h. */
const tiers: Readonly<Record<PageTier, number>> = { device: 0 };
const headerWords = 2 + 2 * arrayNames.length;
/** Layout of a block, for tools that read stored ones. */
export const blockLayout = { magic, arrayNames, headerWords, moveWords: entryWords.moves } as const;
const resultHeaderWords = 4;
const resultRowWords = 4;
/** Offsets of words in a row, and BUNTING_WANTS_HIDDEN. */
const afterIndexWord = 16;
const wantsWord = 17;
const wantsHidden = 1;
/**
 * Value of a missing state slot, of an unknown next token, and of the unread tokens of a chunk that the draft
 * model skips.
 */
const none = -1;
const noTokens = new Int32Array(0);

/** Integer, float and byte views of one buffer; native code receives `bytes`. */
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
  readonly #adapters: ReadonlyMap<AdapterId, number>;
  #words = new Words(1024);
  readonly #indices: RowIndices = { draws: new RowIndex(), hidden: new RowIndex() };

  /** `adapters`: slots of the engine's adapters. */
  constructor(vocabSize: number, pageTokens: number, adapters: ReadonlyMap<AdapterId, number> = new Map()) {
    this.#maskWords = Math.ceil(vocabSize / 32);
    this.#pageTokens = pageTokens;
    this.#adapters = adapters;
  }

  /** Buffer of the last encoded block; the header says how much of it is used. Replaced when it grows. */
  get bytes(): Uint8Array {
    return this.#words.bytes;
  }

  /**
   * Index of each drawing row of the last step among all drawing rows of the block, in the order of the step.
   */
  get draws(): Int32Array {
    return this.#indices.draws.inOrder;
  }

  /** Index of each hidden-state row, likewise. */
  get hidden(): Int32Array {
    return this.#indices.hidden.inOrder;
  }

  encode(step: Step): void {
    const { order, spans } = sharingOrder(step.chunks, this.#pageTokens);
    const at = this.#begin(this.#count(step, spans.length));
    this.#encodeMoves(at.moves, step.moves);
    this.#encodeChunks(at, step.chunks, order);
    this.#encodeSpans(at, spans, order.length);
  }

  #count({ moves, chunks }: Step, spans: number): Arrays {
    const counts = { moves: moves.length, tokens: 0, chunks: chunks.length, pages: 0, saves: 0, unread: 0 };
    const ofRows = { rows: 0, pairs: 0, maskWords: 0 };
    for (const { tokens, pages, samples, state, unread } of chunks) {
      counts.tokens += tokens.length;
      counts.unread += unread?.length ?? 0;
      counts.pages += pages.length;
      counts.saves += state?.saves.length ?? 0;
      for (const sample of samples) {
        ofRows.rows += 1;
        if (sample.wants === "hidden") continue;
        ofRows.pairs += pairCount(sample);
        if (sample.allowed !== null) ofRows.maskWords += this.#maskWords;
      }
    }
    return { ...counts, ...ofRows, spans };
  }

  /** Ensures capacity, writes the header and returns the first word of each array. */
  #begin(counts: Arrays): Arrays {
    const at = { ...counts };
    let total = headerWords;
    for (const name of arrayNames) {
      at[name] = total;
      total += counts[name] * entryWords[name];
    }
    this.#reserve(total);
    for (const indices of [this.#indices.draws, this.#indices.hidden])
      indices.reserve(counts.chunks, counts.rows);
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

  #slotOf(adapter: AdapterId): number {
    const slot = this.#adapters.get(adapter);
    assert(slot !== undefined, `a chunk names adapter ${adapter}, which this engine does not have`);
    return slot;
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

  /** Writes the chunks with their tokens, pages, rows and saves, in the given order. */
  #encodeChunks(at: Arrays, chunks: readonly Chunk[], order: readonly number[]): void {
    const { ints } = this.#words;
    const { draws, hidden } = this.#indices;
    const next = { tokens: 0, pages: 0, rows: 0, pairs: 0, maskWords: 0, draws: 0, hidden: 0 };
    let to = at.chunks;
    let save = at.saves;
    let unreadAt = at.unread;
    for (const index of order) {
      const {
        start,
        tokens,
        pages,
        samples,
        adapter,
        secondAt = 0,
        state,
        next: after,
        drafts = 0,
        unread = noTokens,
      } = chunks[index]!;
      ints[to++] = next.tokens;
      ints[to++] = tokens.length;
      ints[to++] = start;
      ints[to++] = next.pages;
      ints[to++] = pages.length;
      ints[to++] = next.rows;
      ints[to++] = samples.length;
      ints[to++] = adapter === 0 ? 0 : this.#slotOf(adapter);
      ints[to++] = secondAt;
      ints[to++] = state?.slot ?? none;
      ints[to++] = state?.from ?? none;
      ints[to++] = state?.saves.length ?? 0;
      ints[to++] = after ?? none;
      ints[to++] = drafts;
      ints[to++] = unread?.length ?? none;
      if (unread !== null) ints.set(unread, unreadAt);
      unreadAt += unread?.length ?? 0;
      for (const { count, slot } of state?.saves ?? []) {
        ints[save++] = count;
        ints[save++] = slot;
      }
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

  /** Writes a row with its pairs and its mask at the next entries of their arrays. */
  #encodeRow(at: Arrays, next: Pick<Arrays, "rows" | "pairs" | "maskWords">, row: ChunkRow): void {
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

  /**
   * Writes spans; each names its chunks by the first tokens of its first chunk and of the chunk after its
   * last.
   */
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

/** Block indices of the rows, by kind. */
interface RowIndices {
  readonly draws: RowIndex;
  readonly hidden: RowIndex;
}

/** Maps a step's rows of one kind to those of the block, whose chunks have another order. */
class RowIndex {
  /** Block index of the next row to add, by chunk of the step. */
  first = new Int32Array(64);
  #inOrder = new Int32Array(64);
  #count = 0;

  /** Ensures capacity and clears the indices of the previous step. */
  reserve(chunks: number, rows: number): void {
    this.first = withRoom(this.first, chunks);
    this.#inOrder = withRoom(this.#inOrder, rows);
    this.#count = 0;
  }

  /** Adds the next row of a chunk. */
  add(chunk: number): void {
    this.#inOrder[this.#count++] = this.first[chunk]!++;
  }

  get inOrder(): Int32Array {
    return this.#inOrder.subarray(0, this.#count);
  }
}

/** Returns the array, or a larger one with unspecified contents. */
function withRoom(array: Int32Array<ArrayBuffer>, count: number): Int32Array<ArrayBuffer> {
  return array.length < count ? new Int32Array(2 * count) : array;
}

function pairCount({ sampling, banned, seen }: SampleRow): number {
  return sampling.logitBias.length + banned.length + (seen === null ? 0 : seen.length);
}

/** Maximum size of a step's result. */
export interface ResultLimits {
  readonly drawsMax: number;
  readonly topLogprobsMax: number;
  readonly hiddenMax: number;
  /** Numbers per hidden state. */
  readonly hiddenSize: number;
  /** Maximum draft tokens after a chunk; absent: none. */
  readonly draftsMax?: number;
}

/** Buffer where the engine writes the results of a step's rows, sized for the maximum. */
export class StepResultBlock {
  readonly #words: Words;
  readonly #stride: number;
  /** First word of a row's draft; null: there are no drafts. */
  readonly #draftsAt: number | null;
  readonly #hiddenSize: number;

  constructor({ drawsMax, topLogprobsMax, hiddenMax, hiddenSize, draftsMax = 0 }: ResultLimits) {
    const ownWords = resultRowWords + 2 * topLogprobsMax;
    this.#stride = ownWords + (draftsMax > 0 ? 1 + 2 * draftsMax : 0);
    this.#draftsAt = draftsMax > 0 ? ownWords : null;
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

  /** Part of it that the engine spent on drafting. */
  get draftsMs(): number {
    return this.#words.floats[3]!;
  }

  /** Results of the rows of `step` in its order; `rows` maps them to rows of the block. */
  decode(step: Step, rows: Pick<StepBlock, "draws" | "hidden">): Sampled[] {
    const { ints, floats } = this.#words;
    const { draws, hidden } = rows;
    assert(ints[0] === draws.length, `the engine drew ${ints[0]} rows of ${draws.length}`);
    assert(ints[2] === hidden.length, `the engine returned ${ints[2]} hidden states of ${hidden.length}`);
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
    const drafts = this.#drafts(at);
    return {
      kind: "token",
      sequence,
      token: ints[at + 1]!,
      logprobs,
      ...(drafts === null ? {} : { drafts }),
    };
  }

  /** Tokens that the engine drafted after a sampled one; null for none. */
  #drafts(at: number): DeviceDraft | null {
    const { ints, floats } = this.#words;
    const count = this.#draftsAt === null ? 0 : ints[at + this.#draftsAt]!;
    if (count === 0) return null;
    const pairs = Array.from({ length: count }, (_, i) => at + this.#draftsAt! + 1 + 2 * i);
    return {
      tokens: pairs.map((pair) => ints[pair]!),
      probabilities: pairs.map((pair) => Math.exp(floats[pair + 1]!)),
    };
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
      return "no token was allowed";
    default:
      return `the engine failed this row with status ${status}`;
  }
}
