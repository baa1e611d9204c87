import type { DeviceDraft } from "../core.ts";
import type { Draft, Drafter, DraftSource } from "./drafter.ts";

/** Classes of draft positions: the first, the second, and all later ones. */
const POSITIONS = 3;
/** Upper bounds of the classes of draft probabilities. */
const PROBABILITIES = [0.3, 0.5, 0.7, 0.85, 0.95, 1] as const;
/** Prior acceptance rates by class of probability; guesses. */
const PRIORS = [0.25, 0.4, 0.6, 0.75, 0.85, 0.95] as const;

/** Prior share of drafts that are accepted up to and including each position; guesses. */
const PRIOR_ACCEPTED = [0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05] as const;
/** Weight of the latest draft in the moving averages of these shares. */
const LATEST = 1 / 16;
/**
 * Steps between trials. A trial asks for one token more than pays, so that a low acceptance rate can rise again.
 * It takes two steps, since a draft model first has to prefill the tokens that it skipped. Trials are rarer where
 * those two tokens take more than a hundredth of the time.
 */
const TRIAL_STEPS = 2;
const TRIAL_EVERY = 32;
const TRIAL_EVERY_PER_SHARE = 200;

/**
 * Offers the draft that the device made behind the draws of the last step. The model's own head (MTP, multi-token
 * prediction) or a draft model made it. Drafting costs time whether the draft is verified or not. So it asks
 * the device for the number of tokens with the highest goodput: expected accepted tokens per time.
 */
export class HeadDrafter implements Drafter {
  /** Share of recent drafts that were accepted up to and including each position. */
  readonly #accepted: number[] = [...PRIOR_ACCEPTED];
  #sinceTrial = 0;
  /** The last draft of the device, and the length of the text that it follows. */
  #last: DeviceDraft | null = null;
  #length = 0;

  draft(tokens: Int32Array, length: number, most: number, device: DeviceDraft | null = null): Draft | null {
    this.#compare(tokens, length);
    this.#last = device;
    this.#length = length;
    if (device === null) return null;
    const drafted = device.tokens.slice(0, most);
    return { tokens: drafted, kinds: drafted.map((_, i) => kindOf(i, device.probabilities[i]!)) };
  }

  wanted(most: number, share: number): number {
    let best = 0;
    let goodput = 1;
    let expected = 1;
    for (let count = 1; count <= Math.min(most, this.#accepted.length); count++) {
      expected += this.#accepted[count - 1]!;
      const ofCount = expected / (1 + share * count);
      if (ofCount > goodput) [best, goodput] = [count, ofCount];
    }
    this.#sinceTrial += 1;
    const every = Math.max(TRIAL_EVERY, TRIAL_EVERY_PER_SHARE * share);
    if (this.#sinceTrial < every) return best;
    if (this.#sinceTrial >= every + TRIAL_STEPS - 1) this.#sinceTrial = 0;
    return Math.min(most, best + 1);
  }

  /** Learns which tokens of the last draft agree with the tokens drawn since. */
  #compare(tokens: Int32Array, length: number): void {
    const known = length - this.#length;
    if (this.#last === null || known <= 0) return;
    let isAccepted = true;
    for (const [position, token] of this.#last.tokens.entries()) {
      if (isAccepted && position >= known) break;
      // All tokens behind a rejected one count as rejected.
      isAccepted &&= tokens[this.#length + position] === token;
      if (position < this.#accepted.length)
        this.#accepted[position]! += LATEST * ((isAccepted ? 1 : 0) - this.#accepted[position]!);
    }
  }
}

function kindOf(position: number, probability: number): number {
  let index = 0;
  while (index < PROBABILITIES.length - 1 && probability > PROBABILITIES[index]!) index += 1;
  return Math.min(position, POSITIONS - 1) * PROBABILITIES.length + index;
}

/** Source of the drafts that the device makes. */
export const headSource: DraftSource = {
  priors: Array.from({ length: POSITIONS }, () => PRIORS).flat(),
  open: () => new HeadDrafter(),
};
