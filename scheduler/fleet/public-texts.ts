import type { TokenId } from "../../base/token.ts";

/** Length of the longest prefix that a prompt shares with a public text. */
export function publicLength(
  prompt: ArrayLike<TokenId>,
  publicTexts: readonly (readonly TokenId[])[],
): number {
  let longest = 0;
  for (const text of publicTexts) {
    const end = Math.min(prompt.length, text.length);
    let length = 0;
    while (length < end && prompt[length] === text[length]) length += 1;
    longest = Math.max(longest, length);
  }
  return longest;
}
