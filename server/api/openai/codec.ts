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

/** How a choice looks on one route: in a body, and as JSON in a stream's chunks. */
export interface ChoiceFormat {
  readonly id: string;
  readonly objectName: string;
  readonly chunkObjectName: string;
  /** Fields of the body besides id, object, created, model, choices and usage. */
  extras(answer: WholeAnswer): object;
  whole(index: number, choice: WholeChoice, answer: WholeAnswer): object;
  /** Before the choice's first text; null for nothing. */
  opening(index: number): string | null;
  delta(delta: Delta): readonly string[];
  /** What stands before and after the JSON of a text that is a delta of its own; null: chunks tell more than the text. */
  around(index: number): readonly [before: string, after: string] | null;
  closing(index: number, finish: ChoiceFinish): string;
}

/** What chat and text completions have in common on the wire: objects with `choices`, and streams that end with [DONE]. */
export function openaiCodec(request: CommonRequest, format: ChoiceFormat): Codec {
  const { id, chunkObjectName: object } = format;
  const { model, includeUsage, continuousUsage, serviceTier, tellsTimings } = request;
  const tier = serviceTier === null ? {} : { service_tier: serviceTier };
  const created = Math.floor(Date.now() / 1000);
  const head = `${JSON.stringify({ id, object, created, model, system_fingerprint, ...tier }).slice(0, -1)},"choices":[`;
  const noUsage = includeUsage ? `],"usage":null}` : "]}";
  /** By choice, once it is open; null: its chunks have more than a text that differs. */
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
          const last = `${head}],"usage":${JSON.stringify(usageJson(event.usage))}}`;
          return (includeUsage ? sseEvent(last) : "") + sseEvent("[DONE]");
        }
      }
    },
    ...(tellsProgress ? { progress: progressText } : {}),
    // Clients throw it; the missing [DONE] says that the stream is not whole.
    failure: (error) => sseEvent(JSON.stringify(errorBody(error))),
  };
}

type ChoiceEvent = Extract<ShownEvent, { readonly choice: number }>;

/** A chunk without its text, as `sseEvent` writes it. */
interface Frame {
  readonly before: Uint8Array;
  readonly after: Uint8Array;
}

const encoder = new TextEncoder();

/** By text. There are as many as routes and their options make, and all answers share them. */
const endings = new Map<string, Uint8Array>();

function endingOf(json: string): Uint8Array {
  const ending = endings.get(json) ?? encoder.encode(`${json}\n\n`);
  endings.set(json, ending);
  return ending;
}

/** The text of a delta that has nothing else to show; null: it has. */
function textAlone({ parts, logprobs }: Delta): string | null {
  const [only] = parts;
  return parts.length === 1 && only!.kind === "text" && logprobs === null ? only!.text : null;
}

/** What computed the answer, as far as it may differ for the same seed. */
const system_fingerprint = `bunting-${version}`;

/** The end of a chunk, with timings in it where they were measured. */
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
    completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
  };
}
