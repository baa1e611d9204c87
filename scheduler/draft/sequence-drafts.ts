import type { TokenId } from "../../base/token.ts";
import type { SequenceSpec } from "../core.ts";
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
  readonly #source: DraftSource;
  readonly #acceptance: PerKey<Acceptance>;

  constructor(source: DraftSource) {
    const { priors } = source;
    this.#source = source;
    this.#acceptance = new PerKey(() => new Acceptance(priors.length, (kind) => priors[kind]!));
  }

  open(spec: SequenceSpec): SequenceDrafts {
    return new SequenceDrafts(this.#source.open(spec), this.#source.priors.length, this.#acceptance.of(spec));
  }

  ended(spec: SequenceSpec, tokens: Int32Array, length: number): void {
    try {
      this.#source.ended?.(spec, tokens, length);
    } catch {
      // A source that fails costs its drafts, and no answer.
    }
  }
}

/**
 * The drafts of one sequence. Drawn tokens are those of single steps, drafted or not. So each draft is compared
 * with what is drawn after it, even if no step has checked it: that costs nothing, and a share of right tokens
 * that has become low can rise again.
 */
export class SequenceDrafts {
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

  /** Drafts at most `most` tokens after the first `length` of `tokens`; null: none. */
  offer(tokens: Int32Array, length: number, most: number): OfferedDraft | null {
    const draft = this.#drafter.draft(tokens, length, most);
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

  /** Compares the last draft with a token of the sequence. */
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
