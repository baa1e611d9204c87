/** Tables for people: each column is as wide as its widest cell, numbers right-aligned. */

export type Cell = string | number | null;

/**
 * Lines of a table. A column of numbers, or of texts that start with a digit, is right-aligned; null shows as
 * a dash.
 */
export function table(head: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const cells = [head, ...rows.map((row) => row.map((cell) => (cell === null ? "–" : String(cell))))];
  const widths = head.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const isNumeric = head.map((_, column) =>
    rows.every((row) => row[column] == null || row[column] === "" || /^[-+]?[\d.]/.test(String(row[column]))),
  );
  return cells
    .map((row) =>
      row
        .map((cell, column) =>
          isNumeric[column] ? cell.padStart(widths[column]!) : cell.padEnd(widths[column]!),
        )
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
