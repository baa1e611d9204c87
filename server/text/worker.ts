/** Entry of a tokenizer's thread: encodes texts one after another. */
import { setPriority } from "node:os";
import { type EncoderAnswer, type EncoderMessage, encodeWith } from "./encoder.ts";
import { openTokenizer } from "./model-text.ts";
import type { Tokenizer } from "./tokenizer.ts";

declare const self: Worker;

let tokenizer: Tokenizer | null = null;

self.onmessage = ({ data }: MessageEvent<EncoderMessage>) => {
  if (data.kind === "load") {
    if (data.isBackground) giveWay();
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

/** What else runs on this machine goes first. Linux has priorities of threads, other systems only of processes. */
function giveWay(): void {
  if (process.platform === "linux") setPriority(0, 10);
}
