/** Entry of the thread that parses large bodies, one after another. */
import { giveWay } from "../../../base/time-slice.ts";
import { answerJob, type JsonJob } from "./reader.ts";

declare const self: Worker;

giveWay("serving");
self.onmessage = ({ data }: MessageEvent<JsonJob>) => {
  for (const message of answerJob(data)) self.postMessage(message);
};
