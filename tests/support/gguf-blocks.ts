/**
 * Number formats of GGUF files, for tests: encoding and decoding. Plain code after the format's definition,
 * independent of csrc/cpu/kernels/block_formats.h. Decoding rounds to f32 after every operation, as the
 * engine does. The quantisers take the nearest level of a scale set by the extremes: close, but not optimal.
 */

import type { storedTypes as knownTypes } from "../../model/stored-types.ts";
import { codebookTypes, type Stored } from "./gguf-codebooks.ts";

/** Names of all storage types: a type that engines know and these tests lack is a type error here. */
export type StoredName = keyof typeof knownTypes;

const f32 = Math.fround;

const bf16Bits = (value: number): number => {
  const bits = new Uint32Array(Float32Array.of(value).buffer)[0]!;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16; // rounds to nearest even; no NaN here
};

/** Values of the sixteen 4-bit codes. */
const levels = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const twiceE2m1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

export const storedTypes: Readonly<Record<StoredName, Stored>> = {
  ...codebookTypes,
  F32: plain(
    0,
    4,
    (to, value) => to.setFloat32(0, value, true),
    (from) => from.getFloat32(0, true),
  ),
  F16: plain(
    1,
    2,
    (to, value) => to.setFloat16(0, value, true),
    (from) => from.getFloat16(0, true),
  ),
  BF16: plain(
    30,
    2,
    (to, value) => to.setUint16(0, bf16Bits(value), true),
    (from) => new Float32Array(Uint32Array.of(from.getUint16(0, true) << 16).buffer)[0]!,
  ),
  Q4_0: simple(2, 4, false),
  Q4_1: simple(3, 4, true),
  Q5_0: simple(6, 5, false),
  Q5_1: simple(7, 5, true),
  Q8_0: {
    type: 8,
    block: 32,
    bytes: 34,
    encode(from, to) {
      to.setFloat16(0, from.reduce((max, value) => Math.max(max, Math.abs(value)), 0) / 127, true);
      const d = to.getFloat16(0, true);
      from.forEach((value, i) => {
        to.setInt8(2 + i, d === 0 ? 0 : clamp(Math.round(value / d), -128, 127));
      });
    },
    decode(from, to) {
      const d = from.getFloat16(0, true);
      for (let i = 0; i < 32; i += 1) to[i] = d * from.getInt8(2 + i);
    },
  },
  Q2_K: {
    type: 10,
    block: 256,
    bytes: 84,
    encode(from, to) {
      const groups = Array.from({ length: 16 }, (_, group) => from.subarray(group * 16, (group + 1) * 16));
      const minima = groups.map((group) => Math.max(0, -Math.min(...group)));
      const scales = groups.map((group, index) => Math.max(0, Math.max(...group) + minima[index]!) / 3);
      to.setFloat16(80, Math.max(...scales) / 15, true);
      to.setFloat16(82, Math.max(...minima) / 15, true);
      const [d, e] = [to.getFloat16(80, true), to.getFloat16(82, true)];
      const four = (value: number, unit: number): number =>
        unit === 0 ? 0 : clamp(Math.round(value / unit), 0, 15);
      groups.forEach((group, index) => {
        const [scale, minimum] = [four(scales[index]!, d), four(minima[index]!, e)];
        to.setUint8(index, scale | (minimum << 4));
        group.forEach((value, i) => {
          const q = scale === 0 ? 0 : clamp(Math.round((value + e * minimum) / (d * scale)), 0, 3);
          setPair(to, 16, index * 16 + i, q);
        });
      });
    },
    decode(from, to) {
      const [d, e] = [from.getFloat16(80, true), from.getFloat16(82, true)];
      for (let i = 0; i < 256; i += 1) {
        const both = from.getUint8(i >> 4);
        to[i] = f32(f32(d * (both & 15)) * pairOf(from, 16, i)) - f32(e * (both >> 4));
      }
    },
  },
  Q3_K: {
    type: 11,
    block: 256,
    bytes: 110,
    encode(from, to) {
      const scales = Array.from({ length: 16 }, (_, group) => signedExtreme(from, group * 16, 16) / -4);
      to.setFloat16(108, scales.reduce((max, scale) => Math.max(max, Math.abs(scale)), 0) / 31, true);
      const d = to.getFloat16(108, true);
      scales.forEach((wanted, group) => {
        const scale = (d === 0 ? 0 : clamp(Math.round(wanted / d), -32, 31)) + 32;
        const lowAt = 96 + (group % 8);
        const highAt = 104 + (group % 4);
        to.setUint8(lowAt, to.getUint8(lowAt) | ((scale & 15) << (group < 8 ? 0 : 4)));
        to.setUint8(highAt, to.getUint8(highAt) | ((scale >> 4) << (2 * (group >> 2))));
        for (let i = group * 16; i < (group + 1) * 16; i += 1) {
          const step = d * (scale - 32);
          const q = step === 0 ? 4 : clamp(Math.round(from[i]! / step) + 4, 0, 7);
          setPair(to, 32, i, q & 3);
          to.setUint8(i % 32, to.getUint8(i % 32) | ((q >> 2) << (i >> 5)));
        }
      });
    },
    decode(from, to) {
      const d = from.getFloat16(108, true);
      for (let i = 0; i < 256; i += 1) {
        const group = i >> 4;
        const low = (from.getUint8(96 + (group % 8)) >> (group < 8 ? 0 : 4)) & 15;
        const high = (from.getUint8(104 + (group % 4)) >> (2 * (group >> 2))) & 3;
        const q = pairOf(from, 32, i) + 4 * ((from.getUint8(i % 32) >> (i >> 5)) & 1) - 4;
        to[i] = f32(d * (low + 16 * high - 32)) * q;
      }
    },
  },
  IQ4_NL: {
    type: 20,
    block: 32,
    bytes: 18,
    encode(from, to) {
      to.setFloat16(0, signedExtreme(from, 0, 32) / -127, true);
      const d = to.getFloat16(0, true);
      from.forEach((value, i) => {
        setNibble(to, 2, i, d === 0 ? 8 : nearest(levels, value / d));
      });
    },
    decode(from, to) {
      const d = from.getFloat16(0, true);
      for (let i = 0; i < 32; i += 1) to[i] = d * levels[nibbleOf(from, 2, i)]!;
    },
  },
  IQ4_XS: {
    type: 23,
    block: 256,
    bytes: 136,
    encode(from, to) {
      const scales = Array.from({ length: 8 }, (_, group) => signedExtreme(from, group * 32, 32) / -127);
      to.setFloat16(0, scales.reduce((max, scale) => Math.max(max, Math.abs(scale)), 0) / 31, true);
      const d = to.getFloat16(0, true);
      scales.forEach((wanted, group) => {
        const scale = (d === 0 ? 0 : clamp(Math.round(wanted / d), -32, 31)) + 32;
        const lowAt = 4 + (group >> 1);
        to.setUint8(lowAt, to.getUint8(lowAt) | ((scale & 15) << (4 * (group % 2))));
        to.setUint16(2, to.getUint16(2, true) | ((scale >> 4) << (2 * group)), true);
        const step = d * (scale - 32);
        for (let i = group * 32; i < (group + 1) * 32; i += 1) {
          setNibble(to, 8, i, step === 0 ? 8 : nearest(levels, from[i]! / step));
        }
      });
    },
    decode(from, to) {
      const d = from.getFloat16(0, true);
      for (let i = 0; i < 256; i += 1) {
        const group = i >> 5;
        const low = (from.getUint8(4 + (group >> 1)) >> (4 * (group % 2))) & 15;
        const high = (from.getUint16(2, true) >> (2 * group)) & 3;
        to[i] = f32(d * (low + 16 * high - 32)) * levels[nibbleOf(from, 8, i)]!;
      }
    },
  },
  NVFP4: {
    type: 40,
    block: 64,
    bytes: 36,
    encode(from, to) {
      for (let group = 0; group < 4; group += 1) {
        const largest = from
          .subarray(group * 16, group * 16 + 16)
          .reduce((max, x) => Math.max(max, Math.abs(x)), 0);
        const bits = e4m3Numbers.findIndex((number, index) => index === 126 || number * 4 >= largest);
        to.setUint8(group, bits);
        for (let i = 0; i < 16; i += 1) {
          const x = bits === 0 ? 0 : from[group * 16 + i]! / e4m3Numbers[bits]!;
          setNvfp4(to, group, i, nearest(twiceE2m1, 2 * x));
        }
      }
    },
    decode(from, to) {
      for (let i = 0; i < 64; i += 1) {
        const byte = from.getUint8(4 + (i >> 4) * 8 + (i % 8));
        const q = twiceE2m1[(byte >> (i % 16 < 8 ? 0 : 4)) & 15]!;
        to[i] = f32(f32(e4m3Numbers[from.getUint8(i >> 4) & 127]! / 2) * q);
      }
    },
  },
  MXFP4: {
    type: 39,
    block: 32,
    bytes: 17,
    encode(from, to) {
      const largest = Math.abs(signedExtreme(from, 0, 32));
      const exponent = largest === 0 ? 0 : clamp(Math.ceil(Math.log2(largest / 6)) + 127, 0, 254);
      to.setUint8(0, exponent);
      const scale = 2 ** (exponent - 128);
      from.forEach((value, i) => {
        setNibble(to, 1, i, nearest(twiceE2m1, value / scale));
      });
    },
    decode(from, to) {
      const scale = 2 ** (from.getUint8(0) - 128);
      for (let i = 0; i < 32; i += 1) to[i] = scale * twiceE2m1[nibbleOf(from, 1, i)]!;
    },
  },
  Q4_K: grouped(12, 4),
  Q5_K: grouped(13, 5),
  Q6_K: {
    type: 14,
    block: 256,
    bytes: 210,
    encode(from, to) {
      const scales = Array.from({ length: 16 }, (_, group) => signedExtreme(from, group * 16, 16) / -32);
      to.setFloat16(208, scales.reduce((max, scale) => Math.max(max, Math.abs(scale)), 0) / 127, true);
      const d = to.getFloat16(208, true);
      scales.forEach((scale, group) => {
        to.setInt8(192 + group, d === 0 ? 0 : clamp(Math.round(scale / d), -128, 127));
      });
      from.forEach((value, i) => {
        const scale = d * to.getInt8(192 + Math.floor(i / 16));
        const q = scale === 0 ? 32 : clamp(Math.round(value / scale) + 32, 0, 63);
        const { nibbleAt, isHigh, pairAt, shift } = sixBitPlace(i);
        to.setUint8(nibbleAt, to.getUint8(nibbleAt) | ((q & 15) << (isHigh ? 4 : 0)));
        to.setUint8(pairAt, to.getUint8(pairAt) | ((q >> 4) << shift));
      });
    },
    decode(from, to) {
      const d = from.getFloat16(208, true);
      for (let i = 0; i < 256; i += 1) {
        const { nibbleAt, isHigh, pairAt, shift } = sixBitPlace(i);
        const low = (from.getUint8(nibbleAt) >> (isHigh ? 4 : 0)) & 15;
        const q = low | (((from.getUint8(pairAt) >> shift) & 3) << 4);
        to[i] = f32(d * from.getInt8(192 + Math.floor(i / 16))) * (q - 32);
      }
    },
  },
};

