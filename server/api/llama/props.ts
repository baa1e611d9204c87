/** llama-server's routes about the server itself. */
import type { DeviceSpec } from "../../../scheduler/device.ts";
import type { Fleet } from "../../../scheduler/fleet/fleet.ts";
import { chatPromptText, chatPromptTokens, type PromptServices } from "../../request/prompt.ts";
import { Fields } from "../fields.ts";
import { parseChatRequest } from "../openai/schema.ts";
import { parseTemplated } from "../openai/tokenize.ts";
import { noTargets } from "../targets.ts";

interface PropsDeps extends PromptServices {
  readonly fleet: Pick<Fleet, "loads">;
  readonly specs: readonly DeviceSpec[];
  readonly version: string;
}

/** GET /props */
export function propsBody({ model, template, specs, version }: PropsDeps): object {
  const { temperature, topK, topP, minP, repetitionPenalty } = model.generationDefaults;
  const params = {
    temperature: temperature ?? 1,
    top_k: topK ?? 0,
    top_p: topP ?? 1,
    min_p: minP ?? 0,
    repeat_penalty: repetitionPenalty ?? 1,
  };
  return {
    default_generation_settings: { n_ctx: model.contextMax, params },
    total_slots: specs.length,
    model_alias: model.names[0],
    chat_template: template?.sourceText(false) ?? "",
    modalities: { vision: false, audio: false },
    build_info: `bunting-${version}`,
  };
}

/** Body of GET /slots. A slot here is an engine, which runs many requests at once. */
export function slotsBody({ fleet, model }: PropsDeps): object[] {
  return fleet.loads().map((load, id) => {
    const running = load?.running ?? 0;
    return {
      id,
      n_ctx: model.contextMax,
      is_processing: running > 0,
      running,
      waiting: load?.waiting ?? 0,
    };
  });
}

/** POST /v1/chat/completions/input_tokens: the tokens that a chat's `usage` would count as its prompt. */
export async function countChatTokens(
  body: Readonly<Record<string, unknown>>,
  services: PromptServices,
): Promise<object> {
  const request = parseChatRequest(body, services.model, noTargets, services.template);
  const tokens = await chatPromptTokens(request, services);
  return { input_tokens: tokens.length };
}

/** POST /apply-template: the text of a chat's prompt. */
export async function applyTemplate(
  body: Readonly<Record<string, unknown>>,
  services: PromptServices,
): Promise<object> {
  const prompt = parseTemplated(new Fields(body), services.template);
  return { prompt: await chatPromptText(prompt, services) };
}
