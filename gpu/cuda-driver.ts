/**
 * Lists this machine's GPUs as NVIDIA's driver (libcuda) reports them, or says why none can be used. Asks the
 * driver directly, which works in containers without nvidia-smi, on MIG instances and under WSL.
 */

import { CString, dlopen, type Pointer } from "bun:ffi";

export interface DriverGpu {
  /** Name, such as "NVIDIA A100-SXM4-40GB MIG 1g.5gb" for a MIG instance. */
  readonly name: string;
  /** Compute capability times ten; 90 is sm_90. */
  readonly capability: number;
}

export interface DriverReport {
  /** Usable GPUs; empty if `problem` says why there is none. */
  readonly gpus: readonly DriverGpu[];
  /** CUDA version of the driver times ten, 130 is 13.0; 0 without a driver. */
  readonly cuda: number;
  /** Part of a sentence; null if the GPUs are usable. */
  readonly problem: string | null;
}

/** Oldest driver that runs libraries of a CUDA 12 toolkit: R525. */
const CUDA_MIN = 120;
/** Oldest compute capability for which there are kernels. */
const CAPABILITY_MIN = 80;

/** Tried in this order; under WSL the driver may be outside of the loader's path. */
const LIBRARIES = ["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"];

const NO_DEVICE = 100;
const OUT_OF_MEMORY = 2;

const symbols = {
  cuDriverGetVersion: { args: ["buffer"], returns: "i32" },
  cuInit: { args: ["u32"], returns: "i32" },
  cuGetErrorName: { args: ["i32", "buffer"], returns: "i32" },
  cuDeviceGetCount: { args: ["buffer"], returns: "i32" },
  cuDeviceGet: { args: ["buffer", "i32"], returns: "i32" },
  cuDeviceGetName: { args: ["buffer", "i32", "i32"], returns: "i32" },
  cuDeviceGetAttribute: { args: ["buffer", "i32", "i32"], returns: "i32" },
  cuDevicePrimaryCtxRetain: { args: ["buffer", "i32"], returns: "i32" },
  cuDevicePrimaryCtxRelease_v2: { args: ["i32"], returns: "i32" },
} as const;

type Driver = ReturnType<typeof dlopen<typeof symbols>>["symbols"];

/**
 * Asks the driver. Never throws. Initialises each GPU for a moment, because only that shows whether it works.
 */
export function probeDriver(): DriverReport {
  const driver = openDriver();
  if (driver === null) return none(0, "there is no NVIDIA driver on this machine");
  const version = int((out) => driver.cuDriverGetVersion(out)); // 12090 for 12.9
  const cuda = Math.floor(version / 1000) * 10 + Math.floor((version % 1000) / 10);
  if (cuda < CUDA_MIN) {
    return none(
      cuda,
      `the NVIDIA driver is too old: it speaks CUDA ${versionText(cuda)}, and Bunting needs 12.0 (driver 525) or newer`,
    );
  }
  const status = driver.cuInit(0);
  const count = status === 0 ? int((out) => driver.cuDeviceGetCount(out)) : 0;
  if (status === NO_DEVICE || (status === 0 && count === 0)) {
    return none(cuda, "the NVIDIA driver finds no GPU (with MIG turned on, a GPU needs an instance)");
  }
  if (status !== 0) return none(cuda, `the NVIDIA driver does not start: ${errorName(driver, status)}`);
  const gpus = Array.from({ length: count }, (_, index) => describe(driver, index));
  const problems = gpus.map((gpu, index) => gpuProblem(driver, index, gpu));
  const usable = gpus.filter((_, index) => problems[index] === null);
  if (usable.length === 0) return none(cuda, `GPU 0 (${gpus[0]!.name}) ${problems[0]}`);
  return { gpus: usable, cuda, problem: null };
}

function openDriver(): Driver | null {
  for (const name of LIBRARIES) {
    try {
      return dlopen(name, symbols).symbols;
    } catch {
      // Not at this place.
    }
  }
  return null;
}

function describe(driver: Driver, index: number): DriverGpu {
  const device = int((out) => driver.cuDeviceGet(out, index));
  const name = new Uint8Array(new ArrayBuffer(256));
  driver.cuDeviceGetName(name, name.length - 1, device);
  const [MAJOR, MINOR] = [75, 76];
  const major = int((out) => driver.cuDeviceGetAttribute(out, MAJOR, device));
  const minor = int((out) => driver.cuDeviceGetAttribute(out, MINOR, device));
  return {
    name: new TextDecoder().decode(name.subarray(0, name.indexOf(0))),
    capability: major * 10 + minor,
  };
}

/** Reason why the GPU cannot be used; null if it can. */
function gpuProblem(driver: Driver, index: number, { capability }: DriverGpu): string | null {
  if (capability < CAPABILITY_MIN) {
    return `is too old: it has compute capability ${versionText(capability)}, and Bunting needs 8.0 or newer`;
  }
  const device = int((out) => driver.cuDeviceGet(out, index));
  const status = driver.cuDevicePrimaryCtxRetain(new BigUint64Array(1), device);
  if (status === 0) {
    driver.cuDevicePrimaryCtxRelease_v2(device);
    return null;
  }
  if (status === OUT_OF_MEMORY) return "has no memory left: other programs have taken it";
  return `is lost: ${errorName(driver, status)}`;
}

function none(cuda: number, problem: string): DriverReport {
  return { gpus: [], cuda, problem };
}

/** Returns the integer that a call writes; 0 if it fails. */
function int(call: (out: Int32Array) => number): number {
  const out = new Int32Array(new ArrayBuffer(4));
  return call(out) === 0 ? out[0]! : 0;
}

function errorName(driver: Driver, status: number): string {
  const out = new BigUint64Array(new ArrayBuffer(8));
  if (driver.cuGetErrorName(status, out) !== 0 || out[0] === 0n) return `error ${status}`;
  return new CString(Number(out[0]) as Pointer).toString();
}

function versionText(tenths: number): string {
  return `${Math.floor(tenths / 10)}.${tenths % 10}`;
}
