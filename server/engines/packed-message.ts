/**
 * Encoding of messages to an engine's thread: long lists become typed arrays, which are much cheaper to copy
 * between threads.
 */
import type { TokenId } from "../../base/token.ts";
import type { SequenceSpec } from "../../scheduler/core.ts";
import type { EngineMessage } from "../../scheduler/messages.ts";

type Bias = SequenceSpec["sampling"]["logitBias"];
type Words = SequenceSpec["sampling"]["badWords"];

export type PackedMessage =
  | { readonly kind: "message"; readonly message: EngineMessage }
  | {
      readonly kind: "packed";
      readonly sequence: SequenceSpec;
      readonly promptTokens: Int32Array;
      /** Tokens and their biases, alternating. */
      readonly logitBias: Float64Array;
      /** For each word the number of its tokens, then the tokens. */
      readonly badWords: Int32Array;
    };

/** A message whose lists are all shorter than this is sent unpacked. */
const SHORT = 64;

/** Packed lists by original list: the choices of a request share their lists. */
const packedTokens = new WeakMap<readonly TokenId[], Int32Array>();
const packedBiases = new WeakMap<Bias, Float64Array>();
const packedWords = new WeakMap<Words, Int32Array>();

export function packed(message: EngineMessage): PackedMessage {
  if (message.kind !== "submit") return { kind: "message", message };
  const { promptTokens, sampling } = message.sequence;
  const { logitBias, badWords } = sampling;
  const isShort = [promptTokens, logitBias, badWords].every(({ length }) => length < SHORT);
  if (isShort) return { kind: "message", message };
  return {
    kind: "packed",
    sequence: {
      ...message.sequence,
      promptTokens: [],
      sampling: { ...sampling, logitBias: [], badWords: [] },
    },
    promptTokens: once(packedTokens, promptTokens, (tokens) => Int32Array.from(tokens)),
    logitBias: once(packedBiases, logitBias, (bias) => Float64Array.from(bias.flat())),
    badWords: once(packedWords, badWords, (words) =>
      Int32Array.from(words.flatMap((word) => [word.length, ...word])),
    ),
  };
}

export function unpacked(given: PackedMessage): EngineMessage {
  if (given.kind === "message") return given.message;
  const { sequence, promptTokens, logitBias, badWords } = given;
  const biases = Array.from(
    { length: logitBias.length / 2 },
    (_, i) => [logitBias[2 * i]!, logitBias[2 * i + 1]!] as const,
  );
  const words: TokenId[][] = [];
  for (let at = 0; at < badWords.length; at += 1 + badWords[at]!)
    words.push(Array.from(badWords.subarray(at + 1, at + 1 + badWords[at]!)));
  const sampling = { ...sequence.sampling, logitBias: biases, badWords: words };
  return { kind: "submit", sequence: { ...sequence, promptTokens: Array.from(promptTokens), sampling } };
}

function once<List extends object, Packed>(
  known: WeakMap<List, Packed>,
  list: List,
  pack: (list: List) => Packed,
): Packed {
  const there = known.get(list) ?? pack(list);
  known.set(list, there);
  return there;
}
