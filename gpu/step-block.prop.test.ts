/**
 * Round trip: decoding a block by the layout in csrc/include/engine.h, without the encoder's help, gives the
 * step back.
 */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  type Chunk,
  type ChunkRow,
  greedySampling,
  type PageId,
  type SampleRow,
  type SequenceId,
  type StateSlot,
  type Step,
} from "../scheduler/core.ts";
import { runs } from "../tests/support/property.ts";
import { sharingOrder } from "./shared-spans.ts";
import { StepBlock, StepResultBlock } from "./step-block.ts";

const vocabSize = 70;
const maskWords = 3;

const float = fc.float({ min: 0, max: 2, noNaN: true, noDefaultInfinity: true }).map((x) => x + 0);
const token = fc.nat(vocabSize - 1);
const row: fc.Arbitrary<SampleRow> = fc.record({
  afterIndex: fc.nat(39),
  sampling: fc.record({
    temperature: float,
    topK: fc.nat(100),
    topP: float,
    minP: float,
    repetitionPenalty: float,
    presencePenalty: float,
    frequencyPenalty: float,
    logitBias: fc.array(fc.tuple(token, float), { maxLength: 4 }),
    allowedTokens: fc.constant(null),
    badWords: fc.constant([]),
    seed: fc.tuple(fc.nat(0xffffffff), fc.nat(0xffffffff)),
    topLogprobs: fc.option(fc.nat(5)),
  }),
  position: fc.nat(10_000),
  banned: fc.array(token, { maxLength: 3 }),
  seen: fc.option(
    fc.array(fc.tuple(token, fc.nat(50)), { maxLength: 6 }).chain((pairs) =>
      fc.nat(pairs.length).map((length) => ({
        tokens: Int32Array.from(pairs, ([seen]) => seen),
        counts: Int32Array.from(pairs, ([, count]) => count),
        length,
      })),
    ),
  ),
  allowed: fc.option(
    fc
      .array(fc.nat(0xffffffff), { minLength: maskWords, maxLength: maskWords })
      .map((x) => Uint32Array.from(x)),
  ),
});
const hiddenRow: fc.Arbitrary<ChunkRow> = fc.record({
  wants: fc.constant("hidden" as const),
  afterIndex: fc.nat(39),
});
const wantedRow: fc.Arbitrary<ChunkRow> = fc.oneof(row, hiddenRow);
const ints = (max: number, options: fc.ArrayConstraints) =>
  fc.array(fc.nat(max), options).map((values) => Int32Array.from(values));
const slot = fc.nat(63).map((id) => id as StateSlot);
const state = fc.record({
  slot,
  from: fc.option(slot),
  saves: fc.array(fc.record({ count: fc.integer({ min: 1, max: 40 }), slot }), { maxLength: 3 }),
});
/** Slots of adapters, whose numbers have up to 48 bits. */
const adapterSlots = new Map([
  [2 ** 47 + 5, 1],
  [7, 2],
  [123_456_789_012, 3],
]);

const statelessChunk = fc.record({
  sequence: fc.nat(1000).map((id) => id as SequenceId),
  start: fc.nat(4000),
  tokens: ints(vocabSize - 1, { minLength: 1, maxLength: 40 }),
  pages: ints(63, { minLength: 1, maxLength: 8 }),
  samples: fc.array(wantedRow, { maxLength: 3 }),
  adapter: fc.constantFrom(0, ...adapterSlots.keys()),
  secondAt: fc.nat(2),
});
const chunk: fc.Arbitrary<Chunk> = fc.oneof(
  statelessChunk,
  statelessChunk.map((plain) => ({ ...plain, next: 7 })),
  statelessChunk.map((plain) => ({ ...plain, drafts: 3 })),
  statelessChunk.map((plain) => ({ ...plain, unread: null })),
  fc
    .tuple(statelessChunk, ints(vocabSize - 1, { maxLength: 5 }))
    .map(([plain, unread]) => ({ ...plain, unread })),
  fc.tuple(statelessChunk, state).map(([plain, state]) => ({ ...plain, state })),
);
const page = fc.nat(63).map((id) => id as PageId);
const move = fc.record({
  from: page,
  tier: fc.constant("device" as const),
  to: page,
  count: fc.integer({ min: 1, max: 16 }),
});
const step: fc.Arbitrary<Step> = fc.record({
  number: fc.nat(),
  moves: fc.array(move, { maxLength: 3 }),
  chunks: fc.array(chunk, { maxLength: 12 }),
});

