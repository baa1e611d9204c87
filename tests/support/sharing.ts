import { type Sharing, sharingOf } from "../../scheduler/core.ts";
import { publicLength } from "../../scheduler/fleet/public-texts.ts";

/** Of a prompt under a salt, where nothing is public. */
export function ownSharing(cacheSalt: string): Sharing {
  return sharingOf({ adapter: 0, cacheSalt }, 1);
}

/** Of prompts under a salt, where a text is public. */
export function sharingBeside(
  publicText: readonly number[],
  pageTokens: number,
): (tokens: ArrayLike<number>, salt: string) => Sharing {
  return (tokens, cacheSalt) =>
    sharingOf({ adapter: 0, cacheSalt, publicTokens: publicLength(tokens, [publicText]) }, pageTokens);
}
