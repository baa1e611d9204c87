/**
 * `bunting bench --machine`: this machine's peak rates, the share of them that kernels reach, and estimated
 * model speeds.
 */

import { formatBytes } from "../../gpu/memory.ts";
import { type Isa, isaNames, openLibrary } from "../../gpu/native.ts";
import { formatName } from "../../model/formats.ts";
import { matrixFormats } from "../../model/matrix-formats.ts";
import { storedTypes } from "../../model/stored-types.ts";
import { libraryPath } from "../assets.ts";
import { chooseThreads } from "../engines/plan.ts";
import { commonModels, commonQuants, commonWork } from "../machine/common-models.ts";
import { ESTIMATE_TOKENS, estimateSpeed, type SpeedEstimate } from "../machine/estimate.ts";
import {
  type AttentionShare,
  type Ceilings,
  disturbingLoad,
  type KernelShare,
  type MatrixShare,
  ProcessorMeter,
} from "../machine/measure.ts";
import { version } from "../version.ts";
import { writeReport } from "./report-file.ts";

/** Settings of the measurement. */
export interface MachineOptions {
  readonly isa: Isa | "auto";
  /** 0: as many as the server uses. */
  readonly threads: number;
  /** File for the report. */
  readonly json: string | null;
}

/** Report of `--json`, in SI units: bytes, operations and tokens per second. */
export interface MachineReport {
  readonly version: string;
  readonly processor: string;
  readonly cores: number;
  readonly threads: number;
  readonly instructionSet: Isa;
  /** Load of other programs, in threads, if it lowers the measured rates; else null. */
  readonly otherLoad: number | null;
  readonly ceilings: {
    readonly readBytesPerSecond: number;
    readonly f32OperationsPerSecond: number;
    readonly bf16OperationsPerSecond: number;
    readonly int8OperationsPerSecond: number;
  };
  readonly matrices: readonly (Omit<MatrixShare, "format"> & { readonly format: string })[];
  readonly attention: readonly AttentionShare[];
  /** Estimates from the rates above; no model was run. */
  readonly estimates: readonly (SpeedEstimate & { readonly model: string; readonly quant: string })[];
}

const FORMATS = [
  matrixFormats.plain,
  matrixFormats.q8_0,
  matrixFormats.int4,
  storedTypes.Q4_K.number,
  storedTypes.Q6_K.number,
];
const ROWS = [1, 8, 64, 512];
const KEYS = 16_384;
const TOKENS = [64, 1];
const CEILING_MS = 400;
const CEILING_TRIES = 2;
const KERNEL_MS = 350;

/** Measures and prints as it goes; resolves to the exit code. */
export async function benchMachine(options: MachineOptions): Promise<number> {
  const library = openLibrary(await libraryPath("cpu"));
  const machine = library.machineProbe();
  const threads = chooseThreads(options, machine);
  const usable = isaNames[Math.min(isaNames.indexOf(machine.isaBest), isaNames.indexOf(machine.isaBuilt))]!;
  const instructionSet = options.isa === "auto" ? usable : options.isa;
  const otherLoad = disturbingLoad(machine.cores);
  console.log(`${machine.processor}: ${threads} threads, ${instructionSet}\n`);
  if (otherLoad !== null) console.log(`${busyText(otherLoad)}\n`);
  const meter = new ProcessorMeter(library, options.isa, threads);
  try {
    const ceilings = meter.ceilings(CEILING_MS, CEILING_TRIES);
    console.log(`${ceilingLines(ceilings)}\n\n${line("kernel", "rate", "of the ceiling")}`);
    const matrices = FORMATS.flatMap((format) =>
      ROWS.map((rows) => {
        const share = meter.matrix(ceilings, format, rows, KERNEL_MS);
        const name = format === matrixFormats.plain ? "bf16" : formatName(format);
        console.log(kernelLine(`${name}, ${rows} row${rows === 1 ? "" : "s"}`, share));
        return share;
      }),
    );
    const attention = TOKENS.map((tokens) => {
      const share = meter.attention(ceilings, tokens, KEYS, KERNEL_MS);
      const name = tokens === 1 ? "decode" : "prompt";
      console.log(kernelLine(`attention, ${name} over ${KEYS} keys`, share));
      return share;
    });
    const rates = { ceilings, matrices, attention };
    const estimates = commonModels.flatMap((model) =>
      commonQuants.map((quant) => ({
        ...{ model: model.name, quant },
        ...estimateSpeed(commonWork(model, quant), rates),
      })),
    );
    console.log(
      `\nEstimates in tokens per second, from these figures alone: a prompt of ${ESTIMATE_TOKENS} tokens, and one stream behind it.`,
    );
    console.log(estimateLine("model", "matrices", "prompt", "limited by", "stream", "limited by"));
    for (const { model, quant, ...speed } of estimates)
      console.log(
        estimateLine(
          ...[`${model} ${quant}`, formatBytes(speed.matrixBytes)],
          ...[rateText(speed.promptTokensPerSecond), speed.promptLimit],
          ...[rateText(speed.streamTokensPerSecond), speed.streamLimit],
        ),
      );
    const { read, f32, bf16, int8 } = ceilings;
    const report: MachineReport = {
      version,
      processor: machine.processor,
      cores: machine.cores,
      threads,
      instructionSet,
      otherLoad,
      ceilings: {
        readBytesPerSecond: read,
        f32OperationsPerSecond: f32,
        bf16OperationsPerSecond: bf16,
        int8OperationsPerSecond: int8,
      },
      matrices: matrices.map((one) => ({
        ...one,
        format: one.format === matrixFormats.plain ? "bf16" : formatName(one.format),
      })),
      attention,
      estimates,
    };
    if (options.json !== null) await writeReport(options.json, report);
    return 0;
  } finally {
    meter.close();
  }
}

/** Sentence that warns of a busy machine. `load`: threads of other programs. */
export function busyText(load: number): string {
  return `Other programs keep the processor busy (load ${load.toFixed(1)}), so the figures are too low.`;
}

function ceilingLines({ read, f32, bf16, int8 }: Ceilings): string {
  return [
    `memory  ${giga(read)} GB/s read`,
    `f32     ${giga(f32)} GFLOP/s`,
    `bf16    ${giga(bf16)} GFLOP/s`,
    `int8    ${giga(int8)} GOP/s`,
  ].join("\n");
}

function kernelLine(name: string, { limit, share, ...rates }: KernelShare): string {
  const rate =
    limit === "memory" ? `${giga(rates.bytesPerSecond)} GB/s` : `${giga(rates.operationsPerSecond)} GOP/s`;
  return line(name, rate, `${Math.round(share * 100)} % of ${limit}`);
}

function line(name: string, rate: string, share: string): string {
  return `${name.padEnd(36)}  ${rate.padStart(12)}  ${share}`;
}

function estimateLine(...[model, bytes, prompt, byPrompt, stream, byStream]: string[]): string {
  return `${model!.padEnd(16)}  ${bytes!.padStart(9)}  ${prompt!.padStart(8)}  ${byPrompt!.padEnd(10)}  ${stream!.padStart(8)}  ${byStream}`;
}

/** Formats a rate to three digits: 1,240, 97, 4.6. */
export function rateText(perSecond: number): string {
  return perSecond < 10 ? perSecond.toFixed(1) : String(Number(perSecond.toPrecision(3)));
}

function giga(perSecond: number): string {
  return rateText(perSecond / 1e9);
}
