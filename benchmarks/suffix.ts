/**
 * Time per token of the suffix drafter in texts of 32,768 tokens, and of reading such a text, in pieces.
 *
 *   npx bun benchmarks/suffix.ts
 */

import { SeededRandom } from "../base/random.ts";
import { SuffixDrafter } from "../scheduler/draft/suffix.ts";

const PROMPT = 32_768;
const ANSWER = 4096;
const DRAFT = 16;

/** A text in which a share of the stretches of 20 tokens repeats an earlier one. */
function textOf(vocabSize: number, repeated: number): Int32Array {
  const random = new SeededRandom(vocabSize);
  const text = new Int32Array(PROMPT + ANSWER);
  for (let at = 0; at < text.length; at += 20) {
    const source = at > 100 && random.unit() < repeated ? random.below(at - 20) : null;
    for (let i = at; i < Math.min(at + 20, text.length); i++)
      text[i] = source === null ? random.below(vocabSize) : text[source + i - at]!;
  }
  return text;
}

for (const [vocabSize, repeated] of [
  [50, 0.5],
  [1000, 0.2],
  [1000, 0.8],
  [150_000, 0.8],
] as const) {
  const text = textOf(vocabSize, repeated);
  const drafter = new SuffixDrafter();
  const firstMs = performance.now();
  for (let piece = 0; piece < 8; piece++) drafter.draft(text, PROMPT, DRAFT);
  const startMs = performance.now();
  let [offered, right] = [0, 0];
  for (let length = PROMPT + 1; length < text.length; length++) {
    const draft = drafter.draft(text, length, DRAFT);
    if (draft === null) continue;
    offered += 1;
    if (draft.tokens[0] === text[length]) right += 1;
  }
  const tookUs = ((performance.now() - startMs) * 1000) / ANSWER;
  console.log(
    `vocabulary ${vocabSize}, ${100 * repeated} % repeated: ${tookUs.toFixed(1)} us a token, ${((startMs - firstMs) / 8).toFixed(2)} ms a piece of 4,096 at first; drafts for ${offered} of ${ANSWER} tokens, ${right} right`,
  );
}
