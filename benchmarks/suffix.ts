/**
 * Processor time per token of the suffix drafter in texts of 32,768 tokens, with as many tokens of earlier answers
 * beside, and of reading such a text, in pieces.
 *
 *   npx bun benchmarks/suffix.ts
 */

import { SeededRandom } from "../base/random.ts";
import { EarlierAnswers } from "../scheduler/draft/earlier.ts";
import { SuffixDrafter } from "../scheduler/draft/suffix.ts";

const PROMPT = 32_768;
const ANSWER = 4096;
const DRAFT = 16;

/** Text in which a share of the stretches of 20 tokens repeats an earlier stretch. */
function textOf(vocabSize: number, repeated: number, seed = 0): Int32Array {
  const random = new SeededRandom(vocabSize + seed);
  const text = new Int32Array(PROMPT + ANSWER);
  for (let at = 0; at < text.length; at += 20) {
    const source = at > 100 && random.unit() < repeated ? random.below(at - 20) : null;
    for (let i = at; i < Math.min(at + 20, text.length); i++)
      text[i] = source === null ? random.below(vocabSize) : text[source + i - at]!;
  }
  return text;
}

function processorMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

for (const [vocabSize, repeated] of [
  [50, 0.5],
  [1000, 0.2],
  [1000, 0.8],
  [150_000, 0.8],
] as const) {
  const text = textOf(vocabSize, repeated);
  const earlier = new EarlierAnswers();
  const before = textOf(vocabSize, repeated, 7);
  for (let at = 0; at < before.length; at += 512) earlier.add(before.subarray(at, at + 512));
  const drafter = new SuffixDrafter(earlier);
  const firstMs = processorMs();
  for (let piece = 0; piece < 8; piece++) drafter.draft(text, PROMPT, DRAFT);
  const startMs = processorMs();
  let [offered, right] = [0, 0];
  for (let length = PROMPT + 1; length < text.length; length++) {
    const draft = drafter.draft(text, length, DRAFT);
    if (draft === null) continue;
    offered += 1;
    if (draft.tokens[0] === text[length]) right += 1;
  }
  const tookUs = ((processorMs() - startMs) * 1000) / ANSWER;
  console.log(
    `vocabulary ${vocabSize}, ${100 * repeated} % repeated: ${tookUs.toFixed(1)} us a token, ${((startMs - firstMs) / 8).toFixed(2)} ms a piece of 4,096 at first; drafts for ${offered} of ${ANSWER} tokens, ${right} right`,
  );
}
