/**
 * Returns `total` tokens, cut back to whole tiles if an eighth of the last tile or less would be used. Matrix
 * units work in tiles of tokens: a partly used tile takes as long as a full one. A chunk that ends its prompt
 * is better left whole: the tokens cut off would cost a step of their own.
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
