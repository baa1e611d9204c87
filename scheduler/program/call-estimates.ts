import { type CostModel, decodeStepMs, promptMs } from "../cost/cost-model.ts";
import { OutputEstimate } from "../fleet/output-estimate.ts";
import { type CallSpec, partsOf } from "./spec.ts";

/** Token limit of an unlimited answer. */
const UNLIMITED = Number.MAX_SAFE_INTEGER;
/** Leading characters of a text that identify similar calls. */
const KEY_CHARS = 1024;

/**
 * Expected times of calls before they run: prompt and answers, alone on a device. The expected answer length
 * is that of calls with the same beginning. One instance serves all programs of a process.
 */
export class CallEstimates {
  readonly #costs: () => CostModel;
  readonly #charsPerToken: number;
  readonly #outputs = new OutputEstimate();

  /** `costs`: returns the current cost model of the device. */
  constructor(costs: () => CostModel, charsPerToken = 4) {
    this.#costs = costs;
    this.#charsPerToken = charsPerToken;
  }

  /** Milliseconds by which a text of `chars` uncached characters lengthens a step. */
  readMs(chars: number): number {
    const costs = this.#costs();
    return promptMs(costs, 1 + Math.ceil(chars / this.#charsPerToken), 0) - promptMs(costs, 1, 0);
  }

  /** Milliseconds from the call's beginning to its end. An input value counts as long as an answer. */
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

  /** Learns the total output tokens of an ended call. */
  ended(call: CallSpec, outputTokens: number): void {
    const outputs = partsOf(call.prompt).filter(({ kind }) => kind === "output").length;
    this.#outputs.ended(keyOf(call), outputTokens / outputs);
  }
}

/** Hashes the beginning of the call's text; for a call that begins with a value, its name. */
function keyOf({ prompt, name }: CallSpec): number {
  const first = partsOf(prompt).find(({ kind }) => kind === "text");
  const text = first?.kind === "text" ? first.text : name;
  let hash = 0x811c9dc5;
  for (let i = 0; i < Math.min(text.length, KEY_CHARS); i++) {
    hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  }
  return hash >>> 0;
}
