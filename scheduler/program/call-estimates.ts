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
  readonly #costs: () => CostModel;
  readonly #charsPerToken: number;
  readonly #outputs = new OutputEstimate();

  /** `costs`: what is believed of the device now. */
  constructor(costs: () => CostModel, charsPerToken = 4) {
    this.#costs = costs;
    this.#charsPerToken = charsPerToken;
  }

  /** Milliseconds that a step takes longer by a text of so many characters, of which nothing is cached. */
  readMs(chars: number): number {
    const costs = this.#costs();
    return promptMs(costs, 1 + Math.ceil(chars / this.#charsPerToken), 0) - promptMs(costs, 1, 0);
  }

  /** Milliseconds from the call's beginning to its end. A value that it reads counts as long as an answer. */
  readonly expectedMs = (call: CallSpec): number => {
    const costs = this.#costs();
    const key = keyOf(call);
    let read = 1;
    let drawn = 0;
    let ms = 0;
    for (const part of partsOf(call.prompt)) {
      if (part.kind === "text") read += part.text.length / this.#charsPerToken;
      else if (part.kind === "input") read += this.#outputs.expect(undefined, UNLIMITED);
      else {
        const tokens = this.#outputs.expect(key, part.tokensMax ?? UNLIMITED);
        ms += tokens * decodeStepMs(costs, 1, Math.ceil(read + drawn));
        drawn += tokens;
      }
    }
    return ms + promptMs(costs, Math.ceil(read), 0);
  };

  /** The call's answers had so many tokens together. */
  ended(call: CallSpec, outputTokens: number): void {
    const outputs = partsOf(call.prompt).filter(({ kind }) => kind === "output").length;
    this.#outputs.ended(keyOf(call), outputTokens / outputs);
  }
}

/** A hash of the beginning of the call's text; of one that begins with a value, of its name. */
function keyOf({ prompt, name }: CallSpec): number {
  const first = partsOf(prompt).find(({ kind }) => kind === "text");
  const text = first?.kind === "text" ? first.text : name;
  let hash = 0x811c9dc5;
  for (let i = 0; i < Math.min(text.length, KEY_CHARS); i++) {
    hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  }
  return hash >>> 0;
}
