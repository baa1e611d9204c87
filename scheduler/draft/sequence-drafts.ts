import type { TokenId } from "../../base/token.ts";
import type { DeviceDraft, SequenceSpec } from "../core.ts";
import { Acceptance } from "./acceptance.ts";
import type { Draft, Drafter, DraftSource } from "./drafter.ts";
import { PerKey } from "./per-key.ts";

/** A draft with its prospects. */
export interface OfferedDraft extends Pick<Draft, "tokens" | "isPredicted"> {
  /** Chance that a token and all before it are right. Falls, or stays. */
  readonly chances: readonly number[];
}

/** The drafts of an engine's sequences, and how often they are right, by key. */
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
        return new ComparedDrafter(source.open(spec), source.priors.length, acceptance.of(spec));
      }),
    );
  }

  ended(spec: SequenceSpec, tokens: Int32Array, length: number): void {
    for (const { source } of this.#sources) {
      try {
        source.ended?.(spec, tokens, length);
      } catch {
        // A source that fails costs its drafts, and no answer.
      }
    }
  }
}

/** The drafts of one sequence: of its drafters' drafts the one with the most expected tokens. */
export class SequenceDrafts {
  readonly #drafters: readonly ComparedDrafter[];

  constructor(drafters: readonly ComparedDrafter[]) {
    this.#drafters = drafters;
  }

  /**
   * Drafts at most `most` tokens after the first `length` of `tokens`; null: none. `device`: what the device has
   * drafted there.
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

  /** Number of tokens that the device is to draft behind the next draw, if each takes `share` of a step. */
  wanted(most: number, share: number): number {
    return this.#drafters.reduce((count, drafter) => Math.max(count, drafter.wanted(most, share)), 0);
  }

  /** Compares the last drafts with a token of the sequence. */
  drew(token: TokenId): void {
    for (const drafter of this.#drafters) drafter.drew(token);
  }
}

/**
 * A drafter whose drafts are compared with what is drawn. Drawn tokens are those of single steps, drafted or not. So each draft is compared
 * with what is drawn after it, even if no step has checked it: that costs nothing, and a share of right tokens
 * that has become low can rise again.
 */
class ComparedDrafter {
  readonly #drafter: Drafter;
  readonly #acceptance: Acceptance;
  readonly #ofAll: Acceptance;
  #last: Draft | null = null;
  /** Number of its tokens that were right. */
  #right = 0;

  /** `ofAll`: the shares of all sequences of its key, with which this one begins. */
  constructor(drafter: Drafter, kinds: number, ofAll: Acceptance) {
    this.#drafter = drafter;
    this.#acceptance = new Acceptance(kinds, (kind) => ofAll.chanceOf(kind));
    this.#ofAll = ofAll;
  }

  offer(tokens: Int32Array, length: number, most: number, device: DeviceDraft | null): OfferedDraft | null {
    const draft = this.#drafter.draft(tokens, length, most, device);
    this.#last = draft;
    this.#right = 0;
    if (draft === null) return null;
    let chance = 1;
    const chances = draft.kinds.map((kind) => {
      chance *= this.#acceptance.chanceOf(kind);
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
    const isRight = draft.tokens[this.#right] === token;
    const kind = draft.kinds[this.#right]!;
    this.#acceptance.learn(kind, isRight);
    this.#ofAll.learn(kind, isRight);
    this.#right += 1;
    if (!isRight || this.#right === draft.tokens.length) this.#last = null;
  }
}
