import type { Route } from "../../http/route.ts";
import { asking } from "../exchange.ts";
import type { RouteDeps } from "../route-deps.ts";
import { compactConversation, parseCompactRequest } from "./compact.ts";
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
  const inputTokens = asking(deps, parseResponsesRequest, countInputTokens);
  const compact = asking(deps, parseCompactRequest, compactConversation);
  return [
    route("POST", "/v1/responses", asking(deps, parseResponsesRequest, createResponse)),
    route("POST", ofOne, (call) =>
      call.rest === "input_tokens"
        ? inputTokens(call)
        : call.rest === "compact"
          ? compact(call)
          : cancelResponse(call, deps),
    ),
    route("GET", ofOne, (call) => readResponse(call, deps)),
    route("DELETE", ofOne, (call) => deleteResponse(call, deps)),
  ];
}
