import type { Route } from "../../http/route.ts";
import { expectFits, type PromptServices, readyChat } from "../../request/prompt.ts";
import { asking } from "../exchange.ts";
import { completionTokens } from "../fill.ts";
import { type Exchange, preparedChat, respond } from "../respond.ts";
import type { RouteDeps } from "../route-deps.ts";
import { chatShape, ollamaCodec, readyBody, textShape } from "./codec.ts";
import {
  answerOllamaEmbed,
  answerOllamaEmbeddings,
  parseOllamaEmbed,
  parseOllamaEmbeddings,
} from "./embed.ts";
import { psBody, refuseToStore, showBody, storeRows, tagsBody, versionBody } from "./models.ts";
import { answerPull } from "./pull.ts";
import { type OllamaRequest, parseOllamaChat, parseOllamaGenerate } from "./schema.ts";

/** Ollama's routes, for programs that speak no other API. */
export function ollamaRoutes(deps: RouteDeps, startedSeconds: number): readonly Route[] {
  const route = (method: Route["method"], path: string, handler: Route["handler"]): Route => ({
    method,
    path,
    isPublic: false,
    handler: (call) => {
      deps.lifecycle.expectReady();
      return handler(call);
    },
    takesAnyType: true,
  });
  return [
    route("GET", "/api/version", versionBody),
    route("GET", "/api/tags", () => tagsBody(deps, startedSeconds)),
    route("GET", "/api/ps", () => psBody(deps)),
    route("POST", "/api/show", async (call) => showBody(await call.readWork(), deps, startedSeconds)),
    route("POST", "/api/pull", (call) => answerPull(call, deps)),
    ...storeRows.map(([method, path]) => route(method, path, refuseToStore)),
    route("POST", "/api/chat", asking(deps, parseOllamaChat, answerOllamaChat)),
    route("POST", "/api/generate", asking(deps, parseOllamaGenerate, answerOllamaGenerate)),
    route("POST", "/api/embed", asking(deps, parseOllamaEmbed, answerOllamaEmbed)),
    route("POST", "/api/embeddings", asking(deps, parseOllamaEmbeddings, answerOllamaEmbeddings)),
  ];
}

/** POST /api/chat */
const answerOllamaChat = answering(chatShape, "messages");

/** POST /api/generate */
const answerOllamaGenerate = answering(textShape, "prompt");

function answering(shape: typeof chatShape, param: "messages" | "prompt") {
  return async (
    exchange: Exchange,
    services: PromptServices,
    request: OllamaRequest,
  ): Promise<Response | object> => {
    const { model, prompt, generation, stream: isStream, unloads } = request;
    if (prompt.kind === "nothing") return readyBody(model, shape, unloads);
    const ready =
      prompt.kind === "chat"
        ? await readyChat(prompt, services, param)
        : { tokens: await completionTokens(prompt.text, prompt.fill, true, services) };
    expectFits(ready.tokens, generation, param, services);
    const codec = () => ollamaCodec(model, shape);
    if ("format" in ready) return respond(exchange, preparedChat(request, ready, codec));
    return respond(exchange, { prompts: [ready.tokens], options: generation, isStream, codec });
  };
}
