/**
 * Model of the kernels' times on a GPU: the largest of what issuing instructions, the tensor cores and memory take, plus a
 * launch. Instructions are those of the compiled kernels (instructions.json, by tools/sass.mjs).
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";

export interface Gpu {
  readonly copyBytesPerSecond: number;
  readonly bf16FlopsPerSecond: number;
  readonly multiprocessors: number;
  readonly clockHz: number;
}

export const h200: Gpu = {
  copyBytesPerSecond: 4.3e12,
  bf16FlopsPerSecond: 790e12,
  multiprocessors: 132,
  clockHz: 1.85e9,
};

/** Measurement as bunting_bench_cuda prints it; `us` is absent where nothing was measured. */
export interface KernelRun {
  readonly kernel: string;
  readonly bytes: number;
  readonly flops: number;
  readonly us?: number;
  readonly format?: string;
  readonly tokens?: number;
  readonly n?: number;
  readonly k?: number;
  readonly count?: number;
  readonly head?: number;
  readonly [member: string]: unknown;
}

export type Bound = "issue" | "shared memory" | "tensor" | "memory" | "launch";
export interface Estimate {
  readonly us: number;
  readonly bound: Bound;
}

interface Counts {
  readonly all: number;
  readonly loop?: { readonly all: number; readonly tensor: number; readonly shared: number };
}
const instructions = JSON.parse(readFileSync(join(import.meta.dir, "instructions.json"), "utf8")) as Readonly<
  Record<string, Counts>
>;

/** Formats of weights, in the order of csrc/cuda/quantise.h, with the bits of a code. */
const FORMATS = ["bf16", "int8", "int8_32", "int4", "fp8", "mxfp4"];
const CODE_BITS = [16, 8, 8, 4, 8, 4];

const SCHEDULERS = 4; // of a multiprocessor; each issues an instruction of a warp per clock
/**
 * Reachable shares of issue slots, of copy bandwidth and, with mma.sync, of the large product. Assumed, not
 * measured on a GPU.
 */
const ISSUED = 0.55;
const READ = 0.85;
const MMA_SYNC = 0.62;
const LAUNCH_SECONDS = 1.2e-6;
const ROUTING_LAUNCHES = 5;
const LOAD_CLOCKS = 4;
const MANY_WARPS = 8;
const MANY_TILE = 128;
/**
 * Instructions of a warp for 16 query rows and 64 keys with heads of 128, plus a quarter of those at a span's
 * end.
 */
const ATTENTION_INSTRUCTIONS = 1350;

/** Expected time of one launch; null for a kernel that the model does not know. */
export function estimate(run: KernelRun, gpu: Gpu): Estimate | null {
  const memory = run.bytes / gpu.copyBytesPerSecond / READ;
  const tensor = run.flops / gpu.bf16FlopsPerSecond / MMA_SYNC;
  switch (run.kernel) {
    case "gemm_few":
      return largest({ issue: issueOfFew(run, gpu), tensor, memory });
    case "gemm_many":
      return largest({ ...unitsOfMany(run, gpu), tensor, memory });
    case "attention":
      return largest({ issue: run.count === 1 ? 0 : issueOfAttention(run, gpu), tensor, memory });
    case "experts":
      return largest({ issue: 0, tensor, memory });
    case "routing":
      return largest({ issue: 0, tensor: 0, memory }, ROUTING_LAUNCHES);
    case "cublaslt":
      return null;
    default:
      return largest({ issue: 0, tensor: 0, memory });
  }
}

interface Units {
  readonly issue: number;
  readonly tensor: number;
  readonly memory: number;
  readonly shared?: number;
}

function largest(seconds: Units, launches = 1): Estimate {
  const launch = launches * LAUNCH_SECONDS;
  const bounds: readonly [Bound, number][] = [
    ["memory", seconds.memory],
    ["tensor", seconds.tensor],
    ["issue", seconds.issue],
    ["shared memory", seconds.shared ?? 0],
  ];
  const [bound, most] = bounds.reduce((one, other) => (other[1] > one[1] ? other : one));
  return { us: (most + launch) * 1e6, bound: most < launch ? "launch" : bound };
}

function issueSeconds(warpInstructions: number, gpu: Gpu, multiprocessors: number): number {
  return warpInstructions / (multiprocessors * SCHEDULERS * gpu.clockHz * ISSUED);
}

/** Warp instructions of gemm_few per KB of codes, for a number of tokens and a format. */
export function fewInstructionsPerKb(tokens: number, format: string): number {
  const index = FORMATS.indexOf(format);
  const tiles = [1, 2, 4, 8].find((count) => tokens <= 8 * count) ?? 8;
  const loop = instructions[`gemm_few<${tiles}, ${index}, 0>`]?.loop;
  if (loop === undefined)
    throw new Error(`instructions.json has no gemm_few for ${tokens} tokens in ${format}`);
  const slabK = CODE_BITS[index] === 4 ? 128 : 64;
  const slabs = loop.tensor / ((slabK / 16) * tiles);
  const slabKb = (16 * slabK * CODE_BITS[index]!) / 8 / 1024;
  return loop.all / slabs / slabKb;
}

function issueOfFew({ tokens = 1, n = 0, k = 0, format = "bf16" }: KernelRun, gpu: Gpu): number {
  const kb = (n * k * CODE_BITS[FORMATS.indexOf(format)]!) / 8 / 1024;
  return issueSeconds(kb * fewInstructionsPerKb(tokens, format), gpu, gpu.multiprocessors);
}

/**
 * Waves of blocks, each of which runs its chain of steps in sequence. A load of 16 bytes per lane takes four
 * clocks.
 */
function unitsOfMany(run: KernelRun, gpu: Gpu): { readonly issue: number; readonly shared: number } {
  const { tokens = 1, n = 0, k = 0, format = "bf16" } = run;
  const index = FORMATS.indexOf(format);
  const loop = instructions[`gemm_many<${index}, 0>`]?.loop;
  if (loop === undefined) throw new Error(`instructions.json has no gemm_many in ${format}`);
  const stepK = CODE_BITS[index] === 4 ? 128 : 64;
  const tileTokens = (loop.tensor * 16 * 8 * 16 * MANY_WARPS) / (stepK * MANY_TILE);
  const waves = Math.ceil((Math.ceil(n / MANY_TILE) * Math.ceil(tokens / tileTokens)) / gpu.multiprocessors);
  const steps = waves * Math.ceil(k / stepK);
  return {
    issue: steps * issueSeconds(MANY_WARPS * loop.all, gpu, 1),
    shared: (steps * MANY_WARPS * loop.shared * LOAD_CLOCKS) / gpu.clockHz,
  };
}

function issueOfAttention({ flops, head = 128 }: KernelRun, gpu: Gpu): number {
  const units = flops / (4 * 16 * 64 * head);
  return issueSeconds(units * ATTENTION_INSTRUCTIONS * (head / 128), gpu, gpu.multiprocessors);
}
