/** Entry of the thread that parses large bodies, one after another. */
import { lowerPriority } from "../../../base/time-slice.ts";
import { answerJob, type JsonJob } from "./reader.ts";

declare const self: Worker;

lowerPriority("serving");
self.onmessage = ({ data }: MessageEvent<JsonJob>) => {
  for (const message of answerJob(data)) self.postMessage(message);
};
