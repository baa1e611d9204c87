import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { linesOf } from "./file-lines.ts";

const folder = mkdtempSync(join(tmpdir(), "bunting-lines-"));
afterAll(() => rmSync(folder, { recursive: true }));

test("a file's lines are whole wherever its pieces end, each time it is asked", () => {
  const path = join(folder, "lines");
  // Three bytes each: pieces end within characters and within lines.
  const lines = Array.from({ length: 40 }, (_, index) => "世".repeat(20_001 * (index % 3)) + index);
  writeFileSync(path, `\ufeff${lines.join("\n")}\r\n`);
  const read = [`\ufeff${lines[0]}`, ...lines.slice(1, -1), `${lines.at(-1)}\r`];
  expect([...linesOf(path)]).toEqual(read);
  expect([...linesOf(path)]).toEqual(read);
});

test("what is not a file is refused with a sentence", () => {
  expect(() => [...linesOf(folder)]).toThrow("is not a file: it is read more than once");
  expect(() => [...linesOf(join(folder, "none"))]).toThrow("cannot be read");
});
