/** Results on disk. */

import { expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Results } from "./results.ts";
import { row } from "./table.ts";

test("a claim's section is replaced, the others stay, and all keep to the order", () => {
  const folder = mkdtempSync(join(tmpdir(), "bunting-results-"));
  try {
    const order = ["first", "second"];
    const written = (name: string, value: number): string => {
      const results = new Results();
      results.rows.push(row("claim", name, [value], "×", { least: 2 }));
      results.tables.push({ title: `table of ${name}`, head: ["a", "b"], lines: [["1", "2"]] });
      results.charts.set(name, { title: name, xLabel: "", yLabel: "", series: [{ name, points: [[1, 1]] }] });
      results.write(folder, name, "a test", order);
      return readFileSync(join(folder, "results.md"), "utf8");
    };
    expect(written("second", 1)).toContain("## first\n\nNot measured yet.\n\n## second");
    written("first", 3);
    const text = written("second", 4);
    expect(text.match(/^## .*/gm)).toEqual(["## first", "## second"]);
    expect(text).toContain("| claim | first | ≥ 2× | 3.00× | yes |");
    expect(text).toContain("| claim | second | ≥ 2× | 4.00× | yes |");
    expect(text).not.toContain("1.00×");
    expect(text).toContain("**table of second**\n\n| a | b |\n| --- | --- |\n| 1 | 2 |");
    expect(text).toContain("![first](first.svg)");
    expect(existsSync(join(folder, "first.svg"))).toBe(true);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
