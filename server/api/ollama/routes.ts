import type { Route } from "../../http/route.ts";
import { asking } from "../exchange.ts";
import type { RouteDeps } from "../route-deps.ts";
import { answerOllamaChat, answerOllamaGenerate } from "./answer.ts";
import {
  answerOllamaEmbed,
  answerOllamaEmbeddings,
  parseOllamaEmbed,
  parseOllamaEmbeddings,
} from "./embed.ts";
import { psBody, pullBody, refuseToStore, showBody, tagsBody, versionBody } from "./models.ts";
import { parseOllamaChat, parseOllamaGenerate } from "./schema.ts";

/** Ollama's routes, for programs that speak no other API. */
export function ollamaRoutes(deps: RouteDeps, startedSeconds: number): readonly Route[] {
  const route = (method: Route["method"], path: string, handler: Route["handler"]): Route => ({
    method,
    path: `/api/${path}`,
    isPublic: false,
    handler: (call) => {
      deps.lifecycle.expectReady();
      return handler(call);
    },
    takesAnyType: true,
  });
  return [
    route("GET", "version", versionBody),
    route("GET", "tags", () => tagsBody(deps, startedSeconds)),
    route("GET", "ps", () => psBody(deps)),
    route("POST", "show", async (call) => showBody(await call.readWork(), deps, startedSeconds)),
    route("POST", "pull", async (call) => pullBody(await call.readWork(), deps)),
    ...["create", "copy", "push"].map((path) => route("POST", path, refuseToStore)),
    route("DELETE", "delete", refuseToStore),
    route("POST", "chat", asking(deps, parseOllamaChat, answerOllamaChat)),
    route("POST", "generate", asking(deps, parseOllamaGenerate, answerOllamaGenerate)),
    route("POST", "embed", asking(deps, parseOllamaEmbed, answerOllamaEmbed)),
    route("POST", "embeddings", asking(deps, parseOllamaEmbeddings, answerOllamaEmbeddings)),
  ];
}
