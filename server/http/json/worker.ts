/** Entry of the thread that parses large bodies, one after another. */
import { answerJob, type JsonJob } from "./reader.ts";

declare const self: Worker;

self.onmessage = ({ data }: MessageEvent<JsonJob>) => self.postMessage(answerJob(data));
