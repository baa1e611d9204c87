/** Formulas in Markdown: `$…$`, `$$…$$`, `\(…\)` and `\[…\]`. */
import type { TokenizerExtension, Tokens } from "marked";

export interface MathToken extends Tokens.Generic {
  readonly type: "math";
  /** TeX. */
  readonly text: string;
  /** True for a formula in lines of its own. */
  readonly isBlock: boolean;
}

/** A dollar before a digit or a space is money, so a formula in dollars ends before neither. */
const inline = /^(?:\\\((.+?)\\\)|\$\$([^$]+)\$\$|\$(?![\s$])((?:\\.|[^$\\\n])*?[^\s\\$])\$(?!\d))/s;
const block = /^(?:\$\$\s*\n?(.+?)\n?\s*\$\$|\\\[(.+?)\\\])[ \t]*(?:\n|$)/s;

export const mathSyntax: readonly TokenizerExtension[] = [
  {
    name: "mathBlock",
    level: "block",
    start: (text) => text.match(/^(?:\$\$|\\\[)/m)?.index,
    tokenizer: (text) => tokenOf(block.exec(text), true),
  },
  {
    name: "math",
    level: "inline",
    start: (text) => text.match(/\$|\\\(|\\\[/)?.index,
    tokenizer: (text) => tokenOf(inline.exec(text), false),
  },
];

function tokenOf(found: RegExpExecArray | null, isBlock: boolean): MathToken | undefined {
  const text = found?.slice(1).find((group) => group !== undefined);
  return text === undefined ? undefined : { type: "math", raw: found![0], text: text.trim(), isBlock };
}
