import type { ChoiceFinish, Delta, Usage } from "../../answer/events.ts";
import type { WholeAnswer, WholeChoice } from "../../answer/whole.ts";
import { errorBody } from "../../http/errors.ts";
import type { AnswerTimes } from "../../http/measure.ts";
import { sseEvent, sseFraming } from "../../http/stream.ts";
import type { StreamText } from "../../http/text-batch.ts";
import { version } from "../../version.ts";
import type { Codec, CodecAnswer, ShownEvent } from "../codec.ts";
import { progressOf, timingsOf } from "../timings.ts";
import type { CommonRequest } from "./schema.ts";

/** Format of a choice on one route: in a body, and as JSON in a stream's chunks. */
export interface ChoiceFormat {
  readonly id: string;
  readonly objectName: string;
  readonly chunkObjectName: string;
  /** Fields of the body besides id, object, created, model, choices and usage. */
  extras(answer: WholeAnswer): object;
  whole(index: number, choice: WholeChoice, answer: WholeAnswer): object;
  /** Chunk before the choice's first text; null for none. */
  opening(index: number): string | null;
  delta(delta: Delta): readonly string[];
  /** JSON before and after the text of a delta that holds text alone; null if chunks hold more than text. */
  around(index: number): readonly [before: string, after: string] | null;
  closing(index: number, finish: ChoiceFinish): string;
}

/**
 * Wire format shared by chat and text completions: objects with `choices`, and streams that end with [DONE].
 */
export function openaiCodec(request: CommonRequest, format: ChoiceFormat): Codec {
  const { id, chunkObjectName: object } = format;
  const { model, includeUsage, continuousUsage, serviceTier, tellsTimings } = request;
  const tier = serviceTier === null ? {} : { service_tier: serviceTier };
  const created = Math.floor(Date.now() / 1000);
  const head = `${JSON.stringify({ id, object, created, model, system_fingerprint, ...tier }).slice(0, -1)},"choices":[`;
  const noUsage = includeUsage ? `],"usage":null}` : "]}";
  /** Constant bytes around a chunk's text, by choice; null if the chunks differ in more than their text. */
  const frames: (Frame | null)[] = [];
  const frameOf = (index: number): Frame | null => {
    const around = continuousUsage || tellsTimings ? null : format.around(index);
    return (
      around && { before: encoder.encode(`data: ${head}${around[0]}`), after: endingOf(around[1] + noUsage) }
    );
  };
  const openingOf = (index: number, tail: string): string => {
    if (frames[index] !== undefined) return "";
    frames[index] = frameOf(index);
    const opening = format.opening(index);
    return opening === null ? "" : sseEvent(head + opening + tail);
  };
  const framed = (delta: Delta): StreamText | null => {
    const frame = frames[delta.choice] ?? null;
    const text = frame && textAlone(delta);
    return frame === null || text === null ? null : [frame.before, JSON.stringify(text), frame.after];
  };
  const written = (event: ChoiceEvent, answer: CodecAnswer): string => {
    const usage = continuousUsage ? `],"usage":${JSON.stringify(usageJson(answer.usage))}}` : noUsage;
    const tail = tellsTimings ? withTimings(usage, answer) : usage;
    const choices = event.kind === "delta" ? format.delta(event) : [format.closing(event.choice, event)];
    return choices.reduce(
      (text, choice) => text + sseEvent(head + choice + tail),
      openingOf(event.choice, tail),
    );
  };
  const tellsProgress = request.generation.tellsProgress ?? false;
  const progressText = (tokens: number, { usage, times }: CodecAnswer): string =>
    sseEvent(`${head}],${JSON.stringify(progressOf(tokens, usage, times)).slice(1)}`);
  return {
    framing: sseFraming,
    body: (answer, times) => ({
      id,
      object: format.objectName,
      created,
      model,
      choices: answer.choices.map((choice, index) => format.whole(index, choice, answer)),
      usage: usageJson(answer.usage),
      system_fingerprint,
      ...tier,
      ...(tellsTimings && times !== undefined ? { timings: timingsOf(answer.usage, times) } : {}),
      ...format.extras(answer),
    }),
    chunk: (event, answer) => {
      switch (event.kind) {
        case "started":
          return tellsProgress ? progressText(answer.usage.cachedTokens, answer) : "";
        case "delta":
          return framed(event) ?? written(event, answer);
        case "finish":
          return written(event, answer);
        case "done": {
          const usage = includeUsage ? `,"usage":${JSON.stringify(usageJson(event.usage))}` : "";
          const why = answer.why == null ? "" : `,"bunting":${JSON.stringify({ why: answer.why })}`;
          return (usage + why === "" ? "" : sseEvent(`${head}]${usage}${why}}`)) + sseEvent("[DONE]");
        }
      }
    },
    ...(tellsProgress ? { progress: progressText } : {}),
    // Clients throw this error; the missing [DONE] shows that the stream is incomplete.
    failure: (error) => sseEvent(JSON.stringify(errorBody(error))),
  };
}

type ChoiceEvent = Extract<ShownEvent, { readonly choice: number }>;

/** Bytes of a chunk before and after its text, in the format of `sseEvent`. */
interface Frame {
  readonly before: Uint8Array;
  readonly after: Uint8Array;
}

const encoder = new TextEncoder();

/**
 * Chunk endings by their text, shared by all answers. Their number is bounded by the routes and their
 * options.
 */
const endings = new Map<string, Uint8Array>();

function endingOf(json: string): Uint8Array {
  const ending = endings.get(json) ?? encoder.encode(`${json}\n\n`);
  endings.set(json, ending);
  return ending;
}

/** Text of a delta that holds nothing else; null if it does. */
function textAlone({ parts, logprobs }: Delta): string | null {
  const [only] = parts;
  return parts.length === 1 && only!.kind === "text" && logprobs === null ? only!.text : null;
}

/** Version of the software that computed the answer: results for one seed may differ between versions. */
const system_fingerprint = `bunting-${version}`;

/** End of a chunk, with timings if they were measured. */
function withTimings(
  tail: string,
  { usage, times }: { readonly usage: Usage; readonly times?: AnswerTimes },
): string {
  return times === undefined
    ? tail
    : `${tail.slice(0, -1)},"timings":${JSON.stringify(timingsOf(usage, times))}}`;
}

function usageJson(usage: Usage): object {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
    completion_tokens_details: { reasoning_tokens: usage.reasoningTokens, ...predictionJson(usage) },
  };
}

/** Tokens of the prediction that were right, and wrong, where steps checked them. */
function predictionJson({ predicted }: Usage): object {
  if (predicted === undefined) return {};
  const { tokens, accepted } = predicted;
  return { accepted_prediction_tokens: accepted, rejected_prediction_tokens: tokens - accepted };
}
