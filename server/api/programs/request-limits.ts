/** Limits of one request about programs. The limits of a whole program are in server/program/limits.ts. */
export const programRequestLimits = {
  callsMax: 16_384,
  variablesMax: 32_768,
  casesMax: 64,
  transformsMax: 16,
  /** Placeholders of one call, counted with repetitions. */
  placesMax: 4096,
  /** Characters of all `bad_words`, which the serving thread tokenises itself. */
  wordCharactersMax: 65_536,
} as const;
