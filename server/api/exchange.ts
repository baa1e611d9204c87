/** What routes of every wire format have in common. */
import type { Call } from "../http/route.ts";
import type { Exchange } from "./respond.ts";

export function exchangeOf(
  { request, arrivedMs, tenant }: Call,
  deps: Exchange["services"] & Pick<Exchange, "limits">,
): Exchange {
  return { signal: request.signal, arrivedMs, tenant, services: deps, limits: deps.limits };
}

export function tellIgnored(call: Call, ignored: readonly string[]): void {
  if (ignored.length > 0) call.setHeader("x-bunting-ignored", ignored.join(", "));
}
