import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  cells,
  head,
  type Measured,
  merged,
  picture,
  type Recording,
  readRecording,
  writeRecording,
} from "./record.ts";

const ceilings = { readBytes: 40e9, f32: 5e11, bf16: 1e12, int8: 2e12 };

function figure(what: string, changes: Partial<Measured> = {}): Measured {
  const from = { date: "2026-01-02 03:04", commit: "abc" };
  return {
    what,
    ours: 30,
    unit: "tok/s",
    share: 0.9,
    llama: 20,
    llamaWith: "",
    spread: null,
    aim: {},
    ...from,
    ...changes,
  };
}

function recording(figures: readonly Measured[], llamaVersion: string | null): Recording {
  return { machine: "m", threads: 2, llamaVersion, ceilings, figures };
}

test("what is measured again replaces what was, and the rest stays, in the order of the rows", () => {
  const old = recording([figure("c"), figure("a", { ours: 1 }), figure("b: TTFT p99")], "version 7");
  const all = merged(old, recording([figure("a", { ours: 2 })], null), ["a", "b", "c"]);
  expect(all.figures.map(({ what, ours }) => [what, ours])).toEqual([
    ["a", 2],
    ["b: TTFT p99", 30],
    ["c", 30],
  ]);
  expect(all.llamaVersion).toBe("version 7");
});

test.each([
  ["a ratio that is reached", { aim: { ratio: 1.5 } }, "yes"],
  ["a ratio that is not", { aim: { ratio: 1.6 } }, "**no**"],
  ["a ratio of times, where less is better", { unit: "ms", aim: { ratio: 1.5 } }, "**no**"],
  ["a share beside a ratio", { aim: { ratio: 1.5, share: 0.95 } }, "**no**"],
  ["at most so many milliseconds", { unit: "ms", llama: null, aim: { msMost: 30 } }, "yes"],
  ["a ratio to nothing", { llama: null, aim: { ratio: 1.5 } }, null],
  ["no aim", { aim: {} }, null],
] as const)("met: %s", (_, changes, met) => {
  expect(cells(figure("a", changes)).at(-1)).toBe(met);
});

test("the spread of a ratio has a column of its own, which figures from before there was one leave open", () => {
  const folder = mkdtempSync(join(tmpdir(), "bunting-record-"));
  try {
    const path = join(folder, "results.json");
    const { spread: _, ...before } = figure("before");
    writeFileSync(path, JSON.stringify({ ...recording([], null), figures: [before] }));
    const now = recording([figure("now", { spread: [0.918, 1.6] })], null);
    writeRecording(path, merged(readRecording(path), now, ["before", "now"]), "how");
    const lines = readFileSync(join(folder, "results.md"), "utf8").split("\n");
    const table = lines.filter((line) => line.startsWith("|")).map((line) => line.slice(2, -2).split(" | "));
    const [titles, , ...figures] = table;
    const column = titles!.indexOf("spread");
    expect(titles![column - 1]).toBe("ratio");
    expect(figures.map((words) => [words[0], words[column - 1], words[column], words.length])).toEqual([
      ["before", "1.50×", "–", head.length + 1],
      ["now", "1.50×", "0.92-1.60", head.length + 1],
    ]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the committed picture shows the committed figures", () => {
  const path = join(import.meta.dir, "results.json");
  expect(readFileSync(path.replace(/json$/, "svg"), "utf8")).toBe(picture(readRecording(path)!));
});
