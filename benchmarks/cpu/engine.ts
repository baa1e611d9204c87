/**
 * Rates of the CPU engine without scheduler and server. The steps are like the scheduler's, timed from
 * `start` to `deliver`. Weights are random, so tokens do not matter; pages are written before they are read.
 */

import { dirname } from "node:path";
import type { NativeDevice } from "../../gpu/native/device.ts";
import { closeNativeModel, type NativeModel, openCpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import type { Isa, NativeLibrary } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import { formatsOf } from "../../model/formats.ts";
import type { ModelShape } from "../../model/shape.ts";
import {
  type Chunk,
  type ChunkRow,
  type ChunkState,
  greedySampling,
  type SequenceId,
  type StateSlot,
  type Step,
  type StepResult,
} from "../../scheduler/core.ts";

const PAGE_TOKENS = 16;
const STEP_TOKENS = 512;
const STREAMS_MAX = 32;
/** Pages for one stream of 32,768 tokens and its answer, or for all streams. */
const PAGES = 2056;
/** Decode steps per measurement, the same for llama.cpp. */
export const DECODE_STEPS = 32;

/**
 * Weight formats: our loader rounds a folder to the first three, and reads the others from llama.cpp's own
 * file.
 */
export type Format =
  | "bf16"
  | "int8"
  | "int4"
  | "q4_k_m"
  | "q5_k_m"
  | "q6_k"
  | "q3_k_m"
  | "iq4_xs"
  | "mxfp4_moe";
export const isFileFormat = (format: Format): boolean => format.includes("_");

export interface Streams {
  readonly streams: number;
  /** Context of each stream before it decodes, in tokens. */
  readonly contextTokens: number;
  /** Tokens of the context in pages that all streams share. */
  readonly sharedTokens: number;
}

interface Stream {
  /**
   * Number of the stream. Each stream has its own tokens, and so, in a mixture of experts, its own experts.
   */
  readonly number: number;
  readonly pages: number[];
  computed: number;
}

/** Slot of a stream's recurrent state. */
function stateOf(stream: number, start: number): ChunkState {
  const slot = stream as StateSlot;
  return { slot, from: start === 0 ? null : slot, saves: [] };
}

export class EngineBench {
  readonly shape: ModelShape;
  /** Weight bytes that a decode step reads. */
  readonly weightBytes: number;
  readonly #library: NativeLibrary;
  readonly #model: NativeModel;
  readonly #device: NativeDevice;
  #nextPage = 0;
  #steps = 0;

  /**
   * `folder`: a folder, or a GGUF file for formats of files. It also keeps packed weights: rows are measured
   * one at a time, and packing takes longer than a row.
   */
  constructor(library: NativeLibrary, folder: string, format: Format, threads: number, isa: Isa | "auto") {
    const { config, tensors } = openModelFolder(folder);
    this.shape = config.shape;
    const quant = format === "int8" || format === "int4" ? format : isFileFormat(format) ? "auto" : "none";
    const formats = formatsOf(tensors, config.shape.layers.length, quant, "bf16");
    const packedFolders = [isFileFormat(format) ? dirname(folder) : folder];
    const options = { compute: "bf16", isa, threads, formats, contextMax: null, packedFolders } as const;
    this.#library = library;
    this.#model = openNativeModel(library, { config, tensors }, options, () => {});
    // Excludes the RoPE tables, of which a step reads next to nothing.
    this.weightBytes = this.#model.weightBytes - config.shape.contextMax * config.shape.headSize * 4;
    this.#device = openCpuDevice(library, this.#model, {
      threads,
      pages: PAGES,
      ...(this.#model.stateBytes > 0 ? { states: STREAMS_MAX } : {}),
      pageTokens: PAGE_TOKENS,
      stepTokensMax: STEP_TOKENS,
      stepChunksMax: STREAMS_MAX,
      stepDrawsMax: STREAMS_MAX,
      topLogprobsMax: 0,
    });
  }

  close(): void {
    this.#device.close();
    closeNativeModel(this.#library, this.#model);
  }

  /** Returns prompt tokens per second of one prompt, in steps of at most 512. */
  prefill(tokens: number): number {
    this.#nextPage = 0;
    // Warm-up of threads and caches, as in llama-bench.
    this.#fill({ number: 0, pages: [], computed: 0 }, Math.min(STEP_TOKENS, tokens), true);
    this.#nextPage = 0;
    const stream: Stream = { number: 0, pages: [], computed: 0 };
    const startMs = performance.now();
    this.#fill(stream, tokens, true);
    return (tokens * 1000) / (performance.now() - startMs);
  }

  /** Returns tokens per second, summed over all streams. */
  decode({ streams, contextTokens, sharedTokens }: Streams): number {
    this.#nextPage = 0;
    const stem: Stream = { number: 0, pages: [], computed: 0 };
    this.#fill(stem, sharedTokens - (sharedTokens % PAGE_TOKENS), false);
    const all = Array.from({ length: streams }, (_, number): Stream => {
      const stream: Stream = { number, pages: [...stem.pages], computed: stem.computed };
      this.#fill(stream, contextTokens, false);
      return stream;
    });
    const startMs = performance.now();
    for (let i = 0; i < DECODE_STEPS; i++) this.#run(all.map((stream) => this.#chunk(stream, 1, true)));
    return (streams * DECODE_STEPS * 1000) / (performance.now() - startMs);
  }

  /**
   * Returns, for each of `counts`, the processor milliseconds of each step after a context. A step samples so
   * many tokens of one stream or, with `streams`, one token of as many streams.
   */
  rowsMs(counts: readonly number[], contextTokens: number, streams: boolean, steps: number): number[][] {
    this.#nextPage = 0;
    const all = Array.from({ length: streams ? Math.max(...counts) : 1 }, (_, number): Stream => {
      const stream: Stream = { number, pages: [], computed: 0 };
      this.#fill(stream, contextTokens, false);
      return stream;
    });
    const times = counts.map((): number[] => []);
    for (let step = 0; step < steps; step++) {
      for (const [index, count] of counts.entries()) {
        const own = streams ? all.slice(0, count) : all;
        for (const stream of own) stream.computed = contextTokens;
        const chunks = own.map((stream) => this.#drawing(this.#chunk(stream, count / own.length, true)));
        const before = process.cpuUsage();
        this.#run(chunks);
        const { user, system } = process.cpuUsage(before);
        times[index]!.push((user + system) / 1000);
      }
    }
    return times;
  }

  /** A chunk with a draw after each of its tokens. */
  #drawing(chunk: Chunk): Chunk {
    const [row] = chunk.samples;
    const samples = Array.from(chunk.tokens, (_, afterIndex) => ({ ...row!, afterIndex }) as ChunkRow);
    return { ...chunk, samples };
  }

  /** Computes the stream up to `tokens`; samples after the last one if `draws`. */
  #fill(stream: Stream, tokens: number, draws: boolean): void {
    while (stream.computed < tokens) {
      const count = Math.min(STEP_TOKENS, tokens - stream.computed);
      this.#run([this.#chunk(stream, count, draws && stream.computed + count === tokens)]);
    }
  }

  #chunk(stream: Stream, count: number, draws: boolean): Chunk {
    const start = stream.computed;
    stream.computed += count;
    while (stream.pages.length * PAGE_TOKENS < stream.computed) stream.pages.push(this.#nextPage++);
    const sampling = greedySampling;
    const row = { afterIndex: count - 1, sampling, position: 0, banned: [], seen: null, allowed: null };
    return {
      sequence: this.#nextPage as SequenceId,
      start,
      tokens: Int32Array.from(
        { length: count },
        (_, i) => ((start + i) * 7919 + stream.number * 104_729) % this.shape.vocab,
      ),
      pages: Int32Array.from(stream.pages),
      samples: draws ? [row] : [],
      adapter: 0,
      ...(this.shape.states === undefined ? {} : { state: stateOf(stream.number, start) }),
    };
  }

  #run(chunks: readonly Chunk[]): void {
    this.#steps += 1;
    const step: Step = { number: this.#steps, moves: [], chunks };
    const results: StepResult[] = [];
    this.#device.start(step, (result) => results.push(result));
    this.#device.wait();
    this.#device.deliver();
    const [result] = results;
    if (result?.kind !== "done") throw new Error(`a step ended with ${JSON.stringify(result)}`);
  }
}