/** Index of the level nearest to `value`. */
function nearest(of: readonly number[], value: number): number {
  let best = 0;
  of.forEach((level, index) => {
    if (Math.abs(level - value) < Math.abs(of[best]! - value)) best = index;
  });
  return best;
}

/** Encodes numbers as a type's bytes; a whole number of blocks. */
export function encodeStored(name: StoredName, values: Float32Array): Uint8Array {
  const { block, bytes, encode } = storedTypes[name];
  const out = new Uint8Array((values.length / block) * bytes);
  for (let i = 0; i * block < values.length; i += 1) {
    encode(values.subarray(i * block, (i + 1) * block), new DataView(out.buffer, i * bytes, bytes));
  }
  return out;
}

/** Decodes a type's bytes. */
export function decodeStored(name: StoredName, stored: Uint8Array): Float32Array {
  const { block, bytes, decode } = storedTypes[name];
  const out = new Float32Array((stored.length / bytes) * block);
  for (let i = 0; i * bytes < stored.length; i += 1) {
    const view = new DataView(stored.buffer, stored.byteOffset + i * bytes, bytes);
    decode(view, out.subarray(i * block, (i + 1) * block));
  }
  return out;
}

function plain(
  type: number,
  bytes: number,
  set: (to: DataView, value: number) => void,
  get: (from: DataView) => number,
): Stored {
  return {
    type,
    block: 1,
    bytes,
    encode: (from, to) => set(to, from[0]!),
    decode(from, to) {
      to[0] = get(from);
    },
  };
}