/** Decodes a block to the words of a step; blocks hold no sequence ids. */
function decode(bytes: Uint8Array) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const int = (word: number): number => view.getInt32(word * 4, true);
  const uint = (word: number): number => view.getUint32(word * 4, true);
  const real = (word: number): number => view.getFloat32(word * 4, true);
  expect(uint(0)).toBe(0x31505453);
  const array = (index: number) => ({ count: int(2 + index), at: int(12 + index) });
  const moves = array(0);
  const tokens = array(1);
  const chunks = array(2);
  const pages = array(3);
  const rows = array(4);
  const pairs = array(5);
  const masks = array(6);
  const spans = array(7);
  const saves = array(8);
  const unread = array(9);
  const widths = [4, 1, 15, 1, 20, 2, 1, 4, 2, 1];
  expect(uint(1)).toBe(widths.reduce((sum, width, index) => sum + array(index).count * width, 22));
  expect(uint(1) * 4).toBeLessThanOrEqual(bytes.byteLength);

  const pair = (index: number) => pairs.at + 2 * index;
  const decodeRow = (index: number) => {
    const at = rows.at + 20 * index;
    const maskAt = int(at + 14);
    expect([18, 19].map((word) => int(at + word))).toEqual([0, 0]);
    if (int(at + 17) === 1) {
      const others = Array.from({ length: 16 }, (_, word) => int(at + word));
      expect(others).toEqual(others.map(() => 0));
      return { hidden: int(at + 16) };
    }
    expect(int(at + 17)).toBe(0);
    return {
      afterIndex: int(at + 16),
      reals: [0, 1, 2, 3, 4, 5].map((word) => real(at + word)),
      topK: int(at + 6),
      seed: [uint(at + 7), uint(at + 8)],
      position: int(at + 9),
      biases: Array.from({ length: int(at + 11) }, (_, i) => {
        const word = pair(int(at + 10) + i);
        return [int(word), real(word + 1)];
      }),
      seen: Array.from({ length: int(at + 13) }, (_, i) => {
        const word = pair(int(at + 12) + i);
        return [int(word), int(word + 1)];
      }),
      allowed: maskAt < 0 ? null : Array.from({ length: maskWords }, (_, i) => uint(masks.at + maskAt + i)),
      topLogprobs: int(at + 15),
    };
  };
  let savesRead = 0;
  let unreadRead = 0;
  return {
    moves: Array.from({ length: moves.count }, (_, i) => [0, 1, 2, 3].map((w) => int(moves.at + 4 * i + w))),
    chunks: Array.from({ length: chunks.count }, (_, i) => {
      const at = chunks.at + 15 * i;
      const words = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((w) => int(at + w));
      const firstSave = savesRead;
      savesRead += int(at + 11);
      const firstUnread = unreadRead;
      unreadRead += Math.max(0, int(at + 14));
      const [first, count, start, pagesAt, pageCount, firstRow, rowCount, adapter, secondAt] = words;
      return {
        start,
        tokens: Array.from({ length: count! }, (_, t) => int(tokens.at + first! + t)),
        pages: Array.from({ length: pageCount! }, (_, p) => int(pages.at + pagesAt! + p)),
        samples: Array.from({ length: rowCount! }, (_, r) => decodeRow(firstRow! + r)),
        adapter,
        secondAt,
        state: [int(at + 9), int(at + 10)],
        next: int(at + 12),
        drafts: int(at + 13),
        unread:
          int(at + 14) < 0
            ? null
            : Array.from({ length: int(at + 14) }, (_, t) => int(unread.at + firstUnread + t)),
        saves: Array.from({ length: int(at + 11) }, (_, s) =>
          [0, 1].map((w) => int(saves.at + 2 * (firstSave + s) + w)),
        ),
      };
    }),
    left: [saves.count - savesRead, unread.count - unreadRead],
    spans: Array.from({ length: spans.count }, (_, i) => [0, 1, 2, 3].map((w) => int(spans.at + 4 * i + w))),
    firstTokens: Array.from({ length: chunks.count }, (_, i) => int(chunks.at + 15 * i)),
    tokens: tokens.count,
  };
}

/** Words of a step, with reals rounded to f32. */
function wordsOf({ moves, chunks }: Step) {
  const rowOf = (row: ChunkRow) => (row.wants === "hidden" ? { hidden: row.afterIndex } : drawOf(row));
  const drawOf = ({ afterIndex, sampling, position, banned, seen, allowed }: SampleRow) => ({
    afterIndex,
    reals: [
      sampling.temperature,
      sampling.topP,
      sampling.minP,
      sampling.repetitionPenalty,
      sampling.presencePenalty,
      sampling.frequencyPenalty,
    ],
    topK: sampling.topK,
    seed: [...sampling.seed],
    position,
    biases: [
      ...sampling.logitBias.map(([biased, bias]) => [biased, bias]),
      ...banned.map((token) => [token, Number.NEGATIVE_INFINITY]),
    ],
    seen: Array.from({ length: seen?.length ?? 0 }, (_, i) => [seen!.tokens[i], seen!.counts[i]]),
    allowed: allowed === null ? null : [...allowed],
    topLogprobs: sampling.topLogprobs ?? -1,
  });
  return {
    moves: moves.map(({ from, to, count }) => [from as number, to as number, count, 0]),
    chunks: chunks.map(
      ({ start, tokens, pages, samples, adapter, secondAt = 0, state, next, drafts, unread }) => ({
        start,
        tokens: [...tokens],
        pages: [...pages],
        samples: samples.map(rowOf),
        adapter: adapter === 0 ? 0 : adapterSlots.get(adapter)!,
        secondAt,
        state: [state?.slot ?? -1, state?.from ?? -1] as number[],
        next: next ?? -1,
        drafts: drafts ?? 0,
        unread: unread === null ? null : [...(unread ?? [])],
        saves: state?.saves.map(({ count, slot }) => [count, slot as number]) ?? [],
      }),
    ),
  };
}

