import type { Route } from "../../http/route.ts";
import { during, exchangeOf, tellIgnored } from "../exchange.ts";
import type { RouteDeps } from "../routes.ts";
import { targetsOf } from "../targets.ts";
import { answerLlamaCompletion, parseLlamaCompletion } from "./completion.ts";
import { answerLlamaEmbedding, parseLlamaEmbedding } from "./embedding.ts";
import { applyTemplate, countChatTokens, propsBody, slotsBody } from "./props.ts";

/** Those that llama-server has besides OpenAI's. */
export function llamaRoutes(deps: RouteDeps): readonly Route[] {
  const route = (method: Route["method"], path: string, handler: Route["handler"]): Route => ({
    method,
    path,
    isPublic: false,
    handler: (call) => {
      deps.lifecycle.expectReady();
      return handler(call);
    },
  });
  return [
    ...["/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"].map((path) =>
      route("POST", path, async (call) => countChatTokens(await call.readWork(), during(call, deps))),
    ),
    route("GET", "/props", () => propsBody(deps)),
    route("GET", "/slots", () => Response.json(slotsBody(deps))),
    route("POST", "/apply-template", async (call) =>
      applyTemplate(await call.readWork(), during(call, deps)),
    ),
    route("POST", "/embedding", async (call) => {
      const request = parseLlamaEmbedding(await call.readWork(), deps.model, targetsOf(call.request.headers));
      tellIgnored(call, request.ignored);
      return answerLlamaEmbedding(exchangeOf(call, deps), during(call, deps), request);
    }),
    route("POST", "/completion", async (call) => {
      const targets = targetsOf(call.request.headers);
      const request = parseLlamaCompletion(await call.readWork(), deps.model, targets);
      tellIgnored(call, request.ignored);
      return answerLlamaCompletion(exchangeOf(call, deps), during(call, deps), request);
    }),
  ];
}
