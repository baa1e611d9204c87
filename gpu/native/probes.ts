/** The machine and its GPUs as the library probes them. */

/** Instruction sets in the order of BUNTING_ISA_*; each implies those before it. */
export const isaNames = ["portable", "avx2", "avx512", "avx512_bf16", "amx_bf16"] as const;
export type Isa = (typeof isaNames)[number];

/** Machine as this process sees it. */
export interface Machine {
  /** Highest level that processor and kernel support. */
  readonly isaBest: Isa;
  /** Highest level that the library was built with. */
  readonly isaBuilt: Isa;
  /** Number of cores this process may run on. */
  readonly cores: number;
  /** Physical memory, or the container's limit if lower. */
  readonly memoryBytes: number;
  /** Memory available now, without swapping. */
  readonly memoryFreeBytes: number;
  readonly processor: string;
}

/** Probed GPU. */
export interface Gpu {
  /** Number of GPUs of the machine. */
  readonly devices: number;
  /** Compute capability; 90 is sm_90. */
  readonly capability: number;
  readonly multiprocessors: number;
  readonly memoryBytes: number;
  readonly memoryFreeBytes: number;
  readonly name: string;
  /** Driver, for people. */
  readonly note: string;
}

/**
 * sizeof(bunting_machine): isa_best, isa_built, cores, reserved, memory_bytes, memory_free_bytes,
 * processor[96].
 */
export const machineBytes = 128;

export function decodeMachine(bytes: Uint8Array): Machine {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return {
    isaBest: isaNames[view.getInt32(0, true)] ?? "portable",
    isaBuilt: isaNames[view.getInt32(4, true)] ?? "portable",
    cores: view.getInt32(8, true),
    memoryBytes: Number(view.getBigUint64(16, true)),
    memoryFreeBytes: Number(view.getBigUint64(24, true)),
    processor: decodeText(bytes.subarray(32)),
  };
}

/** sizeof(bunting_device): devices, capability, multiprocessors, reserved, memory_bytes, memory_free_bytes, name[96],
 *  note[128]. */
export const gpuBytes = 256;

export function decodeGpu(bytes: Uint8Array): Gpu {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return {
    devices: view.getInt32(0, true),
    capability: view.getInt32(4, true),
    multiprocessors: view.getInt32(8, true),
    memoryBytes: Number(view.getBigUint64(16, true)),
    memoryFreeBytes: Number(view.getBigUint64(24, true)),
    name: decodeText(bytes.subarray(32, 128)),
    note: decodeText(bytes.subarray(128)),
  };
}

/** Decodes text up to a NUL or the end of the bytes. */
export function decodeText(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  return new TextDecoder().decode(bytes.subarray(0, end < 0 ? bytes.length : end));
}
