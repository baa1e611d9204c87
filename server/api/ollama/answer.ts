import { expectFits, type PromptServices, readyChat } from "../../request/prompt.ts";
import { completionTokens } from "../fill.ts";
import { type Exchange, respond } from "../respond.ts";
import { chatShape, ollamaCodec, readyBody, textShape } from "./codec.ts";
import type { OllamaRequest } from "./schema.ts";

/** POST /api/chat */
export const answerOllamaChat = answering(chatShape, "messages");

/** POST /api/generate */
export const answerOllamaGenerate = answering(textShape, "prompt");

function answering(shape: typeof chatShape, param: "messages" | "prompt") {
  return async (
    exchange: Exchange,
    services: PromptServices,
    { model, prompt, generation, stream, unloads }: OllamaRequest,
  ): Promise<Response | object> => {
    if (prompt.kind === "nothing") return readyBody(model, shape, unloads);
    const ready =
      prompt.kind === "chat"
        ? await readyChat(prompt, services, param)
        : { tokens: await completionTokens(prompt.text, prompt.fill, true, services) };
    expectFits(ready.tokens, generation, param, services);
    const codec = () => ollamaCodec(model, shape);
    const prepared = { prompts: [ready.tokens], options: generation, isStream: stream, codec };
    if (!("format" in ready)) return respond(exchange, prepared);
    const { format, ignored } = ready;
    return respond(exchange, { ...prepared, options: { ...generation, format }, ignored });
  };
}
