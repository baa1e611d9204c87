/** Estimates of when an answer would begin and end. */
import type { Range } from "../../scheduler/explain/calibration.ts";
import type { Fleet } from "../../scheduler/fleet/fleet.ts";
import type { PromptServices } from "../request/prompt.ts";
import { prepareChat } from "./openai/chat.ts";
import type { ChatRequest } from "./openai/schema.ts";

/** POST /v1/estimate */
export async function answerEstimate(
  services: Parameters<typeof prepareChat>[0] & { readonly fleet: Pick<Fleet, "outlook"> } & PromptServices,
  request: ChatRequest,
): Promise<object> {
  const { prompts, options } = await prepareChat(services, request);
  const promptTokens = prompts[0]!.length;
  const { fleet, model } = services;
  const room = model.contextMax - promptTokens;
  const tokensMax = Math.max(1, Math.min(options.tokensMax ?? room, room));
  const estimate = fleet.outlook.estimate(promptTokens, tokensMax, options.service.objective);
  return {
    object: "estimate",
    model: request.model,
    prompt_tokens: promptTokens,
    position: estimate.position,
    first_token_ms: rangeJson(estimate.first),
    end_ms: rangeJson(estimate.end),
  };
}

function rangeJson({ expectedMs, lowMs, highMs }: Range): object {
  return { expected: Math.round(expectedMs), low: Math.round(lowMs), high: Math.round(highMs) };
}
