/** Rows of results. */

import { expect, test } from "bun:test";
import { row, tableOf } from "./table.ts";

test("a row tells mean and range, and is met by its mean", () => {
  const met = row("Sarathi", "capacity", [2.5, 3], "×", { least: 2.6 });
  expect(met).toMatchObject({ expected: "≥ 2.6×", measured: "2.75× (2.50–3.00)", isMet: true });
  const missed = row("log", "error", [11, 12], " %", { most: 10 });
  expect(missed).toMatchObject({ expected: "≤ 10 %", measured: "11.5 % (11.0–12.0)", isMet: false });
  expect(tableOf([met, missed, row("x", "beside", [1234], " ms")])).toBe(
    [
      "| Claim | What | Expected | Measured | Met |",
      "|---|---|---|---|---|",
      "| Sarathi | capacity | ≥ 2.6× | 2.75× (2.50–3.00) | yes |",
      "| log | error | ≤ 10 % | 11.5 % (11.0–12.0) | **no** |",
      "| x | beside |  | 1,234 ms |  |",
    ].join("\n"),
  );
});
