/** Helpers shared by the routes of every wire format. */
import { pathOf } from "../http/head.ts";
import type { Call, Route } from "../http/route.ts";
import { requestLimits } from "../request/limits.ts";
import type { PromptServices } from "../request/prompt.ts";
import type { Exchange } from "./respond.ts";
import { sessionHeaderOf } from "./session-names.ts";
import { type Targets, targetsOf } from "./targets.ts";

/** Makes the exchange of a call whose body has been read. */
export function exchangeOf(
  { request, requestId, reply, arrivedMs, loadMs, tenant, trace }: Call,
  deps: Exchange["services"] & Pick<Exchange, "limits">,
): Exchange {
  const { signal } = reply;
  const sessionName = sessionHeaderOf(request.headers);
  const entry = {
    route: pathOf(request),
    readMs: performance.now(),
    wantsWhy: request.headers.get(WHY_HEADER) === "1",
    whenSent: (tell: () => void) => reply.whenSent(tell),
    trace,
    traceHeaders: trace?.headers,
  };
  const about = { requestId, signal, reply, entry, arrivedMs, loadMs, tenant, sessionName };
  return { ...about, services: deps, limits: deps.limits };
}

/** The same services for one call: its encoder jobs stop when the client disconnects. */
export function during<Services extends Pick<PromptServices, "encoder">>(
  { reply }: Call,
  services: Services,
): Services {
  return { ...services, encoder: services.encoder.until(reply.signal) };
}

/** Header by which a client asks for the record of its request in the answer; its value is 1. */
const WHY_HEADER = "x-bunting-why";

export function reportIgnored(call: Call, ignored: readonly string[]): void {
  const names = ignored.slice(0, requestLimits.ignoredNamesMax);
  if (names.length > 0) call.setHeader("x-bunting-ignored", names.join(", "));
}

type Asked = Exchange["services"] & Pick<Exchange, "limits"> & Pick<PromptServices, "encoder">;

/**
 * Creates the handler of a route that runs the model. The handler names body fields without effect in the
 * header `x-bunting-ignored`.
 */
export function asking<Services extends Asked, Request extends { readonly ignored: readonly string[] }>(
  services: Services,
  parse: (body: Readonly<Record<string, unknown>>, services: Services, targets: Targets) => Request,
  answer: (exchange: Exchange, services: Services, request: Request, call: Call) => unknown,
): Route["handler"] {
  return async (call) => {
    const request = parse(await call.readWork(), services, targetsOf(call.request.headers));
    reportIgnored(call, request.ignored);
    return answer(exchangeOf(call, services), during(call, services), request, call);
  };
}
