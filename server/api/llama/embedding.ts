import { requestLimits } from "../../request/limits.ts";
import { adapterOf } from "../../request/served-model.ts";
import { type EmbedRequest, type EmbedServices, embed } from "../embed.ts";
import { Fields, refusal } from "../fields.ts";
import { promptsOf } from "../openai/inputs.ts";
import { modelOf } from "../openai/schema.ts";
import { serviceWith } from "../openai/service.ts";
import { settleTheRest } from "../openai/support.ts";
import type { Exchange } from "../respond.ts";
import type { Targets } from "../targets.ts";
import { llamaPromptKind, plainPrompts } from "./prompts.ts";

interface LlamaEmbeddingRequest extends EmbedRequest {
  /** Names of accepted fields without effect. */
  readonly ignored: readonly string[];
}

/** POST /embedding: texts in `content` or `input`. */
export function parseLlamaEmbedding(
  body: Readonly<Record<string, unknown>>,
  { model }: Pick<EmbedServices, "model">,
  targets: Targets,
): LlamaEmbeddingRequest {
  const fields = new Fields(body);
  const param = fields.has("input") ? "input" : "content";
  const norm = fields.raw("embd_normalize", { enum: [2] }) ?? 2;
  if (norm !== 2) throw refusal("embd_normalize", "2: vectors have a Euclidean length of 1", norm);
  return {
    inputs: promptsOf(
      plainPrompts(fields.raw(param, llamaPromptKind), param, model, requestLimits.embeddingInputsMax),
      model,
      param,
      requestLimits.embeddingInputsMax,
    ),
    param,
    dimensions: null,
    service: serviceWith(targets),
    cacheSalt: "",
    adapter: adapterOf(modelOf(fields, model), model),
    ignored: settleTheRest(fields),
  };
}

export async function answerLlamaEmbedding(
  exchange: Exchange,
  services: EmbedServices,
  request: LlamaEmbeddingRequest,
): Promise<Response> {
  const { vectors } = await embed(exchange, services, request);
  return Response.json(vectors.map((vector, index) => ({ index, embedding: [Array.from(vector)] })));
}
