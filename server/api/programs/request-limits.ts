/** What one request about programs may hold at most. What a program may have altogether is in server/program/limits.ts. */
export const programRequestLimits = {
  callsMax: 16_384,
  variablesMax: 32_768,
  casesMax: 64,
  transformsMax: 16,
  /** Placeholders of one call, each place counted. */
  placesMax: 4096,
  /** Of all `bad_words`, which become tokens at once. */
  wordCharactersMax: 65_536,
} as const;
