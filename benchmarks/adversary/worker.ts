/** A thread of the search: is sent configurations, sends back trials. */

import type { Configuration } from "./configuration.ts";
import { runTrial } from "./trial.ts";

declare const self: Worker;

self.onmessage = ({ data }: MessageEvent<Configuration>) => self.postMessage(runTrial(data));
