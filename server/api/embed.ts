/**
 * Embeddings for every wire format: tokenises texts, pools their hidden states and scales them to unit
 * vectors.
 */

import { yieldIfSpent } from "../../base/time-slice.ts";
import type { TokenId } from "../../base/token.ts";
import { throughLayers } from "../../model/dense.ts";
import type { AdapterId } from "../../scheduler/core.ts";
import type { Fleet } from "../../scheduler/fleet/fleet.ts";
import { Embedding, EmbeddingFailure, type EmbeddingRequest, type Pooled } from "../answer/embedding.ts";
import type { RequestedService } from "../answer/generation.ts";
import { ApiError, badRequest, promptTooLong } from "../http/errors.ts";
import { whenAborted } from "../http/route.ts";
import type { Prompt } from "../request/chat-message.ts";
import { type PromptServices, promptTokens } from "../request/prompt.ts";
import { errorOf, openRecord, type WholeExchange } from "./respond.ts";

export interface EmbedServices extends PromptServices {
  readonly fleet: Pick<Fleet, "submit" | "abort">;
}

export interface EmbedRequest {
  readonly inputs: readonly Prompt[];
  /** Name of the request field of the inputs. */
  readonly param: string;
  /** Text before each input. Absent: the model's default prompt. */
  readonly prompt?: string;
  /** Size of each vector: the first `dimensions` components of the model's; null for all. */
  readonly dimensions: number | null;
  readonly service: RequestedService;
  readonly cacheSalt: string;
  readonly adapter: AdapterId;
}

