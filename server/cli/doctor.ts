/**
 * `bunting doctor`: reports the machine's hardware, which part of it the server would use and why not the
 * rest, and the expected speed.
 */

import { formatBytes } from "../../gpu/memory.ts";
import type { Gpu, Isa } from "../../gpu/native.ts";
import {
  type Config,
  type ConfigError,
  flag,
  serverHeadings,
  serverSettings,
  type Values,
} from "../config.ts";
import { busyText, rateText } from "./bench-machine.ts";
import { type DoctorReport, examine, type IsaState, refusedReport } from "./doctor-report.ts";
import type { OptionList } from "./options.ts";
import { adaptersText, describeAdapter } from "./serve.ts";
import { table } from "./table.ts";

/** Settings of `serve`, and the format of the report. */
export const doctorSettings = Object.freeze({
  ...serverSettings,
  json: flag({ sentence: "Print the report as JSON." }),
});

export const doctorOptions: OptionList<typeof doctorSettings> = {
  settings: doctorSettings,
  headings: { ...serverHeadings, json: "Report:" },
};

const ISA_NAMES: Readonly<Record<Isa, string>> = {
  portable: "portable C++",
  avx2: "AVX2 + FMA",
  avx512: "AVX-512",
  avx512_bf16: "AVX-512 BF16",
  amx_bf16: "AMX BF16",
};

const ISA_STATES: Readonly<Record<IsaState, string>> = {
  used: "used",
  available: "available, a better one is used",
  absent: "not used, this processor or kernel lacks it",
  notBuilt: "not used, the compiler that built the library lacked it",
};

/** Prints the report; resolves to exit code 0 if `serve` would start with the same settings. */
export async function doctor(
  { json, ...config }: Values<typeof doctorSettings>,
  model: string | null,
): Promise<number> {
  const report = await examine(config as Config, model);
  console.log(json ? JSON.stringify(report, null, 2) : reportText(report));
  return report.wouldStart ? 0 : 1;
}

/** Prints the report on settings that cannot be read as JSON; resolves to the exit code. */
export async function doctorRefused({ message }: ConfigError): Promise<number> {
  console.log(JSON.stringify(await refusedReport(message), null, 2));
  return 1;
}

function reportText(report: DoctorReport): string {
  const { device, processor, gpus, gemm, model, models, speed, jobsFolder, address, refusals } = report;
  const parts = [
    [`bunting ${report.version}, Bun ${report.bun}, ${report.platform} ${report.arch}`],
    [
      ...(device === null
        ? []
        : [
            line("native library", device.library),
            line("device", `${device.kind}, because ${device.reason}`),
          ]),
      ...(processor === null ? [] : processorLines(processor)),
      line("cuda", report.cuda),
    ],
    gpus.flatMap(gpuLines),
    gemm.length === 0 ? [] : lines("gemm", gemm),
    model === null ? [] : modelLines(model),
    model === null ? [] : [rowsTable(model.memory)],
    models.map(({ name, family, contextMax, bytes, adapters }) =>
      line(
        "model",
        `${name}: ${family}, sequences of up to ${contextMax} tokens${adaptersText(adapters)}, ${formatBytes(bytes)}`,
      ),
    ),
    speed === null ? [] : speedLines(speed),
    model === null && models.length === 0
      ? []
      : [line("jobs", jobsFolder === null ? "are not kept" : `are kept in ${jobsFolder}`)],
    model === null
      ? []
      : [line("pages in host", model.kvHost ?? "none"), line("pages on disk", model.kvDisk ?? "none")],
    [line("address", `${address.host}:${address.port} ${address.isFree ? "is free" : "cannot be used"}`)],
    report.wouldStart
      ? ["`bunting serve` would start."]
      : ["`bunting serve` would not start:", ...refusals.map((refusal) => `- ${refusal}`)],
  ];
  return parts
    .filter((part) => part.length > 0)
    .map((part) => part.join("\n"))
    .join("\n\n");
}

function line(label: string, text: string): string {
  return label.padEnd(16) + text;
}

/** Formats lines; the first one has the label. */
function lines(label: string, texts: readonly string[]): string[] {
  return texts.map((text, index) => line(index === 0 ? label : "", text));
}

function processorLines(processor: NonNullable<DoctorReport["processor"]>): string[] {
  const { name, cores, memoryBytes, memoryFreeBytes, instructionSets } = processor;
  return [
    line("processor", `${name}, ${cores} cores for this process`),
    ...lines(
      "instructions",
      instructionSets.map((isa) => `${ISA_NAMES[isa.name]}: ${ISA_STATES[isa.state]}`),
    ),
    line("memory", `${formatBytes(memoryBytes)}, of which ${formatBytes(memoryFreeBytes)} free`),
  ];
}

function gpuLines({ name, note, capability, multiprocessors, memoryBytes, memoryFreeBytes }: Gpu): string[] {
  return lines("gpu", [
    `${name}: sm_${capability}, ${multiprocessors} multiprocessors, ${formatBytes(memoryBytes)}, of which ${formatBytes(memoryFreeBytes)} free`,
    note,
  ]);
}

function modelLines(model: NonNullable<DoctorReport["model"]>): string[] {
  const { names, family, layers, hidden, vocab, weightFilesBytes } = model;
  return [
    line(
      "model",
      `${names.join(", ")}: ${family}, ${layers} layers, hidden ${hidden}, vocabulary ${vocab}, ${formatBytes(weightFilesBytes)} of weight files`,
    ),
    line(
      "computes in",
      `${model.numbers}, ${model.engines}, sequences of up to ${model.contextTokens} tokens`,
    ),
    ...(model.draftModel === null ? [] : [line("draft model", model.draftModel)]),
    ...model.adapters.map((adapter) => line("adapter", `${adapter.name}: ${describeAdapter(adapter)}`)),
  ];
}

function rowsTable(rows: NonNullable<DoctorReport["model"]>["memory"]): string {
  return table(
    ["memory", "bytes", ""],
    rows.map(({ name, bytes, note }) => [name, formatBytes(bytes), note]),
  );
}

/** Names of the limits, as parts of a sentence. */
const LIMITS = { memory: "the memory limits it", arithmetic: "arithmetic limits it" } as const;

function speedLines(speed: NonNullable<DoctorReport["speed"]>): string[] {
  const { promptTokensPerSecond, promptLimit, streamTokensPerSecond, streamLimit } = speed;
  const giga = (rate: number): string => rateText(rate / 1e9);
  return lines("speed", [
    `one stream: about ${rateText(streamTokensPerSecond)} tokens/s, ${LIMITS[streamLimit]}; prompts: about ${rateText(promptTokensPerSecond)} tokens/s, ${LIMITS[promptLimit]}`,
    `estimated from ${giga(speed.readBytesPerSecond)} GB/s, ${giga(speed.int8OperationsPerSecond)} GOP/s in int8 and ${giga(speed.bf16OperationsPerSecond)} GFLOP/s in bf16 of ${speed.threads} threads, measured just now; norms, sampling and other requests come on top`,
    ...(speed.otherLoad === null ? [] : [busyText(speed.otherLoad)]),
  ]);
}
