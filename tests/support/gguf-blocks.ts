/**
 * The ways in which GGUF files store numbers, for tests: to bytes and back. Plain code over the table of
 * csrc/model/stored_type.cpp; numbers come back rounded to f32 after every operation, as the engine computes them. The
 * quantisers take the nearest level of a scale found by the extremes: good enough to be close, not the best there is.
 */

export type StoredName =
  | ("F32" | "F16" | "BF16" | "Q4_0" | "Q4_1" | "Q5_0" | "Q5_1")
  | ("Q8_0" | "Q4_K" | "Q5_K" | "Q6_K");

interface Stored {
  /** The format's number. */
  readonly type: number;
  readonly block: number;
  readonly bytes: number;
  /** One block. */
  encode(from: Float32Array, to: DataView): void;
  decode(from: DataView, to: Float32Array): void;
}

const f32 = Math.fround;

const bf16Bits = (value: number): number => {
  const bits = new Uint32Array(Float32Array.of(value).buffer)[0]!;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16; // to nearest even; no NaN here
};

export const storedTypes: Readonly<Record<StoredName, Stored>> = {
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

/** Numbers to a type's bytes; a whole number of blocks. */
export function encodeStored(name: StoredName, values: Float32Array): Uint8Array {
  const { block, bytes, encode } = storedTypes[name];
  const out = new Uint8Array((values.length / block) * bytes);
  for (let i = 0; i * block < values.length; i += 1) {
    encode(values.subarray(i * block, (i + 1) * block), new DataView(out.buffer, i * bytes, bytes));
  }
  return out;
}

/** And back. */
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

/** Q4_0, Q4_1, Q5_0, Q5_1. */
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

/** Q4_K, Q5_K. */
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

/** Six bits each in bytes 4 to 15: the low six of bytes 0-3 and 4-7 for groups 0-3, nibbles of bytes 8-11 and the two
 *  high bits of bytes 0-3 and 4-7 for groups 4-7. */
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

/** Where number `i` of a Q6_K block has its low four and its high two bits. */
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

/** The value farthest from 0, with its sign. */
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
