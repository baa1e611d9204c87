/**
 * GGUF types IQ1 to IQ3, for tests: decoded number by number from the rows of csrc/model/codebooks.cpp.
 * Encoding writes arbitrary bits with about the right scale, since finding near rows is not part of the
 * format.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";

export type CodebookName = "IQ2_XXS" | "IQ2_XS" | "IQ2_S" | "IQ3_XXS" | "IQ3_S" | "IQ1_S" | "IQ1_M";

const source = readFileSync(join(import.meta.dir, "../../csrc/model/codebooks.cpp"), "utf8");

/** Returns row r of a codebook as its magnitudes. */
function book(name: string, magnitudes: readonly number[]): (row: number) => readonly number[] {
  const words = new RegExp(`${name}\\[\\d+\\] = \\{([^}]*)\\}`).exec(source)![1]!.split(",").map(Number);
  const [bits, count] = magnitudes.length > 3 ? [3, 4] : [2, 8];
  return (row) =>
    Array.from({ length: count }, (_, i) => magnitudes[(words[row]! >> (bits * i)) % (1 << bits)]!);
}
const book1 = book("kBook1", [-1, 0, 1]);
const book2Xxs = book("kBook2Xxs", [8, 25, 43]);
const book2Xs = book("kBook2Xs", [8, 25, 43]);
const book2S = book("kBook2S", [8, 25, 43]);
const book3Xxs = book("kBook3Xxs", [4, 12, 20, 28, 36, 44, 52, 62]);
const book3S = book("kBook3S", [1, 3, 5, 7, 9, 11, 13, 15]);

/** Reads `count` bits from bit `at` on, counted from the first byte of a block. */
function bitsOf(from: DataView, at: number, count: number): number {
  let value = 0;
  for (let i = 0; i < count; i += 1) {
    value += ((from.getUint8((at + i) >> 3) >> ((at + i) % 8)) & 1) * 2 ** i;
  }
  return value;
}

/**
 * True if number i of eight is negative. Seven signs are stored; the eighth makes the number of negative ones
 * even.
 */
function isNegative(seven: number, i: number): boolean {
  if (i < 7) return ((seven >> i) & 1) === 1;
  return Array.from({ length: 7 }, (_, bit) => (seven >> bit) & 1).reduce((a, b) => a + b) % 2 === 1;
}

/** Decodes number i of a block with scale d. */
type NumberOf = (from: DataView, d: number, i: number) => number;

const numberOf: Readonly<Record<CodebookName, NumberOf>> = {
  IQ2_XXS(from, d, i) {
    const word = 16 + 64 * (i >> 5);
    const eighth = (i >> 3) % 4;
    const magnitude = book2Xxs(bitsOf(from, word + 8 * eighth, 8))[i % 8]!;
    const sign = isNegative(bitsOf(from, word + 32 + 7 * eighth, 7), i % 8) ? -1 : 1;
    return (sign * magnitude * d * (2 * bitsOf(from, word + 60, 4) + 1)) / 8;
  },
  IQ2_XS(from, d, i) {
    const word = 16 + 16 * (i >> 3);
    const sign = isNegative(bitsOf(from, word + 9, 7), i % 8) ? -1 : 1;
    const scale = bitsOf(from, 66 * 8 + 4 * (i >> 4), 4);
    return (sign * book2Xs(bitsOf(from, word, 9))[i % 8]! * d * (2 * scale + 1)) / 8;
  },
  IQ2_S(from, d, i) {
    const row = bitsOf(from, 16 + 8 * (i >> 3), 8) + 256 * bitsOf(from, 66 * 8 + 2 * (i >> 3), 2);
    const sign = bitsOf(from, 34 * 8 + i, 1) === 1 ? -1 : 1;
    const scale = bitsOf(from, 74 * 8 + 4 * (i >> 4), 4);
    return (sign * book2S(row)[i % 8]! * d * (2 * scale + 1)) / 8;
  },
  IQ3_XXS(from, d, i) {
    const word = 66 * 8 + 32 * (i >> 5);
    const sign = isNegative(bitsOf(from, word + 7 * ((i >> 3) % 4), 7), i % 8) ? -1 : 1;
    const magnitude = book3Xxs(bitsOf(from, 16 + 8 * (i >> 2), 8))[i % 4]!;
    return (sign * magnitude * d * (2 * bitsOf(from, word + 28, 4) + 1)) / 4;
  },
  IQ3_S(from, d, i) {
    const row = bitsOf(from, 16 + 8 * (i >> 2), 8) + 256 * bitsOf(from, 66 * 8 + (i >> 2), 1);
    const sign = bitsOf(from, 74 * 8 + i, 1) === 1 ? -1 : 1;
    return sign * book3S(row)[i % 4]! * d * (2 * bitsOf(from, 106 * 8 + 4 * (i >> 5), 4) + 1);
  },
  IQ1_S(from, d, i) {
    const word = 34 * 8 + 16 * (i >> 5);
    const row = bitsOf(from, 16 + 8 * (i >> 3), 8) + 256 * bitsOf(from, word + 3 * ((i >> 3) % 4), 3);
    const shift = bitsOf(from, word + 15, 1) === 1 ? -1 : 1;
    return (d * (2 * bitsOf(from, word + 12, 3) + 1) * (8 * book1(row)[i % 8]! + shift)) / 8;
  },
  IQ1_M(from, d, i) {
    const nibble = 32 * 8 + 4 * (i >> 3);
    const row = bitsOf(from, 8 * (i >> 3), 8) + 256 * bitsOf(from, nibble, 3);
    const shift = bitsOf(from, nibble + 3, 1) === 1 ? -1 : 1;
    const scale = bitsOf(from, 48 * 8 + 16 * (i >> 6) + 3 * ((i >> 4) % 4), 3);
    return (d * (2 * scale + 1) * (8 * book1(row)[i % 8]! + shift)) / 8;
  },
};

