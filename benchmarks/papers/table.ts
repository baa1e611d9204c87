/** Rows of results: expectation, measurement over several seeds, and verdict. */

export interface Range {
  readonly mean: number;
  readonly least: number;
  readonly most: number;
}

export function rangeOf(values: readonly number[]): Range {
  const sum = values.reduce((total, value) => total + value, 0);
  return { mean: sum / values.length, least: Math.min(...values), most: Math.max(...values) };
}

/** Line of the table. A row without an expectation is for comparison. */
export interface Row {
  readonly claim: string;
  readonly what: string;
  readonly expected: string | null;
  readonly measured: string;
  /** Verdict on the mean over seeds; null without an expectation. */
  readonly isMet: boolean | null;
}

/** Makes a row whose mean must be at least (or at most) a number. */
export function row(
  claim: string,
  what: string,
  values: readonly number[],
  unit: string,
  bound: { readonly least: number } | { readonly most: number } | null = null,
): Row {
  const range = rangeOf(values);
  const measured = `${shown(range, unit)}`;
  if (bound === null) return { claim, what, expected: null, measured, isMet: null };
  const isMet = "least" in bound ? range.mean >= bound.least : range.mean <= bound.most;
  const expected = "least" in bound ? `≥ ${bound.least}${unit}` : `≤ ${bound.most}${unit}`;
  return { claim, what, expected, measured, isMet };
}

/** Formats a range: "2.91× (2.80–3.05)". */
export function shown({ mean, least, most }: Range, unit: string): string {
  if (digits(least) === digits(most)) return `${digits(mean)}${unit}`;
  return `${digits(mean)}${unit} (${digits(least)}–${digits(most)})`;
}

function digits(value: number): string {
  if (!Number.isFinite(value)) return "none";
  const size = Math.abs(value);
  return size >= 1000
    ? Math.round(value).toLocaleString("en")
    : value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

/** Formats rows as a Markdown table. */
export function tableOf(rows: readonly Row[]): string {
  const verdict = ({ isMet }: Row): string => (isMet === null ? "" : isMet ? "yes" : "**no**");
  const lines = rows.map(
    (row) => `| ${row.claim} | ${row.what} | ${row.expected ?? ""} | ${row.measured} | ${verdict(row)} |`,
  );
  return ["| Claim | What | Expected | Measured | Met |", "|---|---|---|---|---|", ...lines].join("\n");
}