describe("a step block", () => {
  test("says what the step says, whatever was in the buffer before", () => {
    const block = new StepBlock(vocabSize, 16, adapterSlots);
    fc.assert(
      fc.property(step, (wanted) => {
        block.encode(wanted);
        const { moves, chunks, left, spans, firstTokens, tokens } = decode(block.bytes);
        expect(left).toEqual([0, 0]);
        const words = wordsOf(wanted);
        const sharing = sharingOrder(wanted.chunks, 16);
        expect<unknown>(moves).toEqual(words.moves);
        expect<unknown>(chunks).toEqual(sharing.order.map((index) => words.chunks[index]));
        const row = (chunkIndex: number) => firstTokens[chunkIndex] ?? tokens;
        expect(spans).toEqual(
          sharing.spans.map(({ chunkBegin, chunkEnd, begin, end }) => [
            row(chunkBegin),
            row(chunkEnd),
            begin,
            end,
          ]),
        );
      }),
      runs(300),
    );
  });

  test("grows by doubling and stays where it is otherwise", () => {
    const block = new StepBlock(vocabSize, 16);
    const sized = (tokens: number): Step => ({
      number: 1,
      moves: [],
      chunks: [
        {
          sequence: 1 as SequenceId,
          start: 0,
          tokens: new Int32Array(tokens),
          pages: new Int32Array(1),
          samples: [],
          adapter: 0,
        },
      ],
    });
    block.encode(sized(1));
    const { bytes } = block;
    block.encode(sized(900));
    expect(block.bytes).toBe(bytes);
    block.encode(sized(1000));
    expect(block.bytes.byteLength).toBe(2 * bytes.byteLength);
    expect(bytes.buffer).toBeInstanceOf(SharedArrayBuffer);
  });
});

