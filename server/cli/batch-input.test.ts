import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { batchInput, csvRows, STANDARD_INPUT } from "./batch-input.ts";
import { progressText } from "./batch-progress.ts";
import { jobsTable } from "./jobs.ts";
import type { BatchObject } from "./jobs-client.ts";

const inputOf = (name: string, text: string, template: string | null = null) =>
  batchInput(name, () => text.split("\n"), { template, maxTokens: 8 });
const prompts = (name: string, text: string, template: string | null = null): string[] =>
  Array.from(inputOf(name, text, template).lines(), (line) => JSON.parse(line).body.messages[0].content);
const parseCsv = (text: string): string[][] => [...csvRows(text.split("\n"))];

describe("a file of prompts", () => {
  test("of text has a prompt per line, in a template if there is one", () => {
    expect(prompts("a.txt", "one\r\n\ntwo")).toEqual(["one", "two"]);
    expect(prompts("a.txt", "one", "Say {line}.")).toEqual(["Say one."]);
  });

  test("of CSV fills a template by its columns", () => {
    expect(prompts("a.csv", 'name,city\n"A, ""x""",Rome\n', "{name} in {city}")).toEqual(['A, "x" in Rome']);
  });

  test("of JSON lines stays as it is", () => {
    const line = '{"custom_id":"1","method":"POST","url":"/v1/completions","body":{}}';
    const { lines, endpoint } = inputOf("a.jsonl", `${line}\r\n\n${line}`);
    const all = [line, "", line];
    expect([[...lines()], [...lines()], endpoint]).toEqual([all, all, "/v1/completions"]);
  });

  test("from standard input holds requests if it begins with one, and else a prompt per line", () => {
    const line = '{"custom_id":"1","method":"POST","url":"/v1/completions","body":{}}';
    const requests = inputOf(STANDARD_INPUT, `\n${line}\n`);
    expect([[...requests.lines()], requests.endpoint]).toEqual([["", line, ""], "/v1/completions"]);
    expect(prompts(STANDARD_INPUT, "one\n{two}", "Say {line}.")).toEqual(["Say one.", "Say {two}."]);
    expect(() => prompts(STANDARD_INPUT, "{}")).toThrow(
      "The first line of standard input is not a request of a batch",
    );
  });

  test("that cannot be read is refused with a sentence", () => {
    expect(() => prompts("a.csv", "name\nBob\n")).toThrow("its columns are {name}");
    expect(() => prompts("a.csv", "name\nBob,x\n", "{name}")).toThrow(
      "Row 2 of a.csv has 2 cells, but there are 1",
    );
    expect(() => prompts("a.csv", "name\nBob\n", "{nam}")).toThrow("names {nam}, but there is only {name}");
    expect(() => prompts("a.jsonl", "[]")).toThrow("not a request of a batch");
    expect(() => prompts("a.jsonl", "{}", "{line}")).toThrow("--prompt-template is for CSV and text");
    expect(() => prompts("a.jsonl", "\n")).toThrow("a.jsonl has no lines.");
    expect(() => prompts("a.json", "[\n  {\n")).toThrow("not a request of a batch");
    expect(() => parseCsv('"open')).toThrow("a quote is not closed");
    expect(() => parseCsv('a,b\n"x"y,z\n')).toThrow("broken after row 2");
  });

  test("any cells are read as they were written", () => {
    const cell = fc.string({ unit: fc.constantFrom('"', ",", "\n", "\r", "a", " ") });
    const table = fc.array(fc.array(cell, { minLength: 2, maxLength: 3 }), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(table, (rows) => {
        const csv = rows
          .map((row) => row.map((text) => `"${text.replaceAll('"', '""')}"`).join(","))
          .join("\r\n");
        expect(parseCsv(csv)).toEqual(rows);
      }),
      runs(200),
    );
  });
});

const running: BatchObject = {
  id: "batch_1",
  status: "in_progress",
  endpoint: "/v1/completions",
  created_at: 0,
  request_counts: { total: 400, completed: 118, failed: 2 },
  usage: { input_tokens: 1000, input_tokens_details: { cached_tokens: 560 }, output_tokens: 200 },
};
const begun: BatchObject = {
  ...running,
  request_counts: { total: 400, completed: 0, failed: 0 },
  usage: { input_tokens: 0, input_tokens_details: { cached_tokens: 0 }, output_tokens: 0 },
};

test("progress tells how much is done, how fast, what is saved and what is left", () => {
  expect(progressText(running, begun, 10)).toBe(
    "120 of 400, 120 tokens/s, 56 % of the prompts' tokens saved, 24 s left",
  );
  expect(progressText({ ...running, paused_by: "the disk is full" }, begun, 1)).toBe(
    "120 of 400, paused: the disk is full",
  );
  expect(progressText({ ...running, status: "validating" }, begun, 1)).toBe("reading");
});

test("jobs are listed with what is done of them", () => {
  expect(jobsTable([running]).split("\n")[1]).toBe(
    "batch_1  1970-01-01 00:00    400       118       2  in_progress",
  );
});
