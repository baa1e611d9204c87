/** A thread of the search: is sent what to run, sends back trials. */

import type { Configuration } from "./configuration.ts";
import { settings } from "./hindsight.ts";
import { runPolicies, runTrial, type Trial } from "./trial.ts";

/** What of a configuration is to be run. */
export interface Task {
  readonly configuration: Configuration;
  /** What is there of it already. */
  readonly trial: Trial | undefined;
  /** Whether other settings of ours run, too. */
  readonly hasSettings: boolean;
}

declare const self: Worker;

self.onmessage = ({ data: { configuration, trial, hasSettings } }: MessageEvent<Task>) => {
  const done = trial ?? runTrial(configuration);
  self.postMessage(hasSettings ? { ...done, settings: runPolicies(configuration, settings) } : done);
};