/** Formats Q4_0, Q4_1, Q5_0, Q5_1. */
function simple(type: number, bits: 4 | 5, hasMinimum: boolean): Stored {
  const fifthAt = hasMinimum ? 4 : 2;
  const nibblesAt = fifthAt + (bits === 5 ? 4 : 0);
  const levels = 2 ** bits;
  const zero = hasMinimum ? 0 : levels / 2;
  return {
    type,
    block: 32,
    bytes: nibblesAt + 16,
    encode(from, to) {
      const low = hasMinimum ? Math.min(...from) : 0;
      const range = hasMinimum
        ? (Math.max(...from) - low) / (levels - 1)
        : signedExtreme(from, 0, 32) / -zero;
      to.setFloat16(0, range, true);
      if (hasMinimum) to.setFloat16(2, low, true);
      const d = to.getFloat16(0, true);
      from.forEach((value, i) => {
        const q = d === 0 ? zero : clamp(Math.round((value - low) / d) + zero, 0, levels - 1);
        const at = nibblesAt + (i % 16);
        to.setUint8(at, to.getUint8(at) | ((q & 15) << (i < 16 ? 0 : 4)));
        if (q >= 16) to.setUint8(fifthAt + (i >> 3), to.getUint8(fifthAt + (i >> 3)) | (1 << (i % 8)));
      });
    },
    decode(from, to) {
      const d = from.getFloat16(0, true);
      const low = hasMinimum ? from.getFloat16(2, true) : 0;
      for (let i = 0; i < 32; i += 1) {
        let q = (from.getUint8(nibblesAt + (i % 16)) >> (i < 16 ? 0 : 4)) & 15;
        if (bits === 5) q |= ((from.getUint8(fifthAt + (i >> 3)) >> (i % 8)) & 1) << 4;
        to[i] = hasMinimum ? f32(d * q) + low : d * (q - zero);
      }
    },
  };
}

