import type { TokenId } from "../base/token.ts";
import {
  type Chunk,
  type ChunkRow,
  greedySampling,
  type PageId,
  type PageMove,
  type Sampled,
  type SampleRow,
  type Sampling,
  type SequenceId,
  type StateSlot,
  type Step,
  type StepResult,
} from "../scheduler/core.ts";
import type { Device } from "../scheduler/device.ts";

export interface DeviceUnderTest {
  readonly device: Device;
  /** Computes and delivers the step in flight, if there is one. */
  settle(): void;
  /** Raw logits of the last step's rows, concatenated; absent if the device has none. */
  logits?(): Float32Array;
}

const generatedTokens = 6;

/** Way in which steps compute a sequence of 40 prompt tokens and its generated tokens. */
export interface Way extends StepsWay {
  readonly sampling: Sampling;
  /** Pages of the sequence; the first ones by default. */
  readonly pages?: readonly number[];
  /** True if the other sequences of the batch request hidden states too. */
  readonly hiddenCompany?: boolean;
}

/** Way in which steps compute the hidden states of 40 prompt tokens, or of every `every`th one. */
export interface HiddenWay extends StepsWay {
  readonly every?: number;
}

interface StepsWay {
  /** Maximum tokens of a chunk; all at once by default. */
  readonly chunkTokens?: number;
  /** Number of other sequences in the batch, and how many of them come first in it. */
  readonly company?: number;
  readonly place?: number;
  /** Length of a prefix that another sequence computes first. Whole pages are shared, the rest is copied. */
  readonly cachedTokens?: number;
}

/** Runs steps on a device under test. */
export class Driver {
  readonly device: Device;
  readonly settle: () => void;
  readonly logits: () => Float32Array;
  #steps = 0;
  /** Slot of each sequence with the length of its state, and slots of saved states by their lengths. */
  readonly #slots = new Map<SequenceId, { readonly slot: StateSlot; length: number }>();
  readonly #saved = new Map<number, StateSlot>();

  constructor({ device, settle, logits }: DeviceUnderTest) {
    this.device = device;
    this.settle = settle;
    this.logits = logits ?? (() => new Float32Array());
  }

