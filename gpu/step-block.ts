/**
 * A Step as the flat block of engine.h, and the flat result as a StepResult. In the block chunks that share pages lie
 * together (shared-spans.ts); results come back in the order of the step.
 *
 * One buffer per direction, reused for every step and doubled when a step does not fit; nothing else is
 * allocated on the way in. Both are shared memory: native code keeps their addresses between stepStart and
 * stepWait, and a SharedArrayBuffer's storage never moves. Words are 32 bits, little-endian as every machine
 * here.
 */
import { assert, type Sampled, type SampleRow, type Step, type TokenLogprobs } from "../scheduler/core.ts";
import { sharingOrder } from "./shared-spans.ts";

const magic = 0x31505453;
const headerWords = 18;
const copyWords = 4;
const chunkWords = 8;
const rowWords = 20;
const pairWords = 2;
const spanWords = 4;
const resultHeaderWords = 4;
const resultRowWords = 4;

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

/** Entries of each array of a block. */
interface Counts {
  tokens: number;
  pages: number;
  rows: number;
  pairs: number;
  masks: number;
}

export class StepBlock {
  readonly #maskWords: number;
  readonly #pageTokens: number;
  #words = new Words(1024);
  #rows = new Int32Array(64);
  #rowCount = 0;

  constructor(vocabSize: number, pageTokens: number) {
    this.#maskWords = Math.ceil(vocabSize / 32);
    this.#pageTokens = pageTokens;
  }

  /** The block last encoded, in its whole buffer: the header says how much of it counts. Changes when it
   *  grows. */
  get bytes(): Uint8Array {
    return this.#words.bytes;
  }

  /** The rows of the block in the order in which the step last encoded has them. */
  get rows(): Int32Array {
    return this.#rows.subarray(0, this.#rowCount);
  }

