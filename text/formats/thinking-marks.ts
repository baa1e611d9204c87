/** What surrounds thoughts. */
export interface ThinkingMarks {
  readonly opening: string;
  readonly closing: string;
  /** What an answer's text begins with, after thoughts or without them; absent: nothing. */
  readonly beforeText?: string;
  /** What the text may end with, before the answer does; absent: nothing. */
  readonly afterText?: string;
}
