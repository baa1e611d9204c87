import { yieldIfSpent } from "../../../base/time-slice.ts";
import { requestLimits } from "../../request/limits.ts";
import { type EmbedRequest, type EmbedServices, embed, embeddingOf } from "../embed.ts";
import { Fields, refusal } from "../fields.ts";
import type { Exchange } from "../respond.ts";
import { noTargets, type Targets } from "../targets.ts";
import { promptsOf } from "./inputs.ts";
import { cacheSaltOf } from "./sampling.ts";
import { modelOf } from "./schema.ts";
import { serviceOf } from "./service.ts";
import { settleTheRest } from "./support.ts";

export interface EmbeddingsRequest extends EmbedRequest {
  /** Model name from the request; one of the served names. */
  readonly model: string;
  readonly format: "float" | "base64";
  /** Names of accepted fields without effect. */
  readonly ignored: readonly string[];
}

export function parseEmbeddingsRequest(
  body: Readonly<Record<string, unknown>>,
  services: Pick<EmbedServices, "model">,
  targets: Targets = noTargets,
): EmbeddingsRequest {
  const fields = new Fields(body);
  const model = modelOf(fields, services.model);
  const { size } = embeddingOf(services);
  const format = fields.string("encoding_format") ?? "float";
  if (format !== "float" && format !== "base64") {
    throw refusal("encoding_format", "float or base64", format);
  }
  return {
    model,
    inputs: promptsOf(fields.raw("input"), services.model, "input", requestLimits.embeddingInputsMax),
    param: "input",
    dimensions: fields.integer("dimensions", { min: 1, max: size }) ?? null,
    format,
    service: serviceOf(fields, targets).service,
    cacheSalt: cacheSaltOf(fields),
    ignored: settleTheRest(fields),
  };
}

/** POST /v1/embeddings */
export async function answerEmbeddings(
  exchange: Exchange,
  services: EmbedServices,
  request: EmbeddingsRequest,
): Promise<Response> {
  const { vectors, promptTokens, cachedTokens } = await embed(exchange, services, request);
  const data: string[] = [];
  for (const [index, vector] of vectors.entries()) {
    const embedding = request.format === "base64" ? base64Of(vector) : Array.from(vector);
    data.push(JSON.stringify({ object: "embedding", index, embedding }));
    await yieldIfSpent(); // a million numbers take a while to write
  }
  const usage = {
    prompt_tokens: promptTokens,
    total_tokens: promptTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
  const rest = JSON.stringify({ model: request.model, usage }).slice(1);
  return new Response(`{"object":"list","data":[${data.join(",")}],${rest}`, {
    headers: { "content-type": "application/json;charset=utf-8" },
  });
}

/** The vector's 32-bit floats in base64, little-endian as on every supported machine. */
function base64Of(vector: Float32Array): string {
  return Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString("base64");
}