/** Scale of a block. IQ1_M has its f16 in the upper nibbles of four words. */
function scaleOf(name: CodebookName, from: DataView): number {
  if (name !== "IQ1_M") return from.getFloat16(0, true);
  const bits = [48, 50, 52, 54].reduce((all, at, i) => all | ((from.getUint8(at + 1) >> 4) << (4 * i)), 0);
  return new Float16Array(Uint16Array.of(bits).buffer)[0]!;
}

function setScale(name: CodebookName, to: DataView, d: number): void {
  if (name !== "IQ1_M") {
    to.setFloat16(0, d, true);
    return;
  }
  const bits = new Uint16Array(Float16Array.of(d).buffer)[0]!;
  for (let i = 0; i < 4; i += 1) {
    to.setUint8(49 + 2 * i, (to.getUint8(49 + 2 * i) & 15) | (((bits >> (4 * i)) & 15) << 4));
  }
}

const sizes: Readonly<Record<CodebookName, readonly [type: number, bytes: number, ofOne: number]>> = {
  IQ2_XXS: [16, 66, 50],
  IQ2_XS: [17, 74, 50],
  IQ2_S: [22, 82, 50],
  IQ3_XXS: [18, 98, 130],
  IQ3_S: [21, 110, 130],
  IQ1_S: [19, 50, 8],
  IQ1_M: [29, 56, 8],
};

export const codebookTypes = Object.fromEntries(
  Object.entries(sizes).map(([key, [type, bytes, ofOne]]) => {
    const name = key as CodebookName;
    const stored: Stored = {
      type,
      block: 256,
      bytes,
      encode(from, to) {
        // Pseudo-random bits, seeded by the numbers.
        let random = from.reduce((sum, value) => (Math.imul(sum, 31) + Math.round(value * 1e6)) | 0, 7);
        for (let i = 0; i < bytes; i += 1) {
          random = (Math.imul(random, 1664525) + 1013904223) | 0;
          to.setUint8(i, random >>> 24);
        }
        setScale(name, to, Math.sqrt(from.reduce((sum, value) => sum + value * value, 0) / 256) / ofOne);
      },
      decode(from, to) {
        const d = scaleOf(name, from);
        for (let i = 0; i < 256; i += 1) to[i] = numberOf[name](from, d, i);
      },
    };
    return [name, stored];
  }),
) as Readonly<Record<CodebookName, Stored>>;

export interface Stored {
  /** Type number in the format. */
  readonly type: number;
  readonly block: number;
  readonly bytes: number;
  /** Encodes one block. */
  encode(from: Float32Array, to: DataView): void;
  decode(from: DataView, to: Float32Array): void;
}
