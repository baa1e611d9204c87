import { badRequest } from "../../http/errors.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { programRequestLimits } from "./request-limits.ts";

/** The reading of one body: it happens at once, on the thread that serves, and so has limits over all of the body's calls. */
export class Reading {
  /** Its texts count. */
  readonly served: ServedModel;
  #outputs = 0;
  #characters = 0;

  constructor(served: ServedModel) {
    this.served = {
      ...served,
      tokensOf: (text) => {
        this.#characters += text.length;
        const { wordCharactersMax: max } = programRequestLimits;
        // Each word is counted twice: behind a space and behind none.
        if (this.#characters > 2 * max)
          throw badRequest(`bad_words of all calls may have ${max} characters together`, "calls");
        return served.tokensOf(text);
      },
    };
  }

  /** Throws 400 for one too many. */
  countOutput(): void {
    const { variablesMax: max } = programRequestLimits;
    if (++this.#outputs > max) throw badRequest(`calls may have ${max} outputs together at most`, "calls");
  }
}
