/**
 * POST /v1/programs: runs a whole graph and returns its awaited values, as one body or as a stream of events.
 */
import type { ApiError } from "../../http/errors.ts";
import { jsonResponse } from "../../http/json/slices.ts";
import { whenAborted } from "../../http/route.ts";
import { ResponseStream, sseFraming } from "../../http/stream.ts";
import type { Programs } from "../../program/programs.ts";
import type { Exchange } from "../respond.ts";
import { Run } from "./run.ts";
import type { ProgramRequest } from "./schema.ts";
import { errorText, eventText, usageJson } from "./wire.ts";

export async function answerProgram(
  exchange: Exchange,
  programs: Programs,
  request: ProgramRequest,
): Promise<Response> {
  const run = new Run(exchange, programs, request);
  if (request.stream) return await streamed(exchange, run, request);
  whenAborted(exchange.signal, () => run.leave());
  await run.begin(() => {});
  await run.done;
  return await jsonResponse(run.json());
}

async function streamed(exchange: Exchange, run: Run, request: ProgramRequest): Promise<Response> {
  let isGone = false;
  // A program runs at its own pace: the stream itself bounds the output that a slow reader leaves unread.
  const stream = new ResponseStream(exchange.reply, sseFraming, exchange.limits, {
    pause: () => {},
    resume: () => {},
    abort: () => {
      isGone = true;
      stream.end();
      run.leave();
    },
  });
  stream.write(eventText({ kind: "program.started" }, { id: run.hosted.id }));
  await run.begin((event) => {
    if (!isGone && run.isNews(event)) stream.write(eventText(event));
  });
  run.done.then(
    () => {
      const more = request.explain ? { explain: run.explain() } : {};
      stream.write(
        eventText(
          { kind: "program.done" },
          { id: run.hosted.id, usage: usageJson(run.hosted.usage), ...more },
        ),
      );
      stream.end();
    },
    (error: ApiError) => {
      stream.write(errorText(error));
      stream.end();
    },
  );
  return stream.response();
}
