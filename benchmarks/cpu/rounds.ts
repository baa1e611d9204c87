/**
 * Comparison of rates on a machine whose memory speed changes from minute to minute, where the best of a few
 * tries is luck. Compared rates are measured moments apart, in rounds, and their medians count. The range of
 * their ratios shows how far a single round could have misled.
 */
import { assert } from "../../base/assert.ts";

/** Round: measurements moments apart; rates per second. */
export interface Round {
  /** Memory bandwidth of all threads, summed. */
  readonly readBytes: number;
  readonly ours: number;
  /** Rates of llama.cpp by configuration, in order; empty without llama.cpp. */
  readonly llama: readonly number[];
}

/** Configuration of llama.cpp. */
export interface Configuration {
  readonly name: string;
  /** Runs it once; returns the rate per second. */
  measure(): Promise<number>;
}

export interface Compared {
  /** Median of our rates over the rounds. */
  readonly ours: number;
  /** Median rate of llama.cpp's best configuration. */
  readonly llama: number | null;
  readonly llamaWith: string;
  readonly spread: Spread | null;
}

/** Lowest and highest ratio of a single round. */
export type Spread = readonly [lowest: number, highest: number];

/**
 * Measures `count` rounds. Every other one runs in reverse, so that no configuration always comes first, or
 * always after the same one.
 */
export async function measureRounds(
  count: number,
  readBytes: () => Promise<number>,
  ours: () => number,
  configurations: readonly Configuration[],
): Promise<Round[]> {
  const rounds: Round[] = [];
  const measures = [readBytes, async () => ours(), ...configurations.map(({ measure }) => measure)];
  while (rounds.length < count) {
    const rates: number[] = [];
    const order = [...measures.entries()];
    for (const [index, measure] of rounds.length % 2 === 0 ? order : order.reverse()) {
      rates[index] = await measure();
    }
    const [read, own, ...llama] = rates;
    rounds.push({ readBytes: read!, ours: own!, llama });
  }
  return rounds;
}

export function compared(rounds: readonly Round[], configurations: readonly string[]): Compared {
  const ours = median(rounds.map((round) => round.ours));
  const medians = configurations.map((_, index) => median(rounds.map(({ llama }) => llama[index]!)));
  if (medians.length === 0) return { ours, llama: null, llamaWith: "", spread: null };
  const llama = Math.max(...medians);
  const index = medians.indexOf(llama);
  const ratios = rounds.map((round) => round.ours / round.llama[index]!);
  const spread: Spread = [Math.min(...ratios), Math.max(...ratios)];
  return { ours, llama, llamaWith: configurations[index]!, spread };
}

/** Formats every rate, since a median hides the spread. */
export function roundsText(rounds: readonly Round[], configurations: readonly string[]): string {
  const text = (name: string, rateOf: (round: Round) => number): string =>
    `${name}: ${rounds.map((round) => rateOf(round).toFixed(1)).join(" ")}`;
  return [
    text("memory, GB/s", ({ readBytes }) => readBytes / 1e9),
    text("ours", ({ ours }) => ours),
    ...configurations.map((name, index) => text(name, ({ llama }) => llama[index]!)),
  ].join("; ");
}

/** Returns the median of an odd number of values, which is one of them. */
export function median(values: readonly number[]): number {
  assert(values.length % 2 === 1, "a median of an even number of values");
  return [...values].sort((a, b) => a - b)[(values.length - 1) / 2]!;
}
