import type { Route } from "../../http/route.ts";
import { during, exchangeOf, tellIgnored } from "../exchange.ts";
import type { RouteDeps } from "../routes.ts";
import { targetsOf } from "../targets.ts";
import { answerOllamaChat, answerOllamaGenerate } from "./answer.ts";
import {
  answerOllamaEmbed,
  answerOllamaEmbeddings,
  parseOllamaEmbed,
  parseOllamaEmbeddings,
} from "./embed.ts";
import { ollamaErrorResponse } from "./errors.ts";
import { psBody, pullBody, refuseToStore, showBody, tagsBody, versionBody } from "./models.ts";
import { parseOllamaChat, parseOllamaGenerate } from "./schema.ts";

/** Ollama's, for programs that know nothing else. */
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
    errorResponse: ollamaErrorResponse,
  });
  const asks =
    (parse: typeof parseOllamaChat, answer: typeof answerOllamaChat): Route["handler"] =>
    async (call) => {
      const request = parse(await call.readWork(), deps, targetsOf(call.request.headers));
      tellIgnored(call, request.ignored);
      return answer(exchangeOf(call, deps), during(call, deps), request);
    };
  const embeds =
    (parse: typeof parseOllamaEmbed, answer: typeof answerOllamaEmbed): Route["handler"] =>
    async (call) => {
      const request = parse(await call.readWork(), deps, targetsOf(call.request.headers));
      tellIgnored(call, request.ignored);
      return answer(exchangeOf(call, deps), during(call, deps), request);
    };
  return [
    route("GET", "version", versionBody),
    route("GET", "tags", () => tagsBody(deps, startedSeconds)),
    route("GET", "ps", () => psBody(deps)),
    route("POST", "show", async (call) => showBody(await call.readWork(), deps, startedSeconds)),
    route("POST", "pull", async (call) => pullBody(await call.readWork(), deps)),
    ...["create", "copy", "push"].map((path) => route("POST", path, refuseToStore)),
    route("DELETE", "delete", refuseToStore),
    route("POST", "chat", asks(parseOllamaChat, answerOllamaChat)),
    route("POST", "generate", asks(parseOllamaGenerate, answerOllamaGenerate)),
    route("POST", "embed", embeds(parseOllamaEmbed, answerOllamaEmbed)),
    route("POST", "embeddings", embeds(parseOllamaEmbeddings, answerOllamaEmbeddings)),
  ];
}
