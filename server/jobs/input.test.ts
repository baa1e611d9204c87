/**
 * Input of a batch: every faulty line is reported with its number, and the lines around it are still read.
 */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { defaultJsonLimits } from "../http/limits.ts";
import { InputReader, splitLines } from "./input.ts";
import { openaiForm } from "./openai-form.ts";
import type { LineRecord } from "./records.ts";

const limits = { linesMax: 50, lineBytesMax: 200, ...defaultJsonLimits };

/** Reader of a text. `pieces`: maximum bytes per read. */
function readerOf(text: string | Buffer, pieces = Number.POSITIVE_INFINITY): InputReader {
  const bytes = Buffer.from(text as string);
  const source = {
    bytes: bytes.length,
    read: (start: number, count: number) => bytes.subarray(start, start + Math.min(count, pieces)),
  };
  return new InputReader(source, { form: openaiForm("/v1/completions"), models: ["m", "n"], limits });
}

function lineOf(customId: string, changes: object = {}): string {
  const body = { model: "m", prompt: "x" };
  return JSON.stringify({ custom_id: customId, method: "POST", url: "/v1/completions", body, ...changes });
}

function recordsOf(reader: InputReader): LineRecord[] {
  return [...reader.lines()].filter((record) => record !== null);
}

function faultsOf(text: string | Buffer): unknown[] {
  const reader = readerOf(text);
  for (const _ of reader.lines());
  return reader.faults.map(({ code, line }) => [code, line]);
}

test("each faulty line is told with its number, and what is right is read", () => {
  const text = Buffer.concat(
    [
      lineOf("1"),
      "{",
      lineOf("1"),
      "",
      lineOf("5", { url: "/v1/chat/completions" }),
      lineOf("6", { method: "GET" }),
      lineOf("7", { body: { model: "gpt-9" } }),
      lineOf("8", { body: { model: "n" } }),
      lineOf("9", { body: null }),
      lineOf(""),
      lineOf("11", { pad: "x".repeat(200) }),
      lineOf("12", { pad: "x".repeat(300_000) }),
      Buffer.from([0xff, 0xfe]),
      lineOf("14"),
    ].map((line) => Buffer.concat([Buffer.from(line as string), Buffer.from("\n")])),
  );
  const reader = readerOf(text);
  expect(recordsOf(reader).map(({ line, customId }) => [line, customId])).toEqual([
    [1, "1"],
    [14, "14"],
  ]);
  expect(reader.faults.map(({ code, line }) => [line, code])).toEqual([
    [2, "invalid_json_line"],
    [3, "duplicate_custom_id"],
    [5, "invalid_url"],
    [6, "invalid_method"],
    [7, "model_not_found"],
    [8, "mismatched_model"],
    [9, "invalid_body"],
    [10, "invalid_custom_id"],
    [11, "line_too_long"],
    [12, "line_too_long"],
    [13, "invalid_json_line"],
  ]);
});

test("a line may be as long as the limit, and a file have as many lines, and no more", () => {
  const pad = (bytes: number): string => {
    const line = lineOf("1", { pad: "" });
    return line.replace('"pad":""', `"pad":"${"x".repeat(bytes - line.length)}"`);
  };
  expect(faultsOf(pad(200))).toEqual([]);
  expect(faultsOf(`${pad(200)}\r\n`)).toEqual([]);
  expect(faultsOf(pad(201))).toEqual([["line_too_long", 1]]);
  const many = (count: number): string =>
    Array.from({ length: count }, (_, index) => lineOf(String(index))).join("\n");
  expect(faultsOf(many(50))).toEqual([]);
  expect(faultsOf(many(51))).toEqual([["too_many_tasks", null]]);
  expect(faultsOf("\n \n")).toEqual([["empty_file", null]]);
});

test("blank lines are bounded too, and a reader can pause at each line of any kind", () => {
  expect([...readerOf(`\n{\n \n${lineOf("4")}`).lines()].map((record) => record?.line ?? null)).toEqual([
    null,
    null,
    null,
    4,
  ]);
  expect(faultsOf(`${"\n".repeat(50)}${lineOf("51")}`)).toEqual([]);
  expect(faultsOf(`${"\n".repeat(51)}${lineOf("52")}`)).toEqual([["too_many_tasks", null]]);
});

test("a file may begin with a byte order mark, which is no part of its first line", () => {
  const text = Buffer.from(`\ufeff${lineOf("1")}\r\n${lineOf("2")}\n`);
  const read = recordsOf(readerOf(text));
  expect(read.map(({ start, bytes }) => text.subarray(start, start + bytes).toString())).toEqual([
    lineOf("1"),
    lineOf("2"),
  ]);
  expect(faultsOf(`${lineOf("1")}\n\ufeff${lineOf("2")}`)).toEqual([["invalid_json_line", 2]]);
});

test("of many faults the first hundred are told, and how many more there are", () => {
  const reader = new InputReader(
    { bytes: 260, read: (start, count) => Buffer.from("{\n".repeat(130)).subarray(start, start + count) },
    { form: openaiForm("/v1/completions"), models: [], limits: { ...limits, linesMax: 200 } },
  );
  for (const _ of reader.lines());
  expect(reader.faults).toHaveLength(101);
  expect(reader.faults.at(-1)).toMatchObject({ code: "more_errors", message: "30 more lines have errors." });
});

test("lines are found wherever reads end, and each tells where it lies", () => {
  const texts = fc.array(fc.constantFrom("", "short", "é".repeat(20), "x".repeat(150)), { maxLength: 12 });
  fc.assert(
    fc.property(
      texts,
      fc.constantFrom("\n", "\r\n"),
      fc.integer({ min: 1, max: 90 }),
      (pads, end, pieces) => {
        const lines = pads.map((pad, index) => lineOf(String(index), { pad }));
        const text = Buffer.from(lines.join(end));
        const fitting = lines.filter((line) => Buffer.byteLength(line) <= limits.lineBytesMax);
        const read = recordsOf(readerOf(text, pieces));
        expect(read.map(({ start, bytes }) => text.subarray(start, start + bytes).toString())).toEqual(
          fitting,
        );
      },
    ),
    runs(200),
  );
});

test("a file is read no further than its lines are taken", () => {
  const line = `${lineOf("x", { pad: "x".repeat(80) })}\n`;
  const bytes = 2 ** 22;
  let read = 0;
  const source = {
    bytes,
    read: (start: number, count: number) => {
      read = start + count;
      const text = line.repeat(Math.ceil(count / line.length) + 1);
      return Buffer.from(text.slice(start % line.length, (start % line.length) + count));
    },
  };
  let taken = 0;
  for (const { start } of splitLines(source, limits.lineBytesMax)) {
    taken += 1;
    expect(read - start).toBeLessThanOrEqual(256 * 1024 + line.length);
  }
  expect(taken).toBe(Math.ceil(bytes / line.length));
});
