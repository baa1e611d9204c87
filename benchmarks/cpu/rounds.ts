/** Rates beside each other on a machine whose memory is fast in one minute and slow in the next, where the best of a few tries
 *  is luck. What is compared is measured moments apart, in rounds: their median counts, and the range of their ratios says
 *  how much a single round could have misled. */
import { assert } from "../../base/assert.ts";

/** Measurements of one moment; rates per second. */
export interface Round {
  /** Memory bandwidth of all threads together. */
  readonly readBytes: number;
  readonly ours: number;
  /** One of each configuration, in their order; empty where llama.cpp is not beside. */
  readonly llama: readonly number[];
}

/** One way to run llama.cpp. */
export interface Configuration {
  readonly name: string;
  /** Runs it once; the rate per second. */
  measure(): Promise<number>;
}

export interface Compared {
  /** Medians of the rounds. */
  readonly ours: number;
  /** Rate of the configuration with the best median. */
  readonly llama: number | null;
  readonly llamaWith: string;
  readonly spread: Spread | null;
}

/** The lowest and the highest ratio that one round alone would have given. */
export type Spread = readonly [lowest: number, highest: number];

/** `count` rounds. Every other one runs backwards: none is always first, or always behind the same other one. */
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

/** Every rate, of which a median hides the spread. */
export function roundsText(rounds: readonly Round[], configurations: readonly string[]): string {
  const text = (name: string, rateOf: (round: Round) => number): string =>
    `${name}: ${rounds.map((round) => rateOf(round).toFixed(1)).join(" ")}`;
  return [
    text("memory, GB/s", ({ readBytes }) => readBytes / 1e9),
    text("ours", ({ ours }) => ours),
    ...configurations.map((name, index) => text(name, ({ llama }) => llama[index]!)),
  ].join("; ");
}

/** Median of an odd number of values, so that it is one of them. */
export function median(values: readonly number[]): number {
  assert(values.length % 2 === 1, "a median of an even number of values");
  return [...values].sort((a, b) => a - b)[(values.length - 1) / 2]!;
}
