import { badRequest } from "../../http/errors.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { programRequestLimits } from "./request-limits.ts";

/**
 * State of reading one body. Reading blocks the serving thread, so limits apply to all calls of the body
 * together.
 */
export class Reading {
  /** The served model. Its `tokensOf` counts characters towards the limit. */
  readonly served: ServedModel;
  #outputs = 0;
  #characters = 0;

  constructor(served: ServedModel) {
    this.served = {
      ...served,
      tokensOf: (text) => {
        this.#characters += text.length;
        const { wordCharactersMax: max } = programRequestLimits;
        // Each word counts twice: with and without a space before it.
        if (this.#characters > 2 * max)
          throw badRequest(`bad_words of all calls may have ${max} characters together`, "calls");
        return served.tokensOf(text);
      },
    };
  }

  /** Counts an output. Throws 400 beyond the limit. */
  countOutput(): void {
    const { variablesMax: max } = programRequestLimits;
    if (++this.#outputs > max) throw badRequest(`calls may have ${max} outputs together at most`, "calls");
  }
}
