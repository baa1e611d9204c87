/**
 * Format `regex`, as a pattern of patterns: the subset of ECMA 262 that is valid with and without the flag u.
 * Groups nest only a few levels. Only ranges and counts with ordered bounds match. There are no back
 * references, names or lookarounds.
 */

/** Nesting of groups at most. */
const DEPTH = 3;

const syntax = "[\\^$\\\\.*+?()[\\]{}|/]";
const escaped = `\\\\(?:${syntax}|[dDsSwWtnvfr]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})`;

/** Ranges with ordered bounds: "a-[a-c]", "b-[b-c]" and "c-[c-c]" for "abc". */
function ranges(characters: string): string[] {
  return [...characters].map((low) => `${low}-[${low}-${characters.at(-1)}]`);
}

const alphabet = "abcdefghijklmnopqrstuvwxyz";
const range = [...ranges("0123456789"), ...ranges(alphabet), ...ranges(alphabet.toUpperCase())].join("|");
// Characters without an escape: a hyphen stands for itself at the beginning and at the end.
const member = `(?:${range}|[^\\\\\\]-]|${escaped}|\\\\-)`;
const characterClass = `\\[\\^?-?${member}*-?\\]`;

const digits = [..."0123456789"];
const ordered = digits.map((low) => `${low},[${low}-9]`);
const orderedByTens = digits.slice(1, 9).map((low) => `${low}[0-9],[${Number(low) + 1}-9][0-9]`);
const counts = [
  "[0-9]{1,3},?",
  ...ordered,
  ...orderedByTens,
  "[0-9],[1-9][0-9]{1,2}",
  "[1-9][0-9],[1-9][0-9]{2}",
];
const quantifier = `(?:[*+?]|\\{(?:${counts.join("|")})\\})\\??`;

/** Returns the alternatives of a pattern, with groups nested `depth` levels. */
function disjunction(depth: number): string {
  const group = depth === 0 ? [] : [`\\((?:\\?:)?${disjunction(depth - 1)}\\)`];
  const atoms = ["[^\\\\^$.*+?()[\\]{}|]", "\\.", escaped, characterClass, ...group];
  return `(?:[\\^$|]|\\\\[bB]|(?:${atoms.join("|")})(?:${quantifier})?)*`;
}

export const regexFormat = disjunction(DEPTH);
