import { assert } from "../../base/assert.ts";
import { PARTS, type PartedCostModel, type StepShape, sumOf } from "./cost-model.ts";

/**
 * Measured times of a device: the files of profiles/, written by tools/fit-profile.ts. All times are
 * milliseconds of the whole model, ≥ 0.
 */
export interface ProfileTable {
  readonly name: string;
  /** Origin of the measurements, and gaps in them. */
  readonly source: string;
  /** Licence of the measurements. */
  readonly licence: string;
  readonly tileTokens: number;
  /** KV pages of the device, and its longest sequence. */
  readonly pages: number;
  readonly pageTokens: number;
  readonly contextMax: number;
  /** Overhead of the server's own code: per step and per sequence. */
  readonly overhead: { readonly stepMs: number; readonly sequenceMs: number };
  /** Output head and sampling: per step and per row. */
  readonly head: { readonly stepMs: number; readonly sequenceMs: number };
  /** Time of everything that depends on the token count alone: `ms[i]` up to and including `tokens[i]`. */
  readonly linear: { readonly tokens: readonly number[]; readonly ms: readonly number[] };
  /** Prompt attention of a chunk: per chunk, per token, per query-key pair, and per context token. */
  readonly prompt: {
    readonly chunkMs: number;
    readonly tokenMs: number;
    readonly pairMs: number;
    readonly contextMs: number;
  };
  /** Decode attention: per step, per decode, and per context token. */
  readonly decode: { readonly stepMs: number; readonly sequenceMs: number; readonly contextMs: number };
  /**
   * Errors of the attention fits, as shares of a step of one chunk, or of decodes alone. The linear part is a
   * table.
   */
  readonly error: {
    readonly promptP50: number;
    readonly promptP90: number;
    readonly decodeP50: number;
    readonly decodeP90: number;
  };
}

/** Share of the table at its end from whose slope it is extrapolated. */
const SLOPE_SHARE = 1 / 4;

/**
 * Cost model of measured times: overhead(sequences) + head(sequences) + linear(tokens) + attention of each
 * chunk + attention of the decodes. The linear part is a staircase, as the hardware's tiles make it: one more
 * token costs nothing or a whole tile. Predictions grow with the shape, since all numbers of a table are ≥ 0
 * and its staircase never falls.
 */
export class ProfileCostModel implements PartedCostModel {
  readonly name: string;
  readonly tileTokens: number;
  readonly #table: ProfileTable;
  readonly #overheadMs: number;
  /** Milliseconds by token count, up to the table's end. */
  readonly #linearMs: Float64Array;
  readonly #slopeMs: number;
  readonly #stepMs: number;
  readonly #sequenceMs: number;
  readonly #parts = new Float64Array(PARTS);

  /** Adds `overheadMs` to every step. */
  constructor(table: ProfileTable, overheadMs = 0) {
    this.name = table.name;
    this.tileTokens = table.tileTokens;
    this.#table = table;
    this.#overheadMs = overheadMs;
    this.#linearMs = expand(table.linear);
    const end = this.#linearMs.length - 1;
    const start = Math.floor(end * (1 - SLOPE_SHARE));
    this.#slopeMs = (this.#linearMs[end]! - this.#linearMs[start]!) / (end - start);
    this.#stepMs = table.overhead.stepMs + table.head.stepMs + overheadMs;
    this.#sequenceMs = table.overhead.sequenceMs + table.head.sequenceMs;
  }

  /** Plain data that restores this model. */
  get state() {
    return { kind: "profile", table: this.#table, overheadMs: this.#overheadMs } as const;
  }

  stepMs(shape: StepShape): number {
    this.partsMs(shape, this.#parts);
    return sumOf(this.#parts);
  }

  /** Writes the parts. The first one is a step of one token, whose time goes into reading the weights. */
  partsMs({ prompts, decodes, decodeContext, draftPairs = 0 }: StepShape, into: Float64Array): void {
    const { prompt, decode } = this.#table;
    let tokens = decodes;
    let promptMs = prompt.pairMs * draftPairs;
    for (const chunk of prompts) {
      tokens += chunk.tokens;
      promptMs += prompt.chunkMs + prompt.tokenMs * chunk.tokens + prompt.contextMs * chunk.context;
      promptMs += prompt.pairMs * chunk.tokens * (chunk.context + chunk.tokens / 2);
    }
    const oneMs = this.#linearMs[1]!;
    into[0] = this.#stepMs + oneMs;
    into[1] = Math.max(0, this.#linear(tokens) - oneMs);
    into[2] = this.#sequenceMs * (decodes + prompts.length) + decode.sequenceMs * decodes;
    into[3] = promptMs;
    into[4] = decodes === 0 ? 0 : decode.stepMs + decode.contextMs * decodeContext;
    into[5] = 0;
  }

  #linear(tokens: number): number {
    const end = this.#linearMs.length - 1;
    if (tokens <= end) return this.#linearMs[tokens]!;
    // The extrapolation is a staircase of the same tiles.
    const tiles = Math.ceil((tokens - end) / this.tileTokens);
    return this.#linearMs[end]! + tiles * this.tileTokens * this.#slopeMs;
  }
}

function expand({ tokens, ms }: ProfileTable["linear"]): Float64Array {
  assert(tokens.length === ms.length && tokens.length > 0, "a table has a time for every number of tokens");
  assert(tokens.at(-1)! >= 1, "a table has a time for one token");
  const values = new Float64Array(tokens.at(-1)! + 1);
  let index = 0;
  for (let count = 0; count < values.length; count++) {
    while (tokens[index]! < count) index += 1;
    values[count] = ms[index]!;
    assert(values[count]! >= (values[count - 1] ?? 0), "a table never falls");
  }
  return values;
}