  encode(step: Step): void {
    const counts = this.#count(step);
    const { order, spans } = sharingOrder(step.chunks, this.#pageTokens);
    const copiesAt = headerWords;
    const tokensAt = copiesAt + step.copies.length * copyWords;
    const chunksAt = tokensAt + counts.tokens;
    const pagesAt = chunksAt + step.chunks.length * chunkWords;
    const rowsAt = pagesAt + counts.pages;
    const pairsAt = rowsAt + counts.rows * rowWords;
    const masksAt = pairsAt + counts.pairs * pairWords;
    const spansAt = masksAt + counts.masks * this.#maskWords;
    const total = spansAt + spans.length * spanWords;
    this.#reserve(total);
    if (this.#rows.length < order.length) this.#rows = new Int32Array(2 * order.length);
    const { ints } = this.#words;

    let at = 0;
    ints[at++] = magic;
    ints[at++] = total;
    ints[at++] = step.copies.length;
    ints[at++] = counts.tokens;
    ints[at++] = step.chunks.length;
    ints[at++] = counts.pages;
    ints[at++] = counts.rows;
    ints[at++] = counts.pairs;
    ints[at++] = counts.masks * this.#maskWords;
    ints[at++] = spans.length;
    ints[at++] = copiesAt;
    ints[at++] = tokensAt;
    ints[at++] = chunksAt;
    ints[at++] = pagesAt;
    ints[at++] = rowsAt;
    ints[at++] = pairsAt;
    ints[at++] = masksAt;
    ints[at++] = spansAt;
    assert(at === headerWords, "a step block's header has 18 words");

    for (const copy of step.copies) {
      ints[at++] = copy.from;
      ints[at++] = copy.to;
      ints[at++] = copy.count;
      ints[at++] = 0; // the tier: the device's own pages
    }

    let token = 0;
    let page = 0;
    let row = 0;
    let pair = 0;
    let mask = 0;
    at = chunksAt;
    for (const index of order) {
      const chunk = step.chunks[index]!;
      ints[at++] = token;
      ints[at++] = chunk.tokens.length;
      ints[at++] = chunk.start;
      ints[at++] = page;
      ints[at++] = chunk.pages.length;
      ints[at++] = row;
      ints[at++] = chunk.sample === null ? 0 : 1;
      ints[at++] = 0; // no adapter
      ints.set(chunk.tokens, tokensAt + token);
      ints.set(chunk.pages, pagesAt + page);
      token += chunk.tokens.length;
      page += chunk.pages.length;
      if (chunk.sample === null) continue;
      const { allowed } = chunk.sample;
      this.#rows[index] = row;
      const maskAt = allowed === null ? -1 : mask;
      this.#encodeRow(rowsAt + row * rowWords, chunk.sample, chunk.tokens.length - 1, pairsAt, pair, maskAt);
      row += 1;
      pair += pairCount(chunk.sample);
      if (allowed === null) continue;
      assert(allowed.length === this.#maskWords, "a mask has one bit per vocabulary entry");
      ints.set(allowed, masksAt + mask);
      mask += this.#maskWords;
    }
    this.#rowCount = 0;
    for (const [index, { sample }] of step.chunks.entries()) {
      if (sample !== null) this.#rows[this.#rowCount++] = this.#rows[index]!;
    }

    const firstToken = (chunk: number): number =>
      chunk < order.length ? ints[chunksAt + chunk * chunkWords]! : token;
    at = spansAt;
    for (const { chunkBegin, chunkEnd, begin, end } of spans) {
      ints[at++] = firstToken(chunkBegin);
      ints[at++] = firstToken(chunkEnd);
      ints[at++] = begin;
      ints[at++] = end;
    }
  }

  #count(step: Step): Counts {
    const counts: Counts = { tokens: 0, pages: 0, rows: 0, pairs: 0, masks: 0 };
    for (const { tokens, pages, sample } of step.chunks) {
      counts.tokens += tokens.length;
      counts.pages += pages.length;
      if (sample === null) continue;
      counts.rows += 1;
      counts.pairs += pairCount(sample);
      if (sample.allowed !== null) counts.masks += 1;
    }
    return counts;
  }

  #reserve(words: number): void {
    let capacity = this.#words.ints.length;
    if (words <= capacity) return;
    while (capacity < words) capacity *= 2;
    this.#words = new Words(capacity);
  }

  /** Writes a row at word `at`, and its pairs from entry `pair` of the pairs at word `pairsAt` on. */
  #encodeRow(
    at: number,
    row: SampleRow,
    afterIndex: number,
    pairsAt: number,
    pair: number,
    maskAt: number,
  ): void {
    const { ints, floats } = this.#words;
    const { sampling, banned, seen } = row;
    const biasCount = sampling.logitBias.length + banned.length;
    const seenCount = seen === null ? 0 : seen.length;
    floats[at] = sampling.temperature;
    floats[at + 1] = sampling.topP;
    floats[at + 2] = sampling.minP;
    floats[at + 3] = sampling.repetitionPenalty;
    floats[at + 4] = sampling.presencePenalty;
    floats[at + 5] = sampling.frequencyPenalty;
    ints[at + 6] = sampling.topK;
    ints[at + 7] = sampling.seed[0];
    ints[at + 8] = sampling.seed[1];
    ints[at + 9] = row.position;
    ints[at + 10] = pair;
    ints[at + 11] = biasCount;
    ints[at + 12] = pair + biasCount;
    ints[at + 13] = seenCount;
    ints[at + 14] = maskAt;
    ints[at + 15] = sampling.topLogprobs ?? -1;
    ints[at + 16] = afterIndex;
    ints.fill(0, at + 17, at + rowWords);

    let to = pairsAt + pair * pairWords;
    for (const [token, bias] of sampling.logitBias) {
      ints[to] = token;
      floats[to + 1] = bias;
      to += pairWords;
    }
    for (const token of banned) {
      ints[to] = token;
      floats[to + 1] = Number.NEGATIVE_INFINITY;
      to += pairWords;
    }
    for (let i = 0; i < seenCount; i += 1) {
      ints[to] = seen!.tokens[i]!;
      ints[to + 1] = seen!.counts[i]!;
      to += pairWords;
    }
  }
}

function pairCount({ sampling, banned, seen }: SampleRow): number {
  return sampling.logitBias.length + banned.length + (seen === null ? 0 : seen.length);
}

/** Where the engine writes what it drew: memory for as many rows as a step may have. */
export class StepResultBlock {
  readonly #words: Words;
  readonly #stride: number;

  constructor(rowsMax: number, topLogprobsMax: number) {
    this.#stride = resultRowWords + 2 * topLogprobsMax;
    this.#words = new Words(resultHeaderWords + rowsMax * this.#stride);
  }

  get bytes(): Uint8Array {
    return this.#words.bytes;
  }

  /** Wall time of the computation. */
  get deviceMs(): number {
    return this.#words.floats[1]!;
  }

  /** What came of the sampling chunks of `step`, in their order; `rows` says where each of them is in the block. */
  decode(step: Step, rows: Int32Array): Sampled[] {
    const { ints, floats } = this.#words;
    const sampled: Sampled[] = [];
    for (const { sequence, sample } of step.chunks) {
      if (sample === null) continue;
      const at = resultHeaderWords + rows[sampled.length]! * this.#stride;
      const status = ints[at]!;
      if (status === 0) {
        const logprobs = sample.sampling.topLogprobs === null ? null : this.#logprobs(at);
        sampled.push({ kind: "token", sequence, token: ints[at + 1]!, logprobs });
      } else {
        sampled.push({ kind: "failed", sequence, reason: rowFailure(status) });
      }
    }
    assert(ints[0] === sampled.length, `the engine drew ${ints[0]} rows of ${sampled.length}`);
    assert(floats[1]! >= 0, "a step takes time");
    return sampled;
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
