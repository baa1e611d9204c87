import { type CostModel, decodeStepMs, promptMs } from "../cost/cost-model.ts";
import { OutputEstimate } from "../fleet/output-estimate.ts";
import { type CallSpec, partsOf } from "./spec.ts";

/** Tokens of an answer that may be as long as it likes. */
const UNLIMITED = Number.MAX_SAFE_INTEGER;
/** Characters of a text by which calls are told apart. */
const KEY_CHARS = 1024;

/**
 * What calls take, before they run: their texts' prompts and their answers, alone on a device. Answers are expected to be as long
 * as those of calls that began alike. Serves all programs of a process.
 */
export class CallEstimates {
  readonly #costs: CostModel;
  readonly #charsPerToken: number;
  readonly #outputs = new OutputEstimate();

  constructor(costs: CostModel, charsPerToken = 4) {
    this.#costs = costs;
    this.#charsPerToken = charsPerToken;
  }

  /** Milliseconds from the call's beginning to its end. A value that it reads counts as long as an answer. */
  readonly expectedMs = (call: CallSpec): number => {
    const key = keyOf(call);
    let prompt = 1;
    let ms = 0;
    for (const part of partsOf(call.prompt)) {
      if (part.kind === "text") prompt += part.text.length / this.#charsPerToken;
      else if (part.kind === "input") prompt += this.#outputs.expect(undefined, UNLIMITED);
      else {
        const tokens = this.#outputs.expect(key, part.tokensMax ?? UNLIMITED);
        ms += tokens * decodeStepMs(this.#costs, 1, Math.ceil(prompt));
        prompt += tokens;
      }
    }
    return ms + promptMs(this.#costs, Math.ceil(prompt), 0);
  };

  /** An answer of the call had so many tokens. */
  ended(call: CallSpec, outputTokens: number): void {
    this.#outputs.ended(keyOf(call), outputTokens);
  }
}

/** A hash of the call's name and of the beginning of its text. */
function keyOf({ prompt, name }: CallSpec): number {
  const first = partsOf(prompt).find(({ kind }) => kind === "text");
  const text = first?.kind === "text" ? first.text : name;
  let hash = 0x811c9dc5;
  for (let i = 0; i < Math.min(text.length, KEY_CHARS); i++) {
    hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  }
  return hash >>> 0;
}
