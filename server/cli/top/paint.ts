/** Colours of text in a terminal, and lines that fit its width. */

const codes = {
  strong: "1",
  faint: "2",
  alert: "31",
  decode: "32",
  prompt: "33",
  draft: "36",
} as const;

export type Colour = keyof typeof codes;

/** Part of a line: its text, or its colour and text. */
export type Piece = string | readonly [colour: Colour, text: string];

/** Colours a text. */
export type Paint = (colour: Colour, text: string) => string;

export const coloured: Paint = (colour, text) => `\x1b[${codes[colour]}m${text}\x1b[0m`;
export const plain: Paint = (_, text) => text;

/** Joins pieces to a line of at most `columns` characters. Control characters in them are replaced. */
export function lineOf(pieces: readonly Piece[], columns: number, paint: Paint): string {
  let left = columns;
  let line = "";
  for (const piece of pieces) {
    const text = (typeof piece === "string" ? piece : piece[1]).replace(/\p{Cc}/gu, "?");
    const cut = [...text].slice(0, left).join("");
    left -= [...cut].length;
    line += typeof piece === "string" || cut === "" ? cut : paint(piece[0], cut);
  }
  return line;
}
