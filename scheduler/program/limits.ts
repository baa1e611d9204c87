/** List items of a map or reduce at most, and bodies of a repeat. */
export const MAP_ITEMS_MAX = 1024;
export const REPEAT_COUNT_MAX = 1024;

/** Limits of one program. */
export interface Limits {
  /** Nodes at most, copies of bodies included. */
  readonly nodesMax: number;
  /** Variables at most that clients declare or nodes outside of bodies write. */
  readonly variablesMax: number;
  /** Characters of one value at most, summed over the items of a list. */
  readonly valueCharsMax: number;
}

/** Default limits. */
export const programLimits: Limits = {
  nodesMax: 16_384,
  variablesMax: 32_768,
  valueCharsMax: 1_048_576,
};
