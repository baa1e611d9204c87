/** Ollama's embeddings: POST /api/embed and its predecessor /api/embeddings. */

import { requestLimits } from "../../request/limits.ts";
import { adapterOf } from "../../request/served-model.ts";
import { type EmbedRequest, type EmbedServices, embed, embeddingOf } from "../embed.ts";
import { Fields, refusal, reportable, textKind } from "../fields.ts";
import { promptsOf } from "../openai/inputs.ts";
import { serviceWith } from "../openai/service.ts";
import type { Exchange } from "../respond.ts";
import type { Targets } from "../targets.ts";
import { nanos } from "./codec.ts";
import { nameOf } from "./schema.ts";

export interface OllamaEmbedRequest extends EmbedRequest {
  /** Model name from the request. */
  readonly model: string;
  /** Names of accepted fields without effect. */
  readonly ignored: readonly string[];
}

type Body = Readonly<Record<string, unknown>>;
type Served = Pick<EmbedServices, "model">;

/**
 * POST /api/embed: one or several texts. Throws 400 for a text that is too long, whatever `truncate` says.
 */
export function parseOllamaEmbed(body: Body, served: Served, targets: Targets): OllamaEmbedRequest {
  const fields = new Fields(body);
  const given = fields.raw("input", { type: ["string", "array"], items: textKind });
  const isText =
    typeof given === "string" || (Array.isArray(given) && given.every((one) => typeof one === "string"));
  if (!isText) throw refusal("input", "a string or an array of strings", given);
  const { size } = embeddingOf(served);
  const dimensions = fields.integer("dimensions", { min: 1, max: size }) ?? null;
  return parse(fields, served, targets, { given, param: "input", dimensions });
}

/** POST /api/embeddings: one text. */
export function parseOllamaEmbeddings(body: Body, served: Served, targets: Targets): OllamaEmbedRequest {
  const fields = new Fields(body);
  return parse(fields, served, targets, {
    given: fields.requiredString("prompt"),
    param: "prompt",
    dimensions: null,
  });
}

interface Asked {
  readonly given: unknown;
  readonly param: string;
  readonly dimensions: number | null;
}

function parse(
  fields: Fields,
  { model }: Served,
  targets: Targets,
  { given, param, dimensions }: Asked,
): OllamaEmbedRequest {
  const name = nameOf(fields, model);
  // Ollama answers an empty list with an empty list.
  const inputs =
    Array.isArray(given) && given.length === 0
      ? []
      : promptsOf(given, model, param, requestLimits.embeddingInputsMax);
  const ignored = ["keep_alive", "options", "truncate"].filter(
    (field) => fields.raw(field) !== undefined && !(field === "keep_alive" && model.keepsAlive === true),
  );
  return {
    model: name,
    inputs,
    param,
    dimensions,
    service: serviceWith(targets),
    cacheSalt: "",
    adapter: adapterOf(name, model),
    ignored: reportable([...ignored, ...fields.unread()]),
  };
}

export async function answerOllamaEmbed(
  exchange: Exchange,
  services: EmbedServices,
  request: OllamaEmbedRequest,
): Promise<object> {
  const isNothing = request.inputs.length === 0;
  const { vectors, promptTokens } = isNothing
    ? { vectors: [], promptTokens: 0 }
    : await embed(exchange, services, request);
  return {
    model: request.model,
    embeddings: vectors.map((vector) => Array.from(vector)),
    total_duration: nanos(performance.now() - exchange.arrivedMs),
    load_duration: nanos(exchange.loadMs ?? 0),
    prompt_eval_count: promptTokens,
  };
}

export async function answerOllamaEmbeddings(
  exchange: Exchange,
  services: EmbedServices,
  request: OllamaEmbedRequest,
): Promise<object> {
  const { vectors } = await embed(exchange, services, request);
  return { embedding: Array.from(vectors[0]!) };
}
