/**
 * Character classes of the package `tokenizers`. Its tables are of Unicode 8 and 9: newer characters belong
 * to no class, are not marks, and have no normal form there.
 */

/**
 * Marks, and characters with a normal form, that are newer than Unicode 9. The ranges contain no older ones.
 */
const young =
  "\\u07fd\\u0897-\\u08d3\\u09fe\\u0afa-\\u0aff\\u0b55\\u0c04-\\u0c3c\\u0cf3-\\u0d00\\u0d3b-\\u0d3c\\u0d81\\u0eba" +
  "\\u0ece\\u1715\\u180f\\u1abf-\\u1aeb\\u1cf7\\u1df6-\\u1dfa\\u32ff\\ua7f1-\\ua7f4\\ua82c\\ua8ff\\uab69" +
  "\\u{105c9}-\\u{107ba}\\u{10d24}-\\u{10f85}\\u{11070}-\\u{11074}\\u{110c2}\\u{11145}-\\u{11146}\\u{111c9}" +
  "\\u{111ce}-\\u{111cf}\\u{11241}\\u{1133b}\\u{11383}-\\u{113e2}\\u{1145e}\\u{1182c}-\\u{11b67}\\u{11d31}-\\u{1612f}" +
  "\\u{16d68}-\\u{16f4f}\\u{16f7f}-\\u{16f87}\\u{16fe4}-\\u{16ff1}\\u{1ccd6}-\\u{1cf46}\\u{1e030}-\\u{1e6f5}" +
  "\\u{1f16c}\\u{1fbf0}-\\u{1fbf9}";
/** Marks of Unicode 9 that are absent from Unicode 8, or in another class there. */
const youngInBert =
  "\\u08d4-\\u08e1\\u1885-\\u1886\\u1dfb\\ua8c5\\ua9bd\\u{1123e}\\u{11438}-\\u{11446}\\u{11c30}-\\u{11cb6}" +
  "\\u{1e000}-\\u{1e02a}\\u{1e944}-\\u{1e94a}";
const youngPunctuation =
  "\\u061d\\u09fd-\\u0a76\\u0c77-\\u0c84\\u1b4e-\\u1b4f\\u1b7d-\\u1b7f\\u2e43-\\u2e5d\\u{10d6e}-\\u{10f89}" +
  "\\u{113d4}-\\u{1145d}\\u{11660}-\\u{116b9}\\u{1183b}-\\u{11fff}\\u{12ff1}-\\u{12ff2}\\u{16d6d}-\\u{16fe2}" +
  "\\u{1e5ff}-\\u{1e95f}";
const youngFormats = "\\u0890\\u0891\\u08e2\\u{110cd}\\u{13430}-\\u{1343f}";

/** Marks that BertNormalizer removes. */
export const bertMarks = new RegExp(`[[\\p{Mn}\\u1734\\u{1171e}]--[${young}${youngInBert}]]`, "gv");
/** Marks that StripAccents removes. */
export const marks = new RegExp(`[[\\p{M}\\u1cf2\\u1cf3]--[${young}]]`, "gv");
/** Characters that BertNormalizer replaces or removes when it cleans a text. */
export const unclean = new RegExp(
  `[[\\p{Cc}\\p{Cf}\\p{Co}\\p{White_Space}\\ufffd]--[${youngFormats}]]`,
  "gv",
);
/** Word characters of Rust's regular expressions, to be used within a character class. */
export const wordCharacters = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200c\\u200d";
/** Expression for a character of punctuation. */
export const punctuation = `(?![${youngPunctuation}])[!-\\/:-@\\[-\`{-~\\p{P}\\u166d\\u{111c9}]`;

const segments = new RegExp(`([${young}])`, "u");

/**
 * Normal form of a text. Characters newer than Unicode 9 stay, and no characters compose or reorder across
 * them.
 */
export function normalForm(text: string, form: "NFC" | "NFD" | "NFKC" | "NFKD"): string {
  const whole = text.normalize(form);
  if (whole === text) return text;
  return text
    .split(segments)
    .map((segment, index) => (index % 2 === 1 ? segment : segment.normalize(form)))
    .join("");
}
