import { expectFits, type PromptServices, promptTokens, readyChat } from "../prompt.ts";
import { type Exchange, respond } from "../respond.ts";
import { chatShape, ollamaCodec, readyBody, textShape } from "./codec.ts";
import type { OllamaRequest } from "./schema.ts";

/** POST /api/chat */
export function answerOllamaChat(
  exchange: Exchange,
  services: PromptServices,
  request: OllamaRequest,
): Promise<Response | object> {
  return answer(exchange, services, request, chatShape, "messages");
}

/** POST /api/generate */
export function answerOllamaGenerate(
  exchange: Exchange,
  services: PromptServices,
  request: OllamaRequest,
): Promise<Response | object> {
  return answer(exchange, services, request, textShape, "prompt");
}

async function answer(
  exchange: Exchange,
  services: PromptServices,
  { model, prompt, generation, stream, unloads }: OllamaRequest,
  shape: typeof chatShape,
  param: "messages" | "prompt",
): Promise<Response | object> {
  if (prompt.kind === "nothing") return readyBody(model, shape, unloads);
  const ready =
    prompt.kind === "chat"
      ? await readyChat(prompt, services, param)
      : { tokens: await promptTokens(prompt.text, true, services) };
  expectFits(ready.tokens, generation.tokensMax, param, services);
  const options = "format" in ready ? { ...generation, format: ready.format } : generation;
  return respond(exchange, options, [ready.tokens], ollamaCodec(model, shape), stream);
}
