/** Random damage to files of stored pages, for property tests. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";

/** Damage to one file of a folder; fractions say where. */
export interface Damage {
  readonly kind: "flip" | "cut" | "append" | "zero" | "repeat";
  readonly file: number;
  readonly at: number;
  readonly size: number;
}

export const damage: fc.Arbitrary<Damage> = fc.record({
  kind: fc.constantFrom("flip", "cut", "append", "zero", "repeat"),
  file: fc.double({ min: 0, max: 0.999, noNaN: true }),
  at: fc.double({ min: 0, max: 0.999, noNaN: true }),
  size: fc.integer({ min: 1, max: 5000 }),
});

/** Damages one of the files of stored pages in a folder. */
export function applyDamage(folder: string, { kind, file, at, size }: Damage): void {
  const files = readdirSync(folder).filter((name) => name.endsWith(".kv"));
  const path = join(folder, files[Math.floor(file * files.length)]!);
  const bytes = readFileSync(path);
  const offset = Math.floor(at * bytes.length);
  const end = Math.min(bytes.length, offset + size);
  if (kind === "flip" && bytes.length > 0) bytes[offset]! ^= 1 << (size % 8);
  if (kind === "zero") bytes.fill(0, offset, end);
  if (kind === "repeat") bytes.copyWithin(end, offset, end);
  if (kind === "append") writeFileSync(path, Buffer.concat([bytes, Buffer.alloc(size, offset)]));
  else writeFileSync(path, kind === "cut" ? bytes.subarray(0, offset) : bytes);
}
