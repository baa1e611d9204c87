/** Items that a map or reduce takes at most, and bodies of a repeat. */
export const MAP_ITEMS_MAX = 1024;
export const REPEAT_COUNT_MAX = 1024;

/** What one program may have at most. */
export interface Limits {
  /** Nodes, what was copied from bodies included. */
  readonly nodesMax: number;
  /** Variables that clients declare or nodes outside of bodies write. */
  readonly variablesMax: number;
  /** Characters of one value, all items of a list together. */
  readonly valueCharsMax: number;
}

/** Limits unless others are asked for. */
export const programLimits: Limits = {
  nodesMax: 16_384,
  variablesMax: 32_768,
  valueCharsMax: 1_048_576,
};