export interface Embedded {
  /** Vectors in the order of the inputs. */
  readonly vectors: readonly Float32Array[];
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

/**
 * Texts of a request that are tokenised concurrently. Long ones go to the encoder thread, which other
 * requests share.
 */
const ENCODED_MAX = 8;

export async function embed(
  exchange: WholeExchange,
  services: EmbedServices,
  request: EmbedRequest,
): Promise<Embedded> {
  return embedTokens(exchange, services, request, await embeddingTokens(request, services));
}

/**
 * Embeds the tokens of a request's inputs. An input without tokens has a hidden state of zeros, as in
 * sentence-transformers.
 */
export async function embedTokens(
  exchange: WholeExchange,
  services: EmbedServices,
  { dimensions, service, cacheSalt, adapter }: EmbedRequest,
  tokens: readonly (readonly TokenId[])[],
): Promise<Embedded> {
  const { pooling, size, layers = [] } = embeddingOf(services);
  exchange.entry?.trace?.asks({ operation: "embeddings" });
  const { states, cachedTokens } = await pool(exchange, services, {
    inputs: tokens.filter(({ length }) => length > 0),
    pooling,
    isWhole: services.model.isEncoder ?? false,
    service,
    cacheSalt,
    adapter,
  });
  const vectors: Float32Array[] = [];
  const left = states.values();
  const hidden = layers[0]?.inputs ?? size;
  for (const { length } of tokens) {
    const state = length === 0 ? new Float32Array(hidden) : left.next().value!;
    const whole = layers.length === 0 ? state : throughLayers(layers, state);
    vectors.push(unitVector(whole.subarray(0, dimensions ?? whole.length)));
    await yieldIfSpent();
  }
  return { vectors, promptTokens: tokensIn(tokens), cachedTokens };
}

/**
 * Pools the hidden states of tokenised texts for one HTTP request, which counts as in flight until they
 * arrive.
 */
export async function pool(
  exchange: WholeExchange,
  { fleet }: Pick<EmbedServices, "fleet">,
  request: Omit<EmbeddingRequest, "tenant">,
): Promise<Pooled> {
  const { lifecycle, cacheSaltFor, telemetry } = exchange.services;
  lifecycle.expectReady(); // tokenising may have taken a while
  const { tenant, signal } = exchange;
  telemetry.ledger.expectWithin(tenant);
  const cacheSalt = cacheSaltFor(tenant, request.cacheSalt);
  const record = openRecord(exchange, request.adapter, request.inputs.length);
  const embedding = new Embedding(fleet, { ...request, tenant, cacheSalt });
  const promptTokens = tokensIn(request.inputs);
  record?.follow({
    get usage() {
      const { cachedTokens } = embedding;
      return { promptTokens, cachedTokens, completionTokens: 0, reasoningTokens: 0 };
    },
    get story() {
      return embedding.story;
    },
    cacheOutcomes: [],
    sequences: [],
  });
  let cut: ApiError | null = null;
  const untrack = lifecycle.track({
    cut: (error) => {
      cut = error;
      embedding.abort("server");
    },
  });
  const unheed = whenAborted(signal, () => embedding.abort("reader"));
  try {
    const pooled = await embedding.done;
    const { cachedTokens } = pooled;
    telemetry.countTokens({ promptTokens, cachedTokens, completionTokens: 0, reasoningTokens: 0 });
    const used = { promptTokens, cachedTokens, completionTokens: 0, deviceMs: embedding.deviceMs };
    telemetry.ledger.charge(tenant, { ...used, outcome: "answered" });
    const engine = embedding.story?.engines.at(-1) ?? null;
    telemetry.countFinished("stop", request.inputs.length, engine);
    telemetry.observeRequest("endToEnd", (performance.now() - exchange.arrivedMs) / 1000, engine);
    record?.ended("answered", null);
    return pooled;
  } catch (error) {
    record?.ended(signal.aborted ? "cancelled" : "failed", (error as Error).message);
    telemetry.countFinished(signal.aborted ? "abort" : "error", request.inputs.length, null);
    throw error instanceof EmbeddingFailure ? (cut ?? errorOf(error.failure, lifecycle)) : error;
  } finally {
    record?.settled();
    untrack();
    unheed();
  }
}

/** Pooling method and size of the served model's embeddings. Throws 501 if the model gives none. */
export function embeddingOf({ model }: Pick<PromptServices, "model">) {
  const { embedding = { refusal: "its engine gives no hidden states" } } = model;
  if (!("refusal" in embedding)) return embedding;
  const message = `this model gives no embeddings: ${embedding.refusal}`;
  throw new ApiError(501, "invalid_request_error", message, {
    apiCode: "embeddings_unsupported",
    shouldRetry: false,
  });
}

/**
 * Tokens of each input, with the special tokens that the model's tokenizer puts around a text. Throws 400 if an
 * input exceeds the context, or all inputs are empty.
 */
export async function embeddingTokens(
  { inputs, param, prompt: asked }: Pick<EmbedRequest, "inputs" | "param" | "prompt">,
  services: PromptServices,
): Promise<readonly (readonly TokenId[])[]> {
  const { contextMax, embedding } = services.model;
  const prompts = embedding !== undefined && "prompts" in embedding ? embedding.prompts : undefined;
  const prompt = asked ?? prompts?.byName[prompts.usual ?? ""] ?? "";
  const all: (readonly TokenId[])[] = [];
  const encodeFrom = async (first: number): Promise<void> => {
    for (let index = first; index < inputs.length; index += ENCODED_MAX) {
      const input = inputs[index]!;
      const text = typeof input === "string" ? prompt + input : input;
      const tokens = await promptTokens(text, true, services);
      const place = inputs.length === 1 ? param : `${param}[${index}]`;
      if (tokens.length > contextMax) throw promptTooLong(contextMax, tokens.length, place);
      all[index] = tokens;
      await yieldIfSpent();
    }
  };
  await Promise.all(Array.from({ length: ENCODED_MAX }, (_, first) => encodeFrom(first)));
  if (all.every(({ length }) => length === 0))
    throw badRequest(`${param} must not be empty: it has no tokens`, param);
  return all;
}

export function tokensIn(texts: readonly (readonly TokenId[])[]): number {
  return texts.reduce((sum, { length }) => sum + length, 0);
}

/** Scales the vector to length 1; leaves a zero vector as it is. */
function unitVector(state: Float32Array): Float32Array {
  const length = Math.sqrt(state.reduce((sum, value) => sum + value * value, 0));
  return length === 0 ? state : state.map((value) => value / length);
}
