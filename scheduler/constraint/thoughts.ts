import type { ThoughtsLimit, TokenId } from "../core.ts";

/** Where a text is as to its thoughts, after some tokens. It follows from the tokens alone. */
export interface ThoughtsState {
  readonly place: "before" | "inside" | "after";
  /** The last bytes in which a mark may have begun. */
  readonly bytes: readonly number[];
  /** Tokens of thoughts so far. */
  readonly tokens: number;
  /** Tokens of the closing mark that were the last ones. */
  readonly closingTokens: number;
}

const LINE_BREAK = 10;

/** Before any token. */
export function thoughtsAtStart({ isOpen }: ThoughtsLimit): ThoughtsState {
  return { place: isOpen ? "inside" : "before", bytes: [], tokens: 0, closingTokens: 0 };
}

/** After one token more. */
export function thoughtsAfter(
  state: ThoughtsState,
  limit: ThoughtsLimit,
  token: TokenId,
  tokenBytes: Uint8Array,
): ThoughtsState {
  if (state.place === "after") return state;
  const bytes = [...state.bytes, ...tokenBytes];
  if (state.place === "before") {
    const begun = bytes.slice(bytes.findIndex((byte) => byte !== LINE_BREAK));
    const { opening } = limit;
    if (begun.length >= opening.length && isAt(opening, begun, 0)) {
      return { place: "inside", bytes: begun.slice(opening.length), tokens: 0, closingTokens: 0 };
    }
    const mayBegin =
      begun.every((byte, at) => byte === opening[at]) || bytes.every((byte) => byte === LINE_BREAK);
    return { ...state, place: mayBegin ? "before" : "after", bytes };
  }
  const { closing, closingTokens } = limit;
  if (bytes.some((_, at) => isAt(closing, bytes, at))) return { ...state, place: "after", bytes: [] };
  return {
    place: "inside",
    bytes: bytes.slice(-(closing.length - 1) || bytes.length),
    tokens: state.tokens + 1,
    closingTokens: closingTokens[state.closingTokens] === token ? state.closingTokens + 1 : 0,
  };
}

/** The token that must come next because the thoughts have come to their limit; null: none. */
export function closingToken(state: ThoughtsState, limit: ThoughtsLimit): TokenId | null {
  // The closing mark itself is no thought.
  const isAtLimit = state.place === "inside" && state.tokens - state.closingTokens >= limit.tokensMax;
  return isAtLimit ? (limit.closingTokens[state.closingTokens] ?? null) : null;
}

function isAt(part: readonly number[], bytes: readonly number[], at: number): boolean {
  return part.every((byte, i) => bytes[at + i] === byte);
}
