/** Seeded datasets for load tests: lengths of prompts and completions, and texts of those lengths. */

import { SeededRandom } from "../../../base/random.ts";

export const datasetNames = ["fixed", "sharegpt", "conversations"] as const;
export type DatasetName = (typeof datasetNames)[number];

/** Sizes in tokens. Prompt sizes include the chat template, as the server counts them. */
export interface Dataset {
  readonly name: DatasetName;
  readonly promptTokens: number;
  /** Leading part of promptTokens that all requests share. */
  readonly sharedPrefixTokens: number;
  readonly outputTokens: number;
  /** Requests per conversation, each with the conversation so far. */
  readonly turns: number;
}

/** User message, and the length of its completion. */
export interface Turn {
  readonly text: string;
  readonly outputTokens: number;
}

/** Server's token count of a prompt of `words` words: tokens = overhead + perWord × words. */
export interface PromptScale {
  readonly overhead: number;
  readonly perWord: number;
}

/**
 * Mean lengths of ShareGPT's conversations, as published in vLLM's paper (arXiv:2309.06180, figure 11).
 * Lengths are drawn from a log-normal distribution between two bounds.
 */
const sharegpt = {
  prompt: { mean: 161, spread: 1, least: 4, most: 1024 },
  output: { mean: 338, spread: 0.8, least: 4, most: 2048 },
} as const;

interface LongTail {
  readonly mean: number;
  /** Standard deviation of the logarithm. */
  readonly spread: number;
  readonly least: number;
  readonly most: number;
}

/** Conversations with `requests` requests in all. */
export function conversationsOf(
  dataset: Dataset,
  requests: number,
  seed: number,
  scale: PromptScale,
): readonly (readonly Turn[])[] {
  const root = new SeededRandom(seed);
  const random = root.child("prompts");
  const wordsOf = (tokens: number): number =>
    Math.max(1, Math.round((tokens - scale.overhead) / scale.perWord));
  const words = wordsOf(dataset.promptTokens);
  const sharedWords = Math.min(words - 1, Math.round(dataset.sharedPrefixTokens / scale.perWord));
  const shared = makeWords(Math.max(0, sharedWords), random.child("shared"));
  const turnOf = (index: number, tokens: number, outputTokens: number, prefix: readonly string[]): Turn => {
    const own = makeWords(Math.max(1, wordsOf(tokens) - prefix.length), random.child(`request ${index}`));
    return { text: [...prefix, ...own].join(" "), outputTokens };
  };
  const { promptTokens, outputTokens, turns, name } = dataset;
  if (name === "conversations") {
    return Array.from({ length: Math.ceil(requests / turns) }, (_, index) =>
      Array.from({ length: Math.min(turns, requests - index * turns) }, (_, turn) =>
        turnOf(index * turns + turn, promptTokens, outputTokens, turn === 0 ? shared : []),
      ),
    );
  }
  const lengths = root.child("lengths");
  return Array.from({ length: requests }, (_, index) => {
    if (name === "fixed") return [turnOf(index, promptTokens, outputTokens, shared)];
    const { prompt, output } = drawLengths(lengths);
    return [turnOf(index, prompt, output, [])];
  });
}

/** Draws the lengths in tokens of a prompt and its completion, as in ShareGPT. */
export function drawLengths(random: SeededRandom): { readonly prompt: number; readonly output: number } {
  return { prompt: drawLongTail(sharegpt.prompt, random), output: drawLongTail(sharegpt.output, random) };
}

/** Draws again until the value lies within the bounds. */
function drawLongTail({ mean, spread, least, most }: LongTail, random: SeededRandom): number {
  const centre = Math.log(mean) - spread ** 2 / 2;
  for (;;) {
    const normal = Math.sqrt(-2 * Math.log(1 - random.unit())) * Math.cos(2 * Math.PI * random.unit());
    const tokens = Math.round(Math.exp(centre + spread * normal));
    if (tokens >= least && tokens <= most) return tokens;
  }
}

// Common short words: about one token each in every vocabulary.
const WORDS =
  "the of and to in is was for on that with as it by at from are this be or have an which one had not but what all were when we there can more if no out so up said about than into them only some could time these two may then do first any my now such like our over man me even most made after also did many".split(
    " ",
  );

export function makeWords(count: number, random: SeededRandom): string[] {
  return Array.from({ length: count }, () => WORDS[random.below(WORDS.length)]!);
}
