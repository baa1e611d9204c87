import type { Transformed } from "../spec.ts";
import { failed, ok } from "./value.ts";

const months = [
  "january",
  "february",
  "march",
  "april",
  "may",
  "june",
  "july",
  "august",
  "september",
  "october",
  "november",
  "december",
];

/** Patterns for each part of a form. MMMM is an English month name; one digit suffices for day and month. */
const parts: readonly (readonly [string, RegExp])[] = [
  ["YYYY", /^\d{4}/],
  ["MMMM", /^[A-Za-z]{3,9}/],
  ["MM", /^\d{1,2}/],
  ["DD", /^\d{1,2}/],
];

/** Parses a text in the given form to YYYY-MM-DD. Fails on days that no calendar has. */
export function parseDate(text: string, form: string): Transformed {
  const refused = failed(`${JSON.stringify(text.slice(0, 40))} is no date of the form ${form}`);
  const found = new Map<string, string>();
  let rest = text;
  for (let left = form; left !== ""; ) {
    const part = parts.find(([name]) => left.startsWith(name));
    const written = part === undefined ? left[0]! : (part[1].exec(rest)?.[0] ?? null);
    if (written === null || !rest.startsWith(written)) return refused;
    if (part !== undefined) found.set(part[0], written);
    rest = rest.slice(written.length);
    left = left.slice(part?.[0].length ?? 1);
  }
  const year = Number(found.get("YYYY"));
  const month = found.has("MMMM") ? monthOf(found.get("MMMM")!) : Number(found.get("MM"));
  const day = Number(found.get("DD"));
  if (rest !== "" || month < 1 || month > 12 || day < 1 || day > daysIn(year, month)) return refused;
  const two = (number: number): string => String(number).padStart(2, "0");
  return ok(`${String(year).padStart(4, "0")}-${two(month)}-${two(day)}`);
}

/** Number of a month (1 to 12) by its name or first three letters; 0 for no month. */
function monthOf(name: string): number {
  const wanted = name.toLowerCase();
  return months.findIndex((month) => month === wanted || month.slice(0, 3) === wanted) + 1;
}

function daysIn(year: number, month: number): number {
  if (month === 2) return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28;
  return [4, 6, 9, 11].includes(month) ? 30 : 31;
}
