import type { Pooling, TokenId } from "../../base/token.ts";
import type { Finish, SequenceSpec } from "../core.ts";
import type { DeviceSpec } from "../device.ts";

/** Tokens of the longest sequence, prompt and output together, that could ever run here. */
export function lengthLimit(spec: DeviceSpec): number {
  return Math.min(spec.contextMax, spec.pages * spec.pageTokens);
}

/**
 * Returns why a sequence is refused on arrival; null if it may wait. A sequence that can never run would block
 * the queue.
 */
export function refusal(
  spec: SequenceSpec,
  device: DeviceSpec,
  waiting: number,
  queueMax: number,
): Finish | null {
  const { promptTokens, drawnTokens, pooling } = spec;
  if (promptTokens.length === 0) return { kind: "failed", reason: "The prompt has no tokens." };
  const lacking = pooling === undefined ? null : lacksFor(pooling, device);
  if (lacking !== null) return { kind: "failed", reason: lacking };
  const needed = promptTokens.length + drawnTokens.length + (pooling === undefined ? 1 : 0);
  const limit = spec.isWhole ? Math.min(lengthLimit(device), device.stepTokensMax) : lengthLimit(device);
  if (needed > limit) return { kind: "rejected", reason: "neverFits", needed, limit };
  if (waiting >= queueMax) {
    return { kind: "rejected", reason: "queueFull", needed: waiting + 1, limit: queueMax };
  }
  const unknown = unknownToken(promptTokens, device.vocabSize) ?? unknownToken(drawnTokens, device.vocabSize);
  if (unknown === null) return null;
  return {
    kind: "failed",
    reason: `Prompt token ${unknown} is not in the vocabulary of ${device.vocabSize}.`,
  };
}

/** Returns why an engine cannot pool in this way; null if it can. */
function lacksFor(pooling: Pooling, { hidden, stepTokensMax }: DeviceSpec): string | null {
  if (hidden === undefined) return "This engine returns no hidden states.";
  if (pooling !== "mean" || hidden.rowsMax >= stepTokensMax) return null;
  return `Mean pooling needs up to ${stepTokensMax} hidden states per step; this engine returns at most ${hidden.rowsMax}.`;
}

/** The first token that is not in the vocabulary; null: all are. */
export function unknownToken(tokens: ArrayLike<TokenId>, vocabSize: number): number | null {
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i]!;
    if (!Number.isInteger(token) || token < 0 || token >= vocabSize) return token;
  }
  return null;
}
