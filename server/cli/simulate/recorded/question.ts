/** Message from a running server to the thread that simulates its recording, and the reply. */
import type { Quantiles } from "../../../../simulation/histogram.ts";

/** Message to the simulating thread. */
export interface WhatIfQuestion {
  /** Path of the recording. */
  readonly path: string;
  /** Changes as `bunting simulate --what-if` takes them; "" for none. */
  readonly changes: string;
  /** Maximum calls to simulate: the last ones of the recording. */
  readonly callsMax: number;
}

export type WhatIfAnswer =
  | {
      readonly kind: "simulated";
      /** Number of simulated calls, of recorded calls, and the seconds in which they arrived. */
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
