/**
 * Test rig that drives a native device directly: tests decide exactly what each step computes. It has no
 * scheduler, assigns pages in a shuffled order, and returns the raw logits of every drawn row.
 */

import type { TokenId } from "../../base/token.ts";
import type { NativeDevice } from "../../gpu/native/device.ts";
import { closeNativeModel, openCpuDevice, openGpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import type { GemmChoice, Isa, KvFormat, NativeLibrary } from "../../gpu/native.ts";
import type { LoraAdapter } from "../../model/adapter.ts";
import { formatsOf, type Quant } from "../../model/formats.ts";
import type { ModelFolder } from "../../model/model-folder.ts";
import { layersWithHead } from "../../model/shape.ts";
import type {
  AdapterId,
  Chunk,
  DeviceDraft,
  PageId,
  PageMove,
  SequenceId,
  StateSlot,
  StepResult,
} from "../../scheduler/core.ts";
import { sampling } from "../../simulation/factories.ts";
import { gpuRefusal } from "./library.ts";

export const pageTokens = 16;
const limits = {
  pages: 320,
  pageTokens,
  stepTokensMax: 2048,
  stepChunksMax: 96,
  topLogprobsMax: 0,
};

const greedy = sampling();

/** Token stream on the rig: its computed tokens and their pages. */
export interface Stream {
  readonly tokens: TokenId[];
  /** Pages of the computed tokens, in order. */
  readonly pages: PageId[];
  /** Tokens whose keys and values are in the pages. */
  computed: number;
  /** Slot of the recurrent state after the computed tokens; null: no step has computed any, or there is none. */
  slot: StateSlot | null;
  /** Slots of checkpoints by the number of tokens before them. */
  readonly saved: Map<number, StateSlot>;
  readonly adapter: AdapterId;
  /** Slot of another stream's checkpoint, from which the first step begins. */
  readonly begins: StateSlot | null;
}

/** Result of a step's chunk. */
export interface Drawn {
  readonly token: TokenId;
  /** Draft of the model's head behind it; null: none. */
  readonly drafts: DeviceDraft | null;
  /** Logits [vocab] after the chunk's last token. */
  readonly logits: Float32Array;
}

/** Options of the device. */
export interface RigOptions {
  readonly compute: "f32" | "bf16";
  readonly isa: Isa | "auto";
  readonly threads: number;
  readonly quant: Quant;
  readonly kv: KvFormat;
  readonly gemm: GemmChoice;
  /** Folders of packed weights. */
  readonly packedFolders: readonly string[];
  /** Tokens that the model's head drafts after a chunk at most. */
  readonly drafts: number;
  readonly adapters: readonly LoraAdapter[];
}

const defaults: RigOptions = {
  ...{ compute: "bf16", isa: "auto", threads: 2, quant: "none", kv: "plain", gemm: "own", packedFolders: [] },
  ...{ drafts: 0, adapters: [] },
};

/** Device on the CPU, or on the first GPU if the library is for GPUs. */
export class Rig {
  readonly #library: NativeLibrary;
  readonly #model: ReturnType<typeof openNativeModel>;
  readonly #device: NativeDevice;
  readonly #free: PageId[] = [];
  readonly #freeSlots: StateSlot[] = [];
  #steps = 0;

  constructor(library: NativeLibrary, folder: ModelFolder, options: Partial<RigOptions> = {}) {
    this.#library = library;
    const { compute, quant, threads, gemm, drafts, ...rest } = { ...defaults, ...options };
    const isGpu = gpuRefusal(library, 0) === null;
    const layers = layersWithHead(folder.config.shape).length;
    const formats = formatsOf(folder.tensors, layers, quant, compute, isGpu ? "gpu" : "cpu");
    this.#model = openNativeModel(
      library,
      folder,
      { ...rest, compute, threads, formats, contextMax: null },
      () => undefined,
    );
    const states = this.#model.stateBytes > 0 ? { states: limits.stepChunksMax } : {};
    const draftsMax = drafts > 0 ? { draftsMax: drafts } : {};
    this.#device = isGpu
      ? openGpuDevice(library, this.#model, { ...limits, ...states, threads, gemm }, 0, () => {})
      : openCpuDevice(library, this.#model, { ...limits, ...states, ...draftsMax, threads });
    // Most recently freed slots first, which hold old states.
    for (let slot = 0; slot < (states.states ?? 0); slot += 1) this.#freeSlots.push(slot as StateSlot);
    // 191 and 320 are coprime: every page once, neighbours far apart.
    for (let i = 0; i < limits.pages; i += 1) this.#free.push(((i * 191) % limits.pages) as PageId);
  }

  /** Note of the device on packed weights; null: none. */
  get packedNote(): string | null {
    return this.#model.packedNote;
  }

  /** Device that has the pages. */
  get memory(): NativeDevice {
    return this.#device;
  }

  /** Bytes of a page, and of a recurrent state; 0: the model has none. */
  get sizes(): { readonly pageBytes: number; readonly stateBytes: number } {
    const { pageBytes, stateBytes } = this.#model;
    return { pageBytes, stateBytes };
  }

  /**
   * Makes a stream with pages for its first `count` tokens, whose keys and values the caller copies there; with
   * recurrent layers, their state to the slot that it begins from.
   */
  filled(tokens: readonly TokenId[], count: number): Stream {
    const pages = Array.from({ length: count / pageTokens }, () => this.#takePage());
    const stream = { ...this.stream(tokens), pages, computed: count };
    if (this.#model.stateBytes === 0) return stream;
    const begins = this.#takeSlot();
    return { ...stream, begins, saved: new Map([[count, begins]]) };
  }

  stream(tokens: readonly TokenId[], adapter: AdapterId = 0): Stream {
    return {
      tokens: [...tokens],
      pages: [],
      computed: 0,
      slot: null,
      saved: new Map(),
      begins: null,
      adapter,
    };
  }

  /**
   * Makes a stream with the keys and values of another's first `count` tokens. It shares whole pages; the
   * next step copies the partial last one. With recurrent layers it begins from the other's checkpoint there.
   */
  branch(from: Stream, count: number, tokens: readonly TokenId[]): { stream: Stream; moves: PageMove[] } {
    const shared = Math.floor(count / pageTokens);
    const begins = from.saved.get(count) ?? null;
    if (from.slot !== null && begins === null)
      throw new Error(`there is no checkpoint after ${count} tokens`);
    const own = this.stream(tokens, from.adapter);
    const stream = { ...own, pages: from.pages.slice(0, shared), computed: count, begins };
    const rest = count % pageTokens;
    if (rest === 0) return { stream, moves: [] };
    const page = this.#takePage();
    stream.pages.push(page);
    return { stream, moves: [{ from: from.pages[shared]!, tier: "device", to: page, count: rest }] };
  }

  /**
   * Computes the next `count` tokens of each stream in one step; draws after the last of each unless
   * `isUndrawn`. With recurrent layers it keeps a checkpoint after the stream's first `save` tokens. A model's head
   * drafts as many tokens after each draw as `drafts` says.
   */
  step(
    parts: readonly { stream: Stream; count: number; isUndrawn?: true; save?: number; drafts?: number }[],
    moves: readonly PageMove[] = [],
  ): Drawn[] {
    const chunks: Chunk[] = parts.map(({ stream, count, isUndrawn = false, save = null, drafts }, index) => {
      const end = stream.computed + count;
      while (stream.pages.length * pageTokens < end) stream.pages.push(this.#takePage());
      return {
        sequence: index as SequenceId,
        start: stream.computed,
        tokens: Int32Array.from(stream.tokens.slice(stream.computed, end)),
        pages: Int32Array.from(stream.pages),
        samples: isUndrawn
          ? []
          : [{ afterIndex: count - 1, sampling: greedy, position: 0, banned: [], seen: null, allowed: null }],
        adapter: stream.adapter,
        ...(end < stream.tokens.length ? { next: stream.tokens[end]! } : {}),
        ...(drafts === undefined ? {} : { drafts }),
        ...this.#stateOf(stream, save),
      };
    });
    this.#steps += 1;
    let result: StepResult | null = null;
    this.#device.start({ number: this.#steps, moves, chunks }, (outcome) => {
      result = outcome;
    });
    this.#device.wait();
    this.#device.deliver();
    for (const { stream, count } of parts) stream.computed += count;
    return this.#drawn(result as StepResult | null);
  }

  /** State of a stream's next chunk, which begins from nothing if the stream does. */
  #stateOf(stream: Stream, save: number | null): Pick<Chunk, "state"> {
    if (this.#model.stateBytes === 0) return {};
    const from = stream.computed === 0 ? null : (stream.slot ?? stream.begins);
    stream.slot ??= this.#takeSlot();
    if (save === null) return { state: { slot: stream.slot, from, saves: [] } };
    const slot = this.#takeSlot();
    stream.saved.set(save, slot);
    return { state: { slot: stream.slot, from, saves: [{ count: save - stream.computed, slot }] } };
  }

  #drawn(result: StepResult | null): Drawn[] {
    if (result?.kind !== "done") throw new Error(`the step ended with ${JSON.stringify(result)}`);
    const logits = this.#device.logits();
    const vocab = this.#device.spec.vocabSize;
    return result.sampled.map((sampled, row) => {
      if (sampled.kind !== "token") throw new Error(JSON.stringify(sampled));
      const { token, drafts = null } = sampled;
      return { token, drafts, logits: logits.slice(row * vocab, (row + 1) * vocab) };
    });
  }

  /**
   * Computes the rest of the stream's tokens in chunks of `size`, then draws greedily until `count` tokens
   * are added; returns those. `seen` receives the logits after every chunk, with the position of its last
   * token.
   */
  generate(
    stream: Stream,
    count: number,
    size: number,
    moves: readonly PageMove[] = [],
    seen: (position: number, logits: Float32Array) => void = () => undefined,
  ): TokenId[] {
    const start = stream.tokens.length;
    let pending = moves;
    while (stream.tokens.length < start + count) {
      const behind = stream.tokens.length - stream.computed;
      const drawn = this.step([{ stream, count: Math.min(size, behind) }], pending)[0]!;
      pending = [];
      seen(stream.computed - 1, drawn.logits);
      if (stream.computed === stream.tokens.length) stream.tokens.push(drawn.token);
    }
    return stream.tokens.slice(start);
  }

  /** Returns the logits after each of the tokens, all in one step. */
  logitsAfterEach(tokens: readonly TokenId[]): Float32Array[] {
    const parts = tokens.map((_, position) => ({
      stream: this.stream(tokens.slice(0, position + 1)),
      count: position + 1,
    }));
    return this.step(parts).map(({ logits }) => logits);
  }

  /** Frees pages; with `shared` the first pages stay with another stream. */
  free(stream: Stream, shared = 0): void {
    this.#free.push(...stream.pages.splice(shared));
    stream.pages.length = 0;
    stream.computed = 0;
    if (stream.slot !== null) this.#freeSlots.push(stream.slot);
    stream.slot = null;
    this.#freeSlots.push(...stream.saved.values());
    stream.saved.clear();
  }

  close(): void {
    this.#device.close();
    closeNativeModel(this.#library, this.#model);
  }

  #takeSlot(): StateSlot {
    const slot = this.#freeSlots.pop();
    if (slot === undefined) throw new Error("the rig has no free state slot");
    return slot;
  }

  #takePage(): PageId {
    const page = this.#free.shift();
    if (page === undefined) throw new Error("the rig has no free page");
    return page;
  }
}