  readonly step = (chunks: readonly Chunk[], moves: readonly PageMove[] = []): Step => {
    this.#steps += 1;
    return { number: this.#steps, moves, chunks: chunks.map((chunk) => this.saving(chunk)) };
  };

  /**
   * Names the state slots of a chunk, if the device has any, and saves its states after these numbers of its
   * tokens. A chunk begins from its sequence's own state, else from the last one saved at its start.
   */
  saving(chunk: Chunk, ...counts: number[]): Chunk {
    const { states } = this.device.spec;
    if (states === undefined || chunk.state !== undefined) return chunk;
    const { sequence, start, tokens } = chunk;
    const own = this.#slots.get(sequence) ?? { slot: this.#slots.size as StateSlot, length: 0 };
    const from = start === 0 ? null : own.length === start ? own.slot : this.savedAt(start);
    const saves = counts.map((count) => {
      const slot = this.#saved.get(start + count) ?? ((states.slots - 1 - this.#saved.size) as StateSlot);
      this.#saved.set(start + count, slot);
      return { count, slot };
    });
    this.#slots.set(sequence, { ...own, length: start + tokens.length });
    return { ...chunk, state: { slot: own.slot, from, saves } };
  }

  /** The slot of the last state that was saved with this length. */
  savedAt(length: number): StateSlot {
    const slot = this.#saved.get(length);
    if (slot === undefined) throw new Error(`no state of ${length} tokens was saved`);
    return slot;
  }

  /** Runs one step that must succeed. */
  run(chunks: readonly Chunk[], moves: readonly PageMove[] = []): readonly Sampled[] {
    const results: StepResult[] = [];
    this.device.start(this.step(chunks, moves), (result) => results.push(result));
    this.settle();
    const [result] = results;
    if (result?.kind !== "done") throw new Error(`the step ended with ${JSON.stringify(result)}`);
    return result.sampled;
  }

  generate(way: Way): TokenId[] {
    const { pageTokens } = this.device.spec;
    const promptTokens = 40;
    const tokens = prompt(promptTokens);
    const total = promptTokens + generatedTokens;
    const own = way.pages ?? pagesFrom(0, total, pageTokens);
    const generated: TokenId[] = [];
    let { start, pages, moves } = this.#cached(tokens, own, way.cachedTokens ?? 0);
    let companySteps = 0;
    while (generated.length < generatedTokens) {
      const end = Math.min(tokens.length, start + (way.chunkTokens ?? total));
      const isBehind = end < tokens.length;
      const table = pages.slice(0, Math.ceil(end / pageTokens));
      const sample = isBehind ? null : { ...row(way.sampling), position: generated.length };
      const chunks = this.#company(way.company ?? 0, companySteps, way.hiddenCompany ?? false);
      chunks.splice(way.place ?? 0, 0, chunk(1, tokens.slice(start, end), start, table, sample));
      const mine = this.run(chunks, moves).find(({ sequence }) => (sequence as number) === 1);
      companySteps += 1;
      moves = [];
      start = end;
      if (isBehind) continue;
      if (mine?.kind !== "token") throw new Error(`drew ${JSON.stringify(mine)}`);
      generated.push(mine.token);
      tokens.push(mine.token);
    }
    return generated;
  }

  /** Hidden states of the uncached tokens of a 40-token prompt. */
  hidden(way: HiddenWay): Float32Array[] {
    const { pageTokens } = this.device.spec;
    const { every = 1, cachedTokens = 0 } = way;
    const tokens = prompt(40);
    const hidden: Float32Array[] = [];
    let { start, pages, moves } = this.#cached(tokens, pagesFrom(0, 40, pageTokens), cachedTokens);
    for (let steps = 0; start < tokens.length; steps += 1) {
      const end = Math.min(tokens.length, start + (way.chunkTokens ?? tokens.length));
      const chunks = this.#company(way.company ?? 0, steps, false);
      const samples: ChunkRow[] = [];
      for (let at = start; at < end; at += 1) {
        if (at % every === every - 1) samples.push({ wants: "hidden", afterIndex: at - start });
      }
      const table = pages.slice(0, Math.ceil(end / pageTokens));
      chunks.splice(way.place ?? 0, 0, {
        ...chunk(1, tokens.slice(start, end), start, table, null),
        samples,
      });
      for (const one of this.run(chunks, moves)) if (one.kind === "hidden") hidden.push(one.hidden);
      moves = [];
      start = end;
    }
    return hidden;
  }

  /** Computes a prefix as part of another sequence, which then diverges, and reuses it. */
  #cached(tokens: readonly TokenId[], own: readonly number[], cached: number) {
    if (cached === 0) return { start: 0, pages: own, moves: [] as PageMove[] };
    const { pageTokens } = this.device.spec;
    const donor = [...tokens.slice(0, cached), ...prompt(5, 50)];
    const donorPages = pagesFrom(20, donor.length, pageTokens);
    this.run([this.saving(chunk(9, donor, 0, donorPages, null), cached)]);
    const whole = Math.floor(cached / pageTokens);
    const count = cached % pageTokens;
    const pages = own.map((page, i) => (i < whole ? donorPages[i]! : page));
    const moves = count === 0 ? [] : [moveOf(donorPages[whole]!, pages[whole]!, count)];
    return { start: cached, pages, moves };
  }

  /** Chunks of `count` other sequences, on pages of their own, in their `n`th step. */
  #company(count: number, n: number, hidden: boolean): Chunk[] {
    return Array.from({ length: count }, (_, i) => {
      const pages = pagesFrom(10 + 6 * i, 3 * n + 3, this.device.spec.pageTokens);
      const drawn = chunk(100 + i, prompt(3, i + 3 * n), 3 * n, pages, row());
      const first: ChunkRow = { wants: "hidden", afterIndex: 0 };
      return hidden ? { ...drawn, samples: [first, ...drawn.samples] } : drawn;
    });
  }
}

export function row(sampling: Sampling = greedySampling): SampleRow {
  return { afterIndex: 0, sampling, position: 0, banned: [], seen: null, allowed: null };
}

/** A chunk that samples after its last token as `sample` says; null samples nothing. */
export function chunk(
  sequence: number,
  tokens: readonly TokenId[],
  start: number,
  pages: readonly number[],
  sample: SampleRow | null,
): Chunk {
  const columns = { tokens: Int32Array.from(tokens), pages: Int32Array.from(pages) };
  const samples = sample === null ? [] : [{ ...sample, afterIndex: tokens.length - 1 }];
  return { sequence: sequence as SequenceId, start, ...columns, samples, adapter: 0 };
}

export function moveOf(from: number, to: number, count: number): PageMove {
  return { from: from as PageId, tier: "device", to: to as PageId, count };
}

/** `count` tokens below 100 without an obvious pattern. */
export function prompt(count: number, salt = 0): TokenId[] {
  return Array.from({ length: count }, (_, i) => ((i + salt) * (i + salt + 3) * 7 + salt) % 100);
}

/** Consecutive pages from `first` that hold `tokens` tokens. */
export function pagesFrom(first: number, tokens: number, pageTokens: number): number[] {
  return Array.from({ length: Math.ceil(tokens / pageTokens) }, (_, i) => first + i);
}
