/**
 * Generates model/stored-types.ts, the storage types of files, from the tables in csrc/ that engines are
 * built from.
 */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";

const csrc = join(resolve(import.meta.dir, ".."), "csrc");

export function storedTypesModule(): string {
  const formats = readFileSync(join(csrc, "cpu/kernels/block_formats.h"), "utf8");
  const codebooks = readFileSync(join(csrc, "model/codebook_types.cpp"), "utf8");
  const numbers = new Map(all(/^ {2}(\w+) = (\d+),$/gm, formats).map(([, name, number]) => [name, number]));
  const rows = formats
    .slice(formats.indexOf("kFormats[]"))
    .split("{.type = Dtype::")
    .slice(1)
    .filter((row) => row.includes(".file = "))
    .map((row) => {
      const [, type, name] = one(/^(\w+), \.name = "(\w+)"/, row);
      const [, gguf, bytes] = one(/\.file = \{\.type = (\d+), \.bytes = (\d+)/, row);
      const bits = /\.bits = (\d+)/.exec(row)?.[1];
      const kind = bits === undefined ? "numbers" : "blocks";
      const converted = /\.converted = \{(\d+), (\d+)\}/.exec(row);
      const own = bits === undefined ? 1 : /Scales::super/.test(row) ? 256 : 32;
      const block = converted === null ? own : Number(converted[1]);
      const size = converted?.[2] ?? bytes!;
      return rowOf(name!, numbers.get(type!)!, gguf!, kind, block, size, bits ?? `${8 * Number(bytes)}`);
    });
  const first = Number(one(/enum Codebook : int32_t \{ \w+ = (\d+)/, codebooks)[1]);
  const books = all(/\{kIq\w+, "(\w+)", (\d+), (\d+)\}/g, codebooks).map(([, name, gguf, bytes], index) =>
    rowOf(name!, `${first + index}`, gguf!, "codebook", 256, bytes!, one(/\d/, name!)[0]!),
  );
  const inOrder = [...rows, ...books].toSorted((a, b) => ggufOf(a) - ggufOf(b));
  return `/**
 * Storage types of files. Made from csrc/cpu/kernels/block_formats.h and csrc/model/codebook_types.cpp by
 * \`bun tools/docs.ts\`; do not edit.
 */
export interface StoredType {
  /** csrc/include/engine.h's. */
  readonly number: number;
  /** GGUF's. */
  readonly gguf: number;
  /** Plain, blocks of integers that share scales, or rows of code books. */
  readonly kind: "numbers" | "blocks" | "codebook";
  /** Numbers that are stored together, and their bytes. */
  readonly block: number;
  readonly bytes: number;
  /** Bits per number, without scales. */
  readonly bits: number;
}

export const storedTypes = {
${inOrder.join("\n")}
} as const satisfies Readonly<Record<string, StoredType>>;
`;
}

function rowOf(
  name: string,
  number: string,
  gguf: string,
  kind: StoredKind,
  block: number,
  bytes: string,
  bits: string,
): string {
  return `  ${name}: { number: ${number}, gguf: ${gguf}, kind: "${kind}", block: ${block}, bytes: ${bytes}, bits: ${bits} },`;
}
const ggufOf = (row: string): number => Number(one(/gguf: (\d+)/, row)[1]);
type StoredKind = "numbers" | "blocks" | "codebook";

function all(pattern: RegExp, text: string): RegExpMatchArray[] {
  return [...text.matchAll(pattern)];
}

function one(pattern: RegExp, text: string): RegExpExecArray {
  const found = pattern.exec(text);
  if (found === null) throw new Error(`no ${pattern} in ${text.slice(0, 200)}`);
  return found;
}
