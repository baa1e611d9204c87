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

/** Digits of each part of a form; MMMM is a month's English name, and one digit is enough for day and month. */
const parts: readonly (readonly [string, RegExp])[] = [
  ["YYYY", /^\d{4}/],
  ["MMMM", /^[A-Za-z]{3,9}/],
  ["MM", /^\d{1,2}/],
  ["DD", /^\d{1,2}/],
];

/** A text in the form, as YYYY-MM-DD. Days that are in no calendar fail. */
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

/** 1 to 12 of a name or its first three letters; 0 for none. */
function monthOf(name: string): number {
  const wanted = name.toLowerCase();
  return months.findIndex((month) => month === wanted || month.slice(0, 3) === wanted) + 1;
}

function daysIn(year: number, month: number): number {
  if (month === 2) return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28;
  return [4, 6, 9, 11].includes(month) ? 30 : 31;
}
