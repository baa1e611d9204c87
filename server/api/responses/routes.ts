import type { Call, Route } from "../../http/route.ts";
import { during, exchangeOf, tellIgnored } from "../exchange.ts";
import type { RouteDeps } from "../routes.ts";
import { targetsOf } from "../targets.ts";
import {
  cancelResponse,
  countInputTokens,
  createResponse,
  deleteResponse,
  readResponse,
} from "./responses.ts";
import { parseResponsesRequest } from "./schema.ts";

export function responsesRoutes(deps: RouteDeps): readonly Route[] {
  const route = (method: Route["method"], path: string, handler: Route["handler"]): Route => ({
    method,
    path,
    isPublic: false,
    handler,
  });
  const ofOne = "/v1/responses/{id}";
  return [
    route("POST", "/v1/responses", (call) => responses(call, deps)),
    route("POST", ofOne, async (call) => {
      return call.rest === "input_tokens" ? inputTokens(call, deps) : cancelResponse(call, deps);
    }),
    route("GET", ofOne, (call) => readResponse(call, deps)),
    route("DELETE", ofOne, (call) => deleteResponse(call, deps)),
  ];
}

async function responses(call: Call, deps: RouteDeps): Promise<Response | object> {
  const request = parseResponsesRequest(await call.readWork(), deps, targetsOf(call.request.headers));
  tellIgnored(call, request.ignored);
  return createResponse(exchangeOf(call, deps), call, during(call, deps), request);
}

async function inputTokens(call: Call, deps: RouteDeps): Promise<object> {
  const request = parseResponsesRequest(await call.readWork(), deps);
  tellIgnored(call, request.ignored);
  return countInputTokens(call.tenant, during(call, deps), request);
}
