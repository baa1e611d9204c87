/** Entry of a tokenizer's thread: runs jobs one after another. */
import { lowerPriority } from "../../base/time-slice.ts";
import { runJob } from "../../text/encode-job.ts";
import { rememberJsonText } from "../../text/json-text.ts";
import { type ModelText, openTokenizer } from "../../text/model-text.ts";
import { ChatTemplate } from "../../text/template.ts";
import type { EncoderAnswer, EncoderMessage } from "./encoder.ts";

declare const self: Worker;

let model: ModelText | null = null;

self.onmessage = ({ data }: MessageEvent<EncoderMessage>) => {
  if (data.kind === "load") {
    lowerPriority(data.isBackground ? "background" : "serving");
    const tokenizer = openTokenizer(data.folder);
    const template = data.template && new ChatTemplate(data.template, tokenizer.controlTexts);
    model = { tokenizer, template };
    self.postMessage({ kind: "begun" } satisfies EncoderAnswer);
    return;
  }
  const { job, jsonTexts, stopped } = data;
  const isWanted = (): boolean => Atomics.load(stopped, 0) === 0;
  try {
    if (!isWanted()) throw new Error("nobody waits for it");
    for (const [value, text] of jsonTexts) rememberJsonText(value, text);
    const outcome = runJob(job, model!, isWanted);
    const moved = "tokens" in outcome ? [outcome.tokens.buffer] : [];
    self.postMessage({ kind: "done", outcome } satisfies EncoderAnswer, moved);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    self.postMessage({ kind: "failed", reason } satisfies EncoderAnswer);
  }
};
