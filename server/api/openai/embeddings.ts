import { badRequest } from "../../http/errors.ts";
import { jsonResponse, LazyList } from "../../http/json/slices.ts";
import { requestLimits } from "../../request/limits.ts";
import { adapterOf } from "../../request/served-model.ts";
import { type Embedded, type EmbedRequest, type EmbedServices, embed, embeddingOf } from "../embed.ts";
import { embeddingPrompt } from "../embedding-prompt.ts";
import { Fields, refusal } from "../fields.ts";
import type { WholeExchange } from "../respond.ts";
import { noTargets, type Targets } from "../targets.ts";
import { promptKind, promptsOf } from "./inputs.ts";
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
  const format = fields.raw("encoding_format", { enum: ["float", "base64"] }) ?? "float";
  if (format !== "float" && format !== "base64") {
    throw refusal("encoding_format", "float or base64", format);
  }
  const prompt = embeddingPrompt(fields, services);
  const inputs = promptsOf(
    fields.raw("input", promptKind),
    services.model,
    "input",
    requestLimits.embeddingInputsMax,
  );
  if (prompt !== undefined && prompt !== "" && inputs.some((input) => typeof input !== "string"))
    throw badRequest("a prompt goes before texts, and input has tokens", "input");
  return {
    model,
    inputs,
    param: "input",
    ...(prompt === undefined ? {} : { prompt }),
    dimensions: fields.integer("dimensions", { min: 1, max: size }) ?? null,
    format,
    service: serviceOf(fields, targets).service,
    cacheSalt: cacheSaltOf(fields),
    adapter: adapterOf(model, services.model),
    ignored: settleTheRest(fields),
  };
}

/** POST /v1/embeddings */
export async function answerEmbeddings(
  exchange: WholeExchange,
  services: EmbedServices,
  request: EmbeddingsRequest,
): Promise<Response> {
  return jsonResponse(embeddingsBody(request, await embed(exchange, services, request)));
}

/** Body of the answer. */
export function embeddingsBody(
  { model, format }: EmbeddingsRequest,
  { vectors, promptTokens, cachedTokens }: Embedded,
): object {
  const data = new LazyList(vectors, (vector, index) => {
    const embedding = format === "base64" ? base64Of(vector) : Array.from(vector);
    return { object: "embedding", index, embedding };
  });
  const usage = {
    prompt_tokens: promptTokens,
    total_tokens: promptTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
  return { object: "list", data, model, usage };
}

/** The vector's 32-bit floats in base64, little-endian as on every supported machine. */
function base64Of(vector: Float32Array): string {
  return Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString("base64");
}
