/**
 * `bunting doctor`: reports the machine's hardware, the part that the server would use, and why it would not
 * use the rest.
 */

import { formatBytes } from "../../gpu/memory.ts";
import {
  type Gpu,
  type Isa,
  isaNames,
  type Machine,
  NativeError,
  type NativeLibrary,
  openLibrary,
} from "../../gpu/native.ts";
import { demoModelFolder } from "../assets.ts";
import type { Config } from "../config.ts";
import { type Backend, chooseBackend, findGpus } from "../engines/backend.ts";
import { withDraftPath } from "../engines/draft-plan.ts";
import { planProblem, planServing, type ServingPlan } from "../engines/plan.ts";
import { listenProblem } from "../http/listen.ts";
import { modelFolder } from "../jobs/data-folder.ts";
import { version } from "../version.ts";
import { localModelPath } from "./model-argument.ts";
import { describeDraft, describeEngines, describeNumbers, exposureProblem, memoryTable } from "./serve.ts";

const ISA_NAMES: Readonly<Record<Isa, string>> = {
  portable: "portable C++",
  avx2: "AVX2 + FMA",
  avx512: "AVX-512",
  avx512_bf16: "AVX-512 BF16",
  amx_bf16: "AMX BF16",
};

/** Prints the report; resolves to exit code 0 if `serve` would start with the same settings. */
export async function doctor(config: Config, dir: string | null): Promise<number> {
  const problems: string[] = [];
  console.log(`bunting ${version}, Bun ${Bun.version}, ${process.platform} ${process.arch}\n`);

  try {
    // Simulated engines load nothing, but the CPU report is still useful.
    const { device } = config;
    const backend = await chooseBackend(device.kind === "simulated" ? { kind: "cpu", engines: 1 } : device);
    const library = openLibrary(backend.library);
    console.log(`native library  ${library.path}`);
    console.log(describeMachine(library.machineProbe(), backend));
    console.log(`${await describeCuda(backend)}\n`);
    const plan = planServing(
      await withDraftPath(config, localModelPath),
      backend,
      library,
      dir === null ? await demoModelFolder() : localModelPath(dir),
    );
    for (const gpu of plan.gpus) console.log(describeGpu(gpu));
    if (plan.gpus.length > 0) console.log(`${describeGemm(plan, library)}\n`);
    const { folder } = plan;
    const { shape, family } = folder.config;
    console.log(
      `model           ${plan.names.join(", ")}: ${family}, ${shape.layers.length} layers, hidden ${shape.hidden}, vocabulary ${shape.vocab}, ${formatBytes(folder.weightFilesBytes)} of weight files`,
    );
    console.log(
      `computes in     ${describeNumbers(plan)}, ${describeEngines(plan)}, sequences of up to ${plan.contextMax} tokens\n`,
    );
    if (plan.draft !== null) console.log(`draft model     ${describeDraft(plan.draft)}\n`);
    console.log(`${memoryTable(plan.memory)}\n`);
    console.log(`jobs            ${describeJobs(config, plan.names[0]!)}\n`);
    console.log(`pages in host   ${plan.host.note ?? "none"}`);
    console.log(`pages on disk   ${plan.disk.note ?? "none"}\n`);
    const problem = planProblem(plan.memory);
    if (problem !== null) problems.push(problem);
  } catch (error) {
    problems.push(error instanceof Error ? error.message : String(error));
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

function describeJobs(config: Config, model: string): string {
  const { data } = config;
  const folder = typeof data === "object" ? data.folder : modelFolder(config, model);
  return folder === null ? "are not kept" : `are kept in ${folder}`;
}

function describeMachine(machine: Machine, { kind, reason }: Backend): string {
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
    `device          ${kind}, because ${reason}`,
    `processor       ${machine.processor}, ${machine.cores} cores for this process`,
    ...levels.map((level, index) => `${index === 0 ? "instructions" : ""}`.padEnd(16) + level),
    `memory          ${formatBytes(machine.memoryBytes)}, of which ${formatBytes(machine.memoryFreeBytes)} free`,
  ].join("\n");
}

/** Reports whether GPUs are used, and why. */
async function describeCuda({ kind, reason }: Backend): Promise<string> {
  if (kind === "cuda") return `cuda            used: ${reason}`;
  const found = await findGpus();
  if (found.count > 0)
    return `cuda            not used, though ${found.reason}: another device was asked for`;
  return `cuda            not used: ${found.reason}`;
}

/** Reports the library that multiplies matrices on the GPUs, and why. */
function describeGemm({ cublaslt, backend }: ServingPlan, library: NativeLibrary): string {
  const label = "gemm            ";
  if (cublaslt !== null)
    return `${label}${cublaslt} for more than 64 tokens of a step, because it was asked for and computes what it should; answers may depend on what else is running`;
  const own = `${label}own kernels, because with them an answer does not depend on what else is running`;
  return `${own}\n${" ".repeat(label.length)}${describeCublaslt(library, backend.gpus![0]!)}`;
}

function describeCublaslt(library: NativeLibrary, gpu: number): string {
  try {
    return `not used: ${library.cublasltProbe(gpu)}, which --gemm cublaslt would take`;
  } catch (error) {
    if (error instanceof NativeError) return `--gemm cublaslt cannot be had: ${error.message}`;
    throw error;
  }
}

function describeGpu({ name, note, capability, multiprocessors, memoryBytes, memoryFreeBytes }: Gpu): string {
  return [
    `gpu             ${name}: sm_${capability}, ${multiprocessors} multiprocessors, ${formatBytes(memoryBytes)}, of which ${formatBytes(memoryFreeBytes)} free`,
    `                ${note}`,
  ].join("\n");
}
