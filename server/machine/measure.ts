/** Measures this machine's peak rates, and the share of them that kernels reach. */

import { loadavg } from "node:os";
import type { CeilingName, Isa, KernelRates, MeterHandle, NativeLibrary } from "../../gpu/native.ts";
import { matrixFormats } from "../../model/matrix-formats.ts";

/** Rates of all threads together: bytes per second of `read`, operations per second of the others. */
export type Ceilings = Readonly<Record<CeilingName, number>>;

/** Ceiling of a roofline that limits the work. */
export type Limit = "memory" | "arithmetic";

/** Rates of a kernel, and its share of the ceiling that limits it. */
export interface KernelShare extends KernelRates {
  readonly limit: Limit;
  /** Minimum time by the ceilings, divided by the measured time. */
  readonly share: number;
}

/** Share reached by a matrix of one format times some rows. */
export interface MatrixShare extends KernelShare {
  readonly format: number;
  readonly rows: number;
  /** Bytes of memory per number of the matrix, scales included. */
  readonly numberBytes: number;
}

/** Share reached by attention of a chunk of tokens after some keys. */
export interface AttentionShare extends KernelShare {
  readonly tokens: number;
  readonly positions: number;
}

/** Rates of a machine; lists hold the cases that were measured. */
export interface MachineRates {
  readonly ceilings: Ceilings;
  readonly matrices: readonly MatrixShare[];
  readonly attention: readonly AttentionShare[];
}

/** Sizes of the measured matrix, as in a common model of 8B parameters. */
const COLUMNS = 4096;
const DEPTH = 4096;

/** Arithmetic ceiling for matrices of a format. */
export function ceilingOf(format: number): CeilingName {
  return format === matrixFormats.plain ? "bf16" : "int8";
}

/** Load average of the last minute, in threads, if it is high enough to lower measured rates; else null. */
export function disturbingLoad(cores: number): number | null {
  const load = loadavg()[0]!;
  return load > cores / 2 ? load : null;
}

/** Meter of the processor, to be closed by its owner. */
export class ProcessorMeter {
  readonly #library: NativeLibrary;
  readonly #meter: MeterHandle;

  constructor(library: NativeLibrary, isa: Isa | "auto", threads: number) {
    this.#library = library;
    this.#meter = library.meterOpen(isa, threads);
  }

  /** Returns the best of some tries, because other programs can only lower a rate. */
  ceiling(name: CeilingName, ms: number, tries: number): number {
    const rates = Array.from({ length: tries }, () => this.#library.meterCeiling(this.#meter, name, ms));
    return Math.max(...rates);
  }

  ceilings(ms: number, tries: number): Ceilings {
    const of = (name: CeilingName): number => this.ceiling(name, ms, tries);
    return { read: of("read"), f32: of("f32"), bf16: of("bf16"), int8: of("int8") };
  }

  matrix(ceilings: Ceilings, format: number, rows: number, ms: number): MatrixShare {
    const matrix = { format, rows, columns: COLUMNS, depth: DEPTH };
    const rates = this.#library.meterGemm(this.#meter, matrix, ms);
    const numberBytes = (2 * rows * rates.bytesPerSecond) / rates.operationsPerSecond;
    return { format, rows, numberBytes, ...shareOf(rates, ceilings, ceilingOf(format)) };
  }

  attention(ceilings: Ceilings, tokens: number, positions: number, ms: number): AttentionShare {
    const rates = this.#library.meterAttention(this.#meter, { tokens, positions }, ms);
    return { tokens, positions, ...shareOf(rates, ceilings, "bf16") };
  }

  close(): void {
    this.#library.meterClose(this.#meter);
  }
}

/** Share of the ceilings that a kernel reaches. */
export function shareOf(rates: KernelRates, ceilings: Ceilings, arithmetic: CeilingName): KernelShare {
  const ofMemory = rates.bytesPerSecond / ceilings.read;
  const ofArithmetic = rates.operationsPerSecond / ceilings[arithmetic];
  const limit = ofMemory > ofArithmetic ? "memory" : "arithmetic";
  return { ...rates, limit, share: Math.max(ofMemory, ofArithmetic) };
}
