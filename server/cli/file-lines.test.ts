import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { linesOf } from "./file-lines.ts";

const folder = mkdtempSync(join(tmpdir(), "bunting-lines-"));
afterAll(() => rmSync(folder, { recursive: true }));

test("a file's lines are whole wherever its pieces end, each time it is asked", () => {
  const path = join(folder, "lines");
  // Three bytes per character: reads end within characters and within lines.
  const lines = Array.from({ length: 40 }, (_, index) => "世".repeat(20_001 * (index % 3)) + index);
  writeFileSync(path, `\ufeff${lines.join("\n")}\r\n`);
  const read = [...lines.slice(0, -1), `${lines.at(-1)}\r`];
  expect([...linesOf(path)]).toEqual(read);
  expect([...linesOf(path)]).toEqual(read);
});

test("a line that is not UTF-8 is refused by its number", () => {
  const path = join(folder, "latin1");
  writeFileSync(path, Buffer.from("Stra\u00dfe\nStra\u00dfe\n", "latin1"));
  expect(() => [...linesOf(path)]).toThrow(`Line 1 of ${path} is not valid UTF-8.`);
  writeFileSync(path, Buffer.concat([Buffer.from("Stra\u00dfe\n\n"), Buffer.from("Stra\u00dfe", "latin1")]));
  expect(() => [...linesOf(path)]).toThrow(`Line 3 of ${path} is not valid UTF-8.`);
});

test("what is not a file is refused with a sentence", () => {
  expect(() => [...linesOf(folder)]).toThrow("is not a file: it is read more than once");
  expect(() => [...linesOf(join(folder, "none"))]).toThrow("none does not exist.");
});
