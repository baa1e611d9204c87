/** Question of a running server about its recording, and the answer. */
import type { Quantiles } from "../../../../simulation/histogram.ts";

/** Question to the thread that simulates. */
export interface WhatIfQuestion {
  /** Path of the recording. */
  readonly path: string;
  /** Changes as `bunting simulate --what-if` takes them; "" for none. */
  readonly changes: string;
  /** Calls at most: the last ones of the recording. */
  readonly callsMax: number;
}

export type WhatIfAnswer =
  | {
      readonly kind: "simulated";
      /** Calls that were simulated, of those recorded, and the seconds in which they came. */
      readonly calls: number;
      readonly recorded: number;
      readonly seconds: number;
      readonly engines: number;
      readonly before: Outcome;
      readonly after: Outcome;
    }
  /** `message`: sentence for people. */
  | { readonly kind: "refused"; readonly message: string };

/** Times in milliseconds, as clients would see them. */
export interface Outcome {
  readonly unanswered: number;
  readonly firstToken: Quantiles;
  readonly betweenTokens: Quantiles;
  readonly whole: Quantiles;
  readonly waiting: Quantiles;
  readonly hitRate: number;
}
