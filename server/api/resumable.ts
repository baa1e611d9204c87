/** Streams that outlive their connections: the header that requests one, and routes to read it again or end it. */
import { ApiError, asApiError, badRequest, quote } from "../http/errors.ts";
import { pathOf } from "../http/head.ts";
import type { KeptStream } from "../http/kept-stream.ts";
import type { KeptStreams } from "../http/kept-streams.ts";
import type { ReplyTarget } from "../http/reply.ts";
import type { Call, Route } from "../http/route.ts";
import { errorEvent, refusalOn } from "./refusals.ts";

/** Header that names the stream of an answer, as llama-server has it. */
const HEADER = "x-conversation-id";
const NAME = /^[\x21-\x7e]{1,256}$/;

/** Routes whose streams of events can be resumed. */
const paths = new Set([
  "/v1/chat/completions",
  "/chat/completions",
  "/v1/completions",
  "/completions",
  "/v1/messages",
  "/v1/responses",
  "/responses",
  "/completion",
]);

/** Lets the streams of these routes outlive their connections where the client asks for that. */
export function withResumableStreams(routes: readonly Route[], streams: KeptStreams): readonly Route[] {
  return routes.map((route) => {
    if (route.method !== "POST" || !paths.has(route.path)) return route;
    return { ...route, handler: (call) => answerNamed(call, route.handler, streams) };
  });
}

/** GET and DELETE /v1/stream */
export function streamRoutes(streams: KeptStreams): readonly Route[] {
  const route = (method: Route["method"], handler: Route["handler"]): Route => ({
    method,
    path: "/v1/stream",
    isPublic: false,
    handler,
  });
  return [
    route("GET", (call) => readStream(call, streams)),
    route("DELETE", (call) => endStream(call, streams)),
  ];
}

/** Number of the last event that a client has; null: it has none. Throws 400. */
export function startingAfter({ request }: Pick<Call, "request">): number | null {
  const field = "starting_after";
  const asked = new URL(request.url).searchParams.get(field);
  const given = asked ?? request.headers.get("last-event-id");
  if (given === null) return null;
  if (/^\d{1,15}$/.test(given)) return Number(given);
  const name = asked === null ? "Last-Event-ID" : field;
  throw badRequest(`${name} must be the number of an event, but is ${quote(given)}`, name);
}

/**
 * Answers through a kept stream: `answer` writes to it, and the client reads from it. An error before the first
 * event is written to the stream and thrown.
 */
export async function answerKept(
  outer: Pick<Call, "reply" | "request" | "requestId">,
  stream: KeptStream,
  answer: (reply: ReplyTarget) => unknown,
): Promise<unknown> {
  try {
    const answered = await answer(stream.reply);
    if (!stream.start()) return answered;
    stream.read(outer.reply, null);
    return answered;
  } catch (error) {
    const path = pathOf(outer.request);
    const refusal = asApiError(error, outer.requestId);
    stream.write(errorEvent(path, await refusalOn(path, refusal, outer.requestId).text()));
    throw refusal;
  } finally {
    if (!stream.isStarted) stream.end();
  }
}

async function answerNamed(call: Call, handler: Route["handler"], streams: KeptStreams): Promise<unknown> {
  const name = call.request.headers.get(HEADER);
  if (name === null) return await handler(call);
  const body = await call.readWork();
  const read: Call = { ...call, readWork: () => Promise.resolve(body) };
  if (body.stream !== true) return await handler(read);
  expectName(name, HEADER);
  const stream = streams.open(call.tenant, name);
  return await answerKept(call, stream, (reply) => handler({ ...read, reply }));
}

function readStream(call: Call, streams: KeptStreams): Response {
  const search = new URL(call.request.url).searchParams;
  if (!["0", null].includes(search.get("from"))) {
    const message =
      "from counts bytes, which this server does not: send the last event's id as Last-Event-ID";
    throw badRequest(message, "from");
  }
  const name = nameIn(search);
  const stream = streams.find(call.tenant, name);
  if (stream === null) throw missing(name);
  return stream.read(call.reply, startingAfter(call));
}

/** Ends a stream. Answers 204, also if there is none. */
function endStream({ request, tenant }: Call, streams: KeptStreams): Response {
  const name = nameIn(new URL(request.url).searchParams);
  const stream = streams.find(tenant, name);
  streams.forget(tenant, name);
  stream?.abort();
  return new Response(null, { status: 204 });
}

function nameIn(search: URLSearchParams): string {
  return expectName(search.get("conv_id"), "conv_id");
}

function expectName(given: string | null, param: string): string {
  if (given !== null && NAME.test(given)) return given;
  const message = `${param} must be 1 to 256 printable characters of ASCII without spaces, but is ${quote(given)}`;
  throw badRequest(message, param);
}

function missing(name: string): ApiError {
  const message = `there is no stream ${quote(name)} of this key: it never was, was ended, or is no longer kept`;
  return new ApiError(404, "not_found_error", message, { param: "conv_id" });
}
