/** `bunting doctor`: what this machine has, what of it would be used, what not, and why. */

import { existsSync } from "node:fs";
import { formatBytes } from "../../gpu/memory.ts";
import { type Isa, isaNames, type Machine, type NativeLibrary, openLibrary } from "../../gpu/native.ts";
import { demoModelFolder, libraryPath } from "../assets.ts";
import type { Config } from "../config.ts";
import { listenProblem } from "../listen.ts";
import { planProblem, planServing } from "../plan.ts";
import { version } from "../version.ts";
import { exposureProblem, memoryTable } from "./serve.ts";

const ISA_NAMES: Readonly<Record<Isa, string>> = {
  portable: "portable C++",
  avx2: "AVX2 + FMA",
  avx512: "AVX-512",
  avx512_bf16: "AVX-512 BF16",
  amx_bf16: "AMX BF16",
};

/** Prints the report; resolves to the exit code: 0 when `serve` with the same settings would start. */
export async function doctor(config: Config, dir: string | null): Promise<number> {
  const problems: string[] = [];
  console.log(`bunting ${version}, Bun ${Bun.version}, ${process.platform} ${process.arch}\n`);

  const library = await describeLibrary(problems);
  if (library !== null) {
    console.log(describeMachine(library.machineProbe()));
    console.log(`cuda            not used: this version has no CUDA engine${cudaNote()}\n`);
    try {
      const plan = planServing(config, library, dir ?? (await demoModelFolder()));
      const { folder } = plan;
      const { shape, family } = folder.config;
      console.log(
        `model           ${plan.names.join(", ")}: ${family}, ${shape.layers} layers, hidden ${shape.hidden}, vocabulary ${shape.vocab}, ${formatBytes(folder.weightFilesBytes)} of weight files`,
      );
      console.log(
        `computes in     ${plan.compute.compute}, ${plan.engines} engine${plan.engines > 1 ? "s" : ""} of ${plan.limits.threads} thread${plan.limits.threads > 1 ? "s" : ""}, sequences of up to ${plan.contextMax} tokens\n`,
      );
      console.log(`${memoryTable(plan.memory)}\n`);
      const problem = planProblem(plan.memory);
      if (problem !== null) problems.push(problem);
    } catch (error) {
      problems.push(error instanceof Error ? error.message : String(error));
    }
  }

  const address = `${config.host}:${config.port}`;
  const portTaken = await listenProblem(config);
  console.log(`address         ${address} ${portTaken === null ? "is free" : "cannot be used"}`);
  for (const problem of [portTaken, exposureProblem(config)]) if (problem !== null) problems.push(problem);

  console.log(
    problems.length === 0 ? "\n`bunting serve` would start." : "\n`bunting serve` would not start:",
  );
  for (const problem of problems) console.log(`- ${problem}`);
  return problems.length === 0 ? 0 : 1;
}

async function describeLibrary(problems: string[]): Promise<NativeLibrary | null> {
  try {
    const library = openLibrary(await libraryPath());
    console.log(`native library  ${library.path}`);
    return library;
  } catch (error) {
    problems.push(error instanceof Error ? error.message : String(error));
    return null;
  }
}

function describeMachine(machine: Machine): string {
  const best = isaNames.indexOf(machine.isaBest);
  const built = isaNames.indexOf(machine.isaBuilt);
  const used = Math.min(best, built);
  const levels = isaNames
    .filter((name) => process.arch === "x64" || name === "portable")
    .map((name) => {
      const level = isaNames.indexOf(name);
      if (level === used) return `${ISA_NAMES[name]}: used`;
      if (level < used) return `${ISA_NAMES[name]}: available, a better one is used`;
      if (level > best) return `${ISA_NAMES[name]}: not used, this processor or kernel lacks it`;
      return `${ISA_NAMES[name]}: not used, the compiler that built the library lacked it`;
    });
  return [
    `processor       ${machine.processor}, ${machine.cores} cores for this process`,
    ...levels.map((level, index) => `${index === 0 ? "instructions" : ""}`.padEnd(16) + level),
    `memory          ${formatBytes(machine.memoryBytes)}, of which ${formatBytes(machine.memoryFreeBytes)} free`,
  ].join("\n");
}

function cudaNote(): string {
  return existsSync("/dev/nvidiactl")
    ? " (an NVIDIA driver is present)"
    : " (and no NVIDIA driver is present)";
}
