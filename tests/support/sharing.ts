import { type Sharing, sharingOf } from "../../scheduler/core.ts";
import { publicLength } from "../../scheduler/fleet/public-texts.ts";

/** Makes the cache keys of a prompt under a salt, without public text. */
export function ownSharing(cacheSalt: string): Sharing {
  return sharingOf({ adapter: 0, cacheSalt }, 1);
}

/** Makes the cache keys of prompts under a salt, with a public text. */
export function sharingBeside(
  publicText: readonly number[],
  pageTokens: number,
): (tokens: ArrayLike<number>, salt: string) => Sharing {
  return (tokens, cacheSalt) =>
    sharingOf({ adapter: 0, cacheSalt, publicTokens: publicLength(tokens, [publicText]) }, pageTokens);
}
