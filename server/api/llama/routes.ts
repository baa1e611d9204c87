import { adminsAlone, type Route } from "../../http/route.ts";
import { asking, during } from "../exchange.ts";
import type { RouteDeps } from "../route-deps.ts";
import { answerLlamaCompletion, parseLlamaCompletion, parseLlamaInfill } from "./completion.ts";
import { answerLlamaEmbedding, parseLlamaEmbedding } from "./embedding.ts";
import { applyTemplate, countChatTokens, propsBody, slotsBody } from "./props.ts";

/** llama-server's routes beyond OpenAI's. */
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
    route(
      "GET",
      "/slots",
      adminsAlone(() => Response.json(slotsBody(deps))),
    ),
    route("POST", "/apply-template", async (call) =>
      applyTemplate(await call.readWork(), during(call, deps)),
    ),
    route("POST", "/embedding", asking(deps, parseLlamaEmbedding, answerLlamaEmbedding)),
    route("POST", "/completion", asking(deps, parseLlamaCompletion, answerLlamaCompletion)),
    route("POST", "/infill", asking(deps, parseLlamaInfill, answerLlamaCompletion)),
  ];
}
