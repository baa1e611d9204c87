import type { TokenId } from "../../base/token.ts";
import type { ThoughtsLimit } from "../constraint.ts";
import { CONTROL_BYTE } from "./vocabulary.ts";

/** Position of a text relative to its reasoning section. A function of its tokens alone. */
export interface ThoughtsState {
  readonly place: "before" | "inside" | "after";
  /** Last bytes, in which a delimiter may have begun. */
  readonly bytes: readonly number[];
  /** Reasoning tokens so far. */
  readonly tokens: number;
  /** Tokens of the closing delimiter that the text now ends with. */
  readonly closingTokens: number;
}

const LINE_BREAK = 10;
const CHARACTER_BYTES_MAX = 4;

/** State before any token. */
export function thoughtsAtStart({ isOpen }: ThoughtsLimit): ThoughtsState {
  return { place: isOpen ? "inside" : "before", bytes: [], tokens: 0, closingTokens: 0 };
}

/** State after one more token. */
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

/** Token that must come next because reasoning has reached its limit; null if there is none. */
export function closingToken(state: ThoughtsState, limit: ThoughtsLimit): TokenId | null {
  // The closing delimiter does not count as reasoning. An unfinished character is completed first.
  const over = state.tokens - state.closingTokens - limit.tokensMax;
  const isAtLimit = over >= CHARACTER_BYTES_MAX || (over >= 0 && !isInCharacter(state.bytes));
  return state.place === "inside" && isAtLimit ? (limit.closingTokens[state.closingTokens] ?? null) : null;
}

/** True if the last character lacks bytes (RFC 3629). */
function isInCharacter(bytes: readonly number[]): boolean {
  let at = bytes.length - 1;
  while (at >= 0 && (bytes[at]! & 0xc0) === 0x80) at--;
  const lead = bytes[at] ?? 0;
  const length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  return lead !== CONTROL_BYTE && bytes.length - at < length;
}

function isAt(part: readonly number[], bytes: readonly number[], at: number): boolean {
  return part.every((byte, i) => bytes[at + i] === byte);
}
