/** What the planner needs to know of a sequence. */
export interface Behind {
  /** Tokens known but not computed, ≥ 1; 1 means decoding. */
  readonly behind: number;
  /** Gets no tokens. */
  readonly isPaused: boolean;
}

/** The next `count` ≥ 1 tokens of a sequence. */
export interface PlannedChunk<S> {
  readonly sequence: S;
  readonly count: number;
}

/**
 * Stall-free batching (Sarathi-Serve, arXiv:2403.02310 §4.2, Algorithm 3): every decode is in every step;
 * what is left of the token budget goes to unfinished prompts in the order given, then to new sequences,
 * which `admit` yields one by one (null: no more now). Several prompts may be partly done at once.
 *
 * Unlike the paper's code a chunk is never empty or negative: when there are more decodes than tokens, prompts get
 * none. Costs O(running + admitted).
 */
export function planChunks<S extends Behind>(
  running: readonly S[],
  admit: () => S | null,
  stepTokens: number,
): PlannedChunk<S>[] {
  const chunks: PlannedChunk<S>[] = [];
  let tokensLeft = stepTokens;
  const take = (sequence: S): void => {
    const count = Math.min(sequence.behind, Math.max(1, tokensLeft));
    chunks.push({ sequence, count });
    tokensLeft -= count;
  };

  let prompts = 0;
  for (const sequence of running) {
    if (sequence.isPaused) continue;
    if (sequence.behind === 1) take(sequence);
    else prompts += 1;
  }
  for (const sequence of running) {
    if (prompts === 0 || tokensLeft <= 0) break;
    if (sequence.isPaused || sequence.behind === 1) continue;
    take(sequence);
    prompts -= 1;
  }
  while (tokensLeft > 0) {
    const sequence = admit();
    if (sequence === null) break;
    take(sequence);
  }
  return chunks;
}
