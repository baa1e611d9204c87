/**
 * Matrix units work in tiles of tokens: on an A100 a step of 264 tokens takes as long as one of 512, a third more than
 * one of 256. Returns `total` tokens, cut back to whole tiles if the last tile would be used by an eighth or less.
 * A chunk that ends its prompt is better left whole: what is cut off would cost a step of its own.
 */
export function tileTrim(total: number, tileTokens: number): number {
  const over = total % tileTokens;
  const isSliver = over > 0 && over * 8 <= tileTokens && total > tileTokens;
  return isSliver ? total - over : total;
}

/** The smallest whole number of tiles above `total`. */
export function nextTile(total: number, tileTokens: number): number {
  return total - (total % tileTokens) + tileTokens;
}