/** Formats Q4_K, Q5_K. */
function grouped(type: number, bits: 4 | 5): Stored {
  const nibblesAt = 16 + (bits === 5 ? 32 : 0);
  const top = 2 ** bits - 1;
  return {
    type,
    block: 256,
    bytes: nibblesAt + 128,
    encode(from, to) {
      const groups = Array.from({ length: 8 }, (_, group) => from.subarray(group * 32, (group + 1) * 32));
      const minima = groups.map((group) => Math.max(0, -Math.min(...group)));
      const scales = groups.map((group, index) => Math.max(0, Math.max(...group) + minima[index]!) / top);
      to.setFloat16(0, Math.max(...scales) / 63, true);
      to.setFloat16(2, Math.max(...minima) / 63, true);
      const [d, e] = [to.getFloat16(0, true), to.getFloat16(2, true)];
      const six = (value: number, unit: number): number =>
        unit === 0 ? 0 : clamp(Math.round(value / unit), 0, 63);
      groups.forEach((group, index) => {
        const scale = six(scales[index]!, d);
        const minimum = six(minima[index]!, e);
        setGroup(to, index, scale, minimum);
        group.forEach((value, i) => {
          const q = scale === 0 ? 0 : clamp(Math.round((value + e * minimum) / (d * scale)), 0, top);
          const at = nibblesAt + (index >> 1) * 32 + i;
          to.setUint8(at, to.getUint8(at) | ((q & 15) << (index % 2 === 0 ? 0 : 4)));
          if (q >= 16) to.setUint8(16 + i, to.getUint8(16 + i) | (1 << index));
        });
      });
    },
    decode(from, to) {
      const [d, e] = [from.getFloat16(0, true), from.getFloat16(2, true)];
      for (let i = 0; i < 256; i += 1) {
        const index = i >> 5;
        const [scale, minimum] = groupOf(from, index);
        let q = (from.getUint8(nibblesAt + (index >> 1) * 32 + (i % 32)) >> (index % 2 === 0 ? 0 : 4)) & 15;
        if (bits === 5) q |= ((from.getUint8(16 + (i % 32)) >> index) & 1) << 4;
        to[i] = f32(f32(d * scale) * q) - f32(e * minimum);
      }
    },
  };
}

