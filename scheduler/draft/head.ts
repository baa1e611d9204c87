import type { DeviceDraft } from "../core.ts";
import type { Draft, Drafter, DraftSource } from "./drafter.ts";

/** Places of a draft that are told apart, and upper bounds of the probabilities that count as equal. */
const PLACES = 3;
const PROBABILITIES = [0.3, 0.5, 0.7, 0.85, 0.95, 1] as const;
/** Shares of right tokens by these bounds; first guesses. */
const PRIORS = [0.25, 0.4, 0.6, 0.75, 0.85, 0.95] as const;

/** Shares of drafts that were right up to each place, before any was seen. */
const FIRST_SHARES = [0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05] as const;
/** Weight of the latest draft in these shares. */
const LATEST = 1 / 16;
/**
 * Steps from a trial to the next, in which a token more is asked for, and one at least: low shares can rise again.
 * A trial takes two steps, since a draft model first has to read what it has left out. There are more steps between
 * trials where those two tokens take more than a hundredth of their time.
 */
const TRIAL_STEPS = 2;
const TRIAL_EVERY = 32;
const TRIAL_EVERY_PER_SHARE = 200;

/**
 * Drafts what the device has drafted behind the draws of the last step, by the model's own head (multi-token
 * prediction) or by a draft model. That costs time whether the drafts are checked or not. So the device is asked
 * for as many tokens as would win the most per time, if each takes a share of a step's.
 */
export class HeadDrafter implements Drafter {
  readonly #shares: number[] = [...FIRST_SHARES];
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
    return { tokens: drafted, kinds: drafted.map((_, place) => kindOf(place, device.probabilities[place]!)) };
  }

  wanted(most: number, share: number): number {
    let best = 0;
    let pace = 1;
    let expected = 1;
    for (let count = 1; count <= Math.min(most, this.#shares.length); count++) {
      expected += this.#shares[count - 1]!;
      const paceOfCount = expected / (1 + share * count);
      if (paceOfCount > pace) [best, pace] = [count, paceOfCount];
    }
    this.#sinceTrial += 1;
    const every = Math.max(TRIAL_EVERY, TRIAL_EVERY_PER_SHARE * share);
    if (this.#sinceTrial < every) return best;
    if (this.#sinceTrial >= every + TRIAL_STEPS - 1) this.#sinceTrial = 0;
    return Math.min(most, best + 1);
  }

  /** Learns from the tokens behind the last draft. */
  #compare(tokens: Int32Array, length: number): void {
    const known = length - this.#length;
    if (this.#last === null || known <= 0) return;
    let isRight = true;
    for (const [place, token] of this.#last.tokens.entries()) {
      // Behind a wrong token no text tells whether a draft was right: it counts as wrong.
      if (isRight && place >= known) break;
      isRight &&= tokens[this.#length + place] === token;
      if (place < this.#shares.length)
        this.#shares[place]! += LATEST * ((isRight ? 1 : 0) - this.#shares[place]!);
    }
  }
}

function kindOf(place: number, probability: number): number {
  let index = 0;
  while (index < PROBABILITIES.length - 1 && probability > PROBABILITIES[index]!) index += 1;
  return Math.min(place, PLACES - 1) * PROBABILITIES.length + index;
}

/** Drafts of the device. */
export const headSource: DraftSource = {
  priors: Array.from({ length: PLACES }, () => PRIORS).flat(),
  open: () => new HeadDrafter(),
};
