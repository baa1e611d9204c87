import { expect, test } from "bun:test";
import { AlikeBytes } from "./alike-bytes.ts";

const alike = new AlikeBytes();
const encoder = new TextEncoder();
const written = (text: string): string => alike.write(encoder.encode(text)).join(" ");

test("texts are one that differ in letters, in digits or in characters beyond ASCII alone", () => {
  expect(written("zap 2, né")).toBe(written("yes 7, là"));
  expect(written("中文")).toBe(written("日本"));
  expect(written("😀")).toBe(written("🚀"));
});

test("what patterns tell apart stays apart: hexadecimal digits, cases, signs, white space and escapes", () => {
  const pairs = [
    ["a", "g"],
    ["a", "A"],
    ["-", "_"],
    ["\u00a0", "é"],
    ["\u2028", "€"],
    ["\\n", "\\t"],
    ["\\u0001", "\\u0002"],
  ] as const;
  for (const [one, other] of pairs) expect(written(one)).not.toBe(written(other));
});

test("each byte stands for those that are written so", () => {
  const text = encoder.encode("aé中😀 \\u001f");
  for (const [at, byte] of alike.write(text).entries()) expect(alike.meanings[byte]).toContain(text[at]!);
});