/**
 * Packs a group's scale and minimum, six bits each, into bytes 4 to 15. Groups 0-3: the low six bits of bytes
 * 0-3 and 4-7. Groups 4-7: nibbles of bytes 8-11, plus the two high bits of bytes 0-3 and 4-7.
 */
function setGroup(to: DataView, index: number, scale: number, minimum: number): void {
  const add = (at: number, bits: number): void => to.setUint8(4 + at, to.getUint8(4 + at) | bits);
  if (index < 4) {
    add(index, scale);
    add(index + 4, minimum);
  } else {
    add(index + 4, (scale & 15) | ((minimum & 15) << 4));
    add(index - 4, (scale >> 4) << 6);
    add(index, (minimum >> 4) << 6);
  }
}

function groupOf(from: DataView, index: number): [scale: number, minimum: number] {
  const byte = (at: number): number => from.getUint8(4 + at);
  if (index < 4) return [byte(index) & 63, byte(index + 4) & 63];
  return [
    (byte(index + 4) & 15) | ((byte(index - 4) >> 6) << 4),
    (byte(index + 4) >> 4) | ((byte(index) >> 6) << 4),
  ];
}

/** Nibble `i` of runs of 16 bytes from `at` on: the low nibbles of a run come before its high ones. */
function nibbleOf(from: DataView, at: number, i: number): number {
  return (from.getUint8(at + (i >> 5) * 16 + (i % 16)) >> (i % 32 < 16 ? 0 : 4)) & 15;
}

function setNibble(to: DataView, at: number, i: number, value: number): void {
  const byte = at + (i >> 5) * 16 + (i % 16);
  to.setUint8(byte, to.getUint8(byte) | (value << (i % 32 < 16 ? 0 : 4)));
}

/** Two bits of number `i`, in runs of 32 bytes from `at` on. */
function pairOf(from: DataView, at: number, i: number): number {
  return (from.getUint8(at + (i >> 7) * 32 + (i % 32)) >> (2 * ((i >> 5) & 3))) & 3;
}

function setPair(to: DataView, at: number, i: number, value: number): void {
  const byte = at + (i >> 7) * 32 + (i % 32);
  to.setUint8(byte, to.getUint8(byte) | (value << (2 * ((i >> 5) & 3))));
}

/** Location of number `i` of a Q6_K block: its low four and its high two bits. */
function sixBitPlace(i: number): { nibbleAt: number; isHigh: boolean; pairAt: number; shift: number } {
  const half = i >> 7;
  const group = (i >> 5) & 3;
  return {
    nibbleAt: half * 64 + (group % 2) * 32 + (i % 32),
    isHigh: group >= 2,
    pairAt: 128 + half * 32 + (i % 32),
    shift: group * 2,
  };
}

/** Unsigned numbers of e4m3 with bias 7; NaN is 0 in these files. */
const e4m3Numbers = Array.from({ length: 128 }, (_, bits) => {
  const [exponent, mantissa] = [bits >> 3, bits & 7];
  if (bits === 127) return 0;
  return exponent === 0 ? mantissa / 512 : (1 + mantissa / 8) * 2 ** (exponent - 7);
});

function setNvfp4(to: DataView, group: number, i: number, value: number): void {
  const at = 4 + group * 8 + (i % 8);
  to.setUint8(at, to.getUint8(at) | (value << (i < 8 ? 0 : 4)));
}

/** Value farthest from 0, with its sign. */
function signedExtreme(values: Float32Array, from: number, count: number): number {
  let extreme = 0;
  for (let i = from; i < from + count; i += 1) {
    if (Math.abs(values[i]!) > Math.abs(extreme)) extreme = values[i]!;
  }
  return extreme;
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value));
}
