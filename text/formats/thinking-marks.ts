/** Delimiters of reasoning. */
export interface ThinkingMarks {
  readonly opening: string;
  readonly closing: string;
  /** Delimiter before an answer's text, with or without reasoning; absent: none. */
  readonly beforeText?: string;
  /** Optional delimiter after the text; absent: none. */
  readonly afterText?: string;
}
