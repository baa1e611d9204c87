/** Chat completions of a program: the user's message is its input, its output the assistant's answer. */
import { textOf } from "../../../text/conversation/messages.ts";
import type { Usage } from "../../answer/events.ts";
import { ApiError, badRequest, engineError } from "../../http/errors.ts";
import { whenAborted } from "../../http/route.ts";
import { ResponseStream } from "../../http/stream.ts";
import type { ProgramEvent } from "../../program/events.ts";
import type { Programs } from "../../program/programs.ts";
import type { ServedModel } from "../../request/served-model.ts";
import type { Codec } from "../codec.ts";
import { reportable } from "../fields.ts";
import { chatFormat } from "../openai/chat.ts";
import { openaiCodec } from "../openai/codec.ts";
import { type ChatRequest, parseChatRequest } from "../openai/schema.ts";
import type { Exchange } from "../respond.ts";
import type { ProgramModel } from "./files.ts";
import { criteriaOf } from "./reading.ts";
import { Run } from "./run.ts";
import type { ProgramRequest } from "./schema.ts";

/** A chat request to a program. */
export interface ProgramChat {
  readonly request: ChatRequest;
  readonly program: ProgramRequest;
  readonly output: string;
  /** Names of fields that the program decides for itself. */
  readonly ignored: readonly string[];
}

const honoured = ["model", "lora_path", "messages", "stream", "stream_options", "cache_salt"];

/** Throws ApiError for requests that a program cannot serve. */
export function parseProgramChat(
  body: Readonly<Record<string, unknown>>,
  model: ProgramModel,
  served: ServedModel,
): ProgramChat {
  const request = { ...parseChatRequest({ ...body, model: served.names[0] }, served), model: model.name };
  if (request.generation.choices > 1) throw badRequest("a program gives one answer: n must be 1", "n");
  if (request.tools.length > 0) throw badRequest("a program takes no tools", "tools");
  const last = request.messages.at(-1)!;
  if (last.role !== "user") {
    throw badRequest(
      `a program answers a user, but the last message is of the role ${last.role}`,
      "messages",
    );
  }
  const before = request.messages.slice(0, -1);
  const values = new Map([[model.input, textOf(last)]]);
  if (model.history !== null) {
    values.set(model.history, before.map((message) => `${message.role}: ${textOf(message)}`).join("\n"));
  }
  const unread = model.history === null && before.length > 0 ? ["messages before the last"] : [];
  const others = Object.keys(body).filter((name) => !honoured.includes(name));
  const program: ProgramRequest = {
    part: model.part(values),
    awaited: new Map([[model.output, criteriaOf("latency", "criteria")]]),
    cacheSalt: request.generation.cacheSalt,
    adapter: request.generation.adapter,
    stream: request.stream,
    explain: false,
    cancelOnDisconnect: true,
  };
  const ignored = [...unread, ...reportable(others)];
  return { request, program, output: model.output, ignored };
}

export async function answerProgramChat(
  exchange: Exchange,
  programs: Programs,
  { request, program, output }: ProgramChat,
): Promise<Response> {
  const run = new Run(exchange, programs, program);
  const codec = openaiCodec(request, chatFormat(request, []));
  if (request.stream) return await streamed(exchange, run, codec, output);
  whenAborted(exchange.signal, () => run.leave());
  await run.begin(() => {});
  await run.done;
  const text = outputText(run, output);
  const choice = {
    parts: [{ kind: "text", text }],
    text,
    reasoning: "",
    calls: [],
    tokens: [],
    logprobs: null,
    finish: { reason: "stop", stopReason: null },
  } as const;
  return Response.json(codec.body({ choices: [choice], usage: run.hosted.usage }));
}

async function streamed(exchange: Exchange, run: Run, codec: Codec, output: string): Promise<Response> {
  const stream = new ResponseStream(exchange.reply, codec.framing, exchange.limits, {
    pause: () => {},
    resume: () => {},
    abort: () => {
      stream.end();
      run.leave();
    },
  });
  const answer: { readonly usage: Usage } = run.hosted;
  let sent = "";
  const tell = (text: string): void => {
    sent += text;
    const parts = [{ kind: "text", text }] as const;
    stream.write(codec.chunk({ kind: "delta", choice: 0, parts, tokens: [], logprobs: null }, answer));
  };
  await run.begin((event: ProgramEvent) => {
    if (event.kind === "variable.delta" && event.variable === output) tell(event.text);
  });
  run.done.then(
    () => {
      try {
        const text = outputText(run, output);
        if (sent === "" && text !== "") tell(text); // it comes from transforms or a map, which send no deltas
        stream.write(codec.chunk({ kind: "finish", choice: 0, reason: "stop", stopReason: null }, answer));
        stream.write(codec.chunk({ kind: "done", usage: run.hosted.usage }, answer));
      } catch (error) {
        stream.write(codec.failure(error as ApiError));
      }
      stream.end();
    },
    (error: ApiError) => {
      stream.write(codec.failure(error));
      stream.end();
    },
  );
  return stream.response();
}

/** The output's text; a list has a line for each item. Throws ApiError if the output failed. */
function outputText({ hosted }: Run, output: string): string {
  const { value, failure } = hosted.program.variables.get(output)!;
  if (value !== null) return typeof value === "string" ? value : value.join("\n");
  const { code, message, origin } = hosted.failureOf(failure!);
  const sentence = `${origin}: ${message}`;
  if (code === "context_length_exceeded") throw badRequest(sentence, "messages", code);
  if (code === "server_overloaded") throw new ApiError(503, "overloaded_error", sentence, { apiCode: code });
  throw engineError(sentence);
}