describe("a step result", () => {
  const noRows = new Int32Array(0);
  const row = (topLogprobs: number | null): SampleRow => ({
    afterIndex: 0,
    sampling: { topLogprobs } as SampleRow["sampling"],
    position: 0,
    banned: [],
    seen: null,
    allowed: null,
  });
  /** A step with one chunk per list of rows. */
  const stepOf = (chunks: readonly (readonly ChunkRow[])[]): Step => ({
    number: 1,
    moves: [],
    chunks: chunks.map((samples, i) => ({
      sequence: (10 + i) as SequenceId,
      start: 0,
      tokens: new Int32Array(1),
      pages: new Int32Array(1),
      samples,
      adapter: 0,
    })),
  });
  const limits = { drawsMax: 4, topLogprobsMax: 2, hiddenMax: 3, hiddenSize: 2 };
  /** Result that an engine with room for two alternatives per row writes. */
  const written = (rows: readonly (readonly number[])[], hidden: readonly number[] = []): StepResultBlock => {
    const result = new StepResultBlock(limits);
    const view = new DataView(result.bytes.buffer);
    view.setInt32(0, rows.length, true);
    view.setFloat32(4, 12.5, true);
    view.setInt32(8, hidden.length / 2, true);
    hidden.forEach((value, i) => {
      view.setFloat32(16 + rows.length * 32 + 4 * i, value, true);
    });
    rows.forEach(([status, token, logprob, count, ...top], r) => {
      const at = 16 + r * 32;
      [status!, token!].forEach((value, i) => {
        view.setInt32(at + 4 * i, value, true);
      });
      view.setFloat32(at + 8, logprob!, true);
      view.setInt32(at + 12, count!, true);
      top.forEach((value, i) => {
        if (i % 2 === 0) view.setInt32(at + 16 + 4 * i, value, true);
        else view.setFloat32(at + 16 + 4 * i, value, true);
      });
    });
    return result;
  };

  test("gives each row of a chunk what was drawn for it, logprobs only where they were asked for", () => {
    const result = written([
      [0, 7, -0.5, 2, 7, -0.5, 8, -1.5],
      [0, 9, -2.25, 0],
    ]);
    expect(result.deviceMs).toBe(12.5);
    expect(
      result.decode(stepOf([[row(2)], [], [row(null)]]), { draws: Int32Array.of(0, 1), hidden: noRows }),
    ).toEqual([
      {
        kind: "token",
        sequence: 10 as SequenceId,
        token: 7,
        logprobs: {
          logprob: -0.5,
          top: [
            { token: 7, logprob: -0.5 },
            { token: 8, logprob: -1.5 },
          ],
        },
      },
      { kind: "token", sequence: 12 as SequenceId, token: 9, logprobs: null },
    ]);
  });

  test("has the drafts of a model's head behind the draws that have some", () => {
    const result = new StepResultBlock({ ...limits, topLogprobsMax: 0, draftsMax: 2 });
    const ints = new Int32Array(result.bytes.buffer);
    const reals = new Float32Array(result.bytes.buffer);
    ints.set([2, 0, 0, 0]);
    ints.set([0, 7, 0, 0, 0], 4);
    ints.set([0, 9, 0, 0, 2, 11, 0, 12, 0], 13);
    reals[19] = -0.5;
    reals[21] = -2;
    const [first, second] = result.decode(stepOf([[row(null)], [row(null)]]), {
      draws: Int32Array.of(0, 1),
      hidden: noRows,
    });
    expect(first).toEqual({ kind: "token", sequence: 10 as SequenceId, token: 7, logprobs: null });
    expect(second).toMatchObject({
      token: 9,
      drafts: { tokens: [11, 12], probabilities: [Math.exp(-0.5), Math.exp(-2)] },
    });
  });

  test("puts rows back into the order of the step", () => {
    const drawn = { ...row(null), sampling: greedySampling };
    const step = stepOf([[drawn], [], [drawn], [drawn, drawn]]);
    const shared = { start: 16, pages: Int32Array.of(5, 6) };
    const block = new StepBlock(vocabSize, 16);
    block.encode({
      ...step,
      chunks: step.chunks.map((each, i) =>
        i === 2 ? { ...each, start: 16, pages: Int32Array.of(9, 10) } : { ...each, ...shared },
      ),
    });
    // Order in the block: the three chunks that share a page, then the other one.
    expect(block.draws).toEqual(Int32Array.of(0, 3, 1, 2));
    const result = written([
      [0, 1, -1, 0],
      [0, 2, -1, 0],
      [0, 3, -1, 0],
      [0, 4, -1, 0],
    ]);
    const tokens = result.decode(step, block).map((each) => (each.kind === "token" ? each.token : null));
    expect(tokens).toEqual([1, 4, 2, 3]);
  });

  test("tells why a row failed", () => {
    const result = written([
      [1, 0, 0, 0],
      [2, 0, 0, 0],
      [0, 3, -1, 0],
    ]);
    const places = { draws: Int32Array.of(0, 1, 2), hidden: noRows };
    expect(result.decode(stepOf([[row(null)], [row(null), row(null)]]), places)).toEqual([
      {
        kind: "failed",
        sequence: 10 as SequenceId,
        reason: "the model computed logits that are not finite",
      },
      { kind: "failed", sequence: 11 as SequenceId, reason: "no token was allowed" },
      { kind: "token", sequence: 11 as SequenceId, token: 3, logprobs: null },
    ]);
  });

  test("has hidden states behind the draws; one that is not finite fails its sequence", () => {
    const state: ChunkRow = { wants: "hidden", afterIndex: 0 };
    const result = written([[0, 3, -1, 0]], [1, 2, 3, Number.NaN, 5, 6]);
    const step = stepOf([[state, { ...row(null), sampling: greedySampling }], [state], [state]]);
    const places = { draws: Int32Array.of(0), hidden: Int32Array.of(2, 0, 1) };
    expect(result.decode(step, places)).toEqual([
      { kind: "hidden", sequence: 10 as SequenceId, hidden: Float32Array.of(5, 6) },
      { kind: "token", sequence: 10 as SequenceId, token: 3, logprobs: null },
      { kind: "hidden", sequence: 11 as SequenceId, hidden: Float32Array.of(1, 2) },
      {
        kind: "failed",
        sequence: 12 as SequenceId,
        reason: "the model computed hidden states that are not finite",
      },
    ]);
  });

  test("with another number of rows than the step wanted is a bug", () => {
    const both = stepOf([[row(null), row(null)]]);
    expect(() =>
      written([[0, 3, -1, 0]]).decode(both, { draws: Int32Array.of(0, 1), hidden: noRows }),
    ).toThrow("the engine drew 1 rows of 2");
    const hidden = Int32Array.of(0);
    expect(() => written([]).decode(both, { draws: noRows, hidden })).toThrow(
      "the engine returned 0 hidden states of 1",
    );
  });
});
