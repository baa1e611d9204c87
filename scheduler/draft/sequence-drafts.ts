import type { TokenId } from "../../base/token.ts";
import type { DeviceDraft, SequenceSpec } from "../core.ts";
import { Acceptance } from "./acceptance.ts";
import type { Draft, Drafter, DraftSource } from "./drafter.ts";
import { PerKey } from "./per-key.ts";

/** Draft with acceptance probabilities. */
export interface OfferedDraft extends Pick<Draft, "tokens" | "isPredicted"> {
  /** Probability that the token and all before it are accepted, by position; never rises. */
  readonly chances: readonly number[];
}

/** Draft sources of an engine, and their acceptance rates by key. */
export class EngineDrafts {
  readonly #sources: readonly { readonly source: DraftSource; readonly acceptance: PerKey<Acceptance> }[];

  constructor(...sources: readonly DraftSource[]) {
    this.#sources = sources.map((source) => {
      const { priors } = source;
      const acceptance = new PerKey(() => new Acceptance(priors.length, (kind) => priors[kind]!));
      return { source, acceptance };
    });
  }

  open(spec: SequenceSpec): SequenceDrafts {
    return new SequenceDrafts(
      this.#sources.map(({ source, acceptance }) => {
        return new RatedDrafter(source.open(spec), source.priors.length, acceptance.of(spec));
      }),
    );
  }

  ended(spec: SequenceSpec, tokens: Int32Array, length: number): void {
    for (const { source } of this.#sources) {
      try {
        source.ended?.(spec, tokens, length);
      } catch {
        // A source that throws loses its drafts; answers do not depend on them.
      }
    }
  }
}

/** Drafters of one sequence. They offer the draft with the most expected accepted tokens. */
export class SequenceDrafts {
  readonly #drafters: readonly RatedDrafter[];

  constructor(drafters: readonly RatedDrafter[]) {
    this.#drafters = drafters;
  }

  /**
   * Drafts at most `most` tokens after the first `length` of `tokens`; null: none. `device`: the device's own draft
   * at this position.
   */
  offer(
    tokens: Int32Array,
    length: number,
    most: number,
    device: DeviceDraft | null = null,
  ): OfferedDraft | null {
    let best: OfferedDraft | null = null;
    let expected = 0;
    for (const drafter of this.#drafters) {
      const offer = drafter.offer(tokens, length, most, device);
      const sum = offer?.chances.reduce((all, chance) => all + chance, 0) ?? 0;
      if (sum > expected) [best, expected] = [offer, sum];
    }
    return best;
  }

  /** Returns how many tokens the device shall draft behind the next draw, as `Drafter.wanted`. */
  wanted(most: number, share: number): number {
    return this.#drafters.reduce((count, drafter) => Math.max(count, drafter.wanted(most, share)), 0);
  }

  /** Updates the acceptance rates with a drawn token of the sequence. */
  drew(token: TokenId): void {
    for (const drafter of this.#drafters) drafter.drew(token);
  }
}

/**
 * Drafter with measured acceptance rates. Draws do not depend on drafts, so it compares each draft with the tokens
 * drawn after it, even if no step verified the draft. That costs nothing, and lets a low acceptance rate rise again.
 */
class RatedDrafter {
  readonly #drafter: Drafter;
  readonly #acceptance: Acceptance;
  readonly #ofAll: Acceptance;
  #last: Draft | null = null;
  /** Number of its first tokens that were drawn since. */
  #accepted = 0;

  /** `ofAll`: acceptance rates over all sequences of the key, the prior of this sequence's own. */
  constructor(drafter: Drafter, kinds: number, ofAll: Acceptance) {
    this.#drafter = drafter;
    this.#acceptance = new Acceptance(kinds, (kind) => ofAll.rateOf(kind));
    this.#ofAll = ofAll;
  }

  offer(tokens: Int32Array, length: number, most: number, device: DeviceDraft | null): OfferedDraft | null {
    const draft = this.#drafter.draft(tokens, length, most, device);
    this.#last = draft;
    this.#accepted = 0;
    if (draft === null) return null;
    let chance = 1;
    const chances = draft.kinds.map((kind) => {
      chance *= this.#acceptance.rateOf(kind);
      return chance;
    });
    const { tokens: drafted, isPredicted = false } = draft;
    return { tokens: drafted, chances, isPredicted };
  }

  wanted(most: number, share: number): number {
    return this.#drafter.wanted?.(most, share) ?? 0;
  }

  drew(token: TokenId): void {
    const draft = this.#last;
    if (draft === null) return;
    const isAccepted = draft.tokens[this.#accepted] === token;
    const kind = draft.kinds[this.#accepted]!;
    this.#acceptance.learn(kind, isAccepted);
    this.#ofAll.learn(kind, isAccepted);
    this.#accepted += 1;
    if (!isAccepted || this.#accepted === draft.tokens.length) this.#last = null;
  }
}
