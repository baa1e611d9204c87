/** Entry of the tokenizer's thread: encodes long texts one after another. */
import { type EncoderAnswer, type EncoderMessage, encodeWith } from "./encoder.ts";
import { openTokenizer } from "./model-text.ts";
import type { Tokenizer } from "./tokenizer.ts";

declare const self: Worker;

let tokenizer: Tokenizer | null = null;

self.onmessage = ({ data }: MessageEvent<EncoderMessage>) => {
  if (data.kind === "load") {
    tokenizer = openTokenizer(data.folder);
    return;
  }
  try {
    const tokens = Int32Array.from(encodeWith(tokenizer!, data));
    self.postMessage({ kind: "tokens", tokens } satisfies EncoderAnswer, [tokens.buffer]);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    self.postMessage({ kind: "failed", reason } satisfies EncoderAnswer);
  }
};
