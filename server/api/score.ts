/** Scores of pairs of texts: POST /v1/rerank as in Jina, Cohere and vLLM, POST /v1/score as in vLLM. */

import { yieldIfSpent } from "../../base/time-slice.ts";
import type { TokenId } from "../../base/token.ts";
import { throughLayers } from "../../model/dense.ts";
import type { TokenPair } from "../../text/post-processor.ts";
import type { RequestedService } from "../answer/generation.ts";
import { ApiError, badRequest, promptTooLong } from "../http/errors.ts";
import { requestLimits } from "../request/limits.ts";
import { chatWritten, promptTokens, refuseBusy, refuseEnormous } from "../request/prompt.ts";
import { adapterOf } from "../request/served-model.ts";
import { type EmbedServices, pool, tokensIn } from "./embed.ts";
import { Fields, fieldsOf, refusal, reportable } from "./fields.ts";
import { modelOf } from "./openai/schema.ts";
import { serviceWith } from "./openai/service.ts";
import type { Exchange } from "./respond.ts";
import type { Targets } from "./targets.ts";

type Body = Readonly<Record<string, unknown>>;

/** A query and the document to compare with it. */
interface Pair {
  readonly query: string;
  readonly document: string;
  /** Name of the request field of the document. */
  readonly param: string;
}

interface ScoreRequest {
  readonly model: string;
  readonly pairs: readonly Pair[];
  readonly service: RequestedService;
  readonly ignored: readonly string[];
}

export interface RerankRequest extends ScoreRequest {
  /** Number of the best documents to return. */
  readonly best: number;
  readonly returnsDocuments: boolean;
}

/** POST /v1/rerank: a query and documents. */
export function parseRerank(
  body: Body,
  { model }: Pick<EmbedServices, "model">,
  targets: Targets,
): RerankRequest {
  const fields = new Fields(body);
  const query = fields.requiredString("query");
  const documents = textsOf(fields, "documents");
  const best = fields.integer("top_n", { min: 0, max: Number.MAX_SAFE_INTEGER }) ?? 0;
  return {
    model: modelOf(fields, model),
    pairs: documents.map((document, i) => ({ query, document, param: `documents[${i}]` })),
    best: best === 0 ? documents.length : best,
    returnsDocuments: fields.boolean("return_documents") ?? true,
    service: serviceWith(targets),
    ignored: reportable(fields.unread()),
  };
}

/** POST /v1/score: one text and one or several others, or two lists of equal length. */
export function parseScore(
  body: Body,
  { model }: Pick<EmbedServices, "model">,
  targets: Targets,
): ScoreRequest {
  const fields = new Fields(body);
  const first = textsOf(fields, "text_1");
  const second = textsOf(fields, "text_2");
  if (first.length !== 1 && first.length !== second.length) {
    throw badRequest(
      `text_1 holds ${first.length} texts and text_2 ${second.length}: wanted one, or as many`,
      "text_1",
    );
  }
  return {
    model: modelOf(fields, model),
    pairs: second.map((document, i) => {
      return { query: first.length === 1 ? first[0]! : first[i]!, document, param: `text_2[${i}]` };
    }),
    service: serviceWith(targets),
    ignored: reportable(fields.unread()),
  };
}

/** A text, or a list of texts or of objects with a field `text`. */
function textsOf(fields: Fields, name: string): string[] {
  const items = { type: ["string", "object"] };
  const given = fields.raw(name, { type: ["string", "array"], items });
  if (typeof given === "string") return [given];
  const list = fields.list(name, requestLimits.embeddingInputsMax, items);
  if (list === undefined || list.length === 0) throw refusal(name, "a string or an array of strings", given);
  return list.map((item, index) => {
    if (typeof item === "string") return item;
    return fieldsOf(item, `${name}[${index}]`).requiredString("text");
  });
}

export async function answerRerank(
  exchange: Exchange,
  services: EmbedServices,
  request: RerankRequest,
): Promise<object> {
  const { scores, usage } = await scoresOf(exchange, services, request);
  const results = request.pairs.map(({ document }, index) => ({
    index,
    relevance_score: scores[index]!,
    ...(request.returnsDocuments ? { document: { text: document } } : {}),
  }));
  results.sort((a, b) => b.relevance_score - a.relevance_score);
  return { id: idOf("rerank"), model: request.model, usage, results: results.slice(0, request.best) };
}

export async function answerScore(
  exchange: Exchange,
  services: EmbedServices,
  request: ScoreRequest,
): Promise<object> {
  const { scores, usage } = await scoresOf(exchange, services, request);
  return {
    id: idOf("score"),
    object: "list",
    created: Math.floor(Date.now() / 1000),
    model: request.model,
    data: scores.map((score, index) => ({ index, object: "score", score })),
    usage,
  };
}

function idOf(kind: string): string {
  return `${kind}-${crypto.randomUUID().replaceAll("-", "")}`;
}

async function scoresOf(
  exchange: Exchange,
  services: EmbedServices,
  { model, pairs, service }: ScoreRequest,
) {
  const { weights, bias = 0, pooling = "last", layers = [] } = headOf(services);
  exchange.entry?.trace?.asks({ operation: "score" });
  const isWhole = services.model.isEncoder ?? false;
  const texts: TokenPair[] = [];
  for (const pair of pairs) {
    texts.push(await tokensOf(pair, services));
    await yieldIfSpent();
  }
  const inputs = texts.map(({ tokens }) => tokens);
  const { states } = await pool(exchange, services, {
    inputs,
    pooling,
    isWhole,
    ...(isWhole ? { secondAt: texts.map(({ secondAt }) => secondAt) } : {}),
    service,
    cacheSalt: "",
    adapter: adapterOf(model, services.model),
  });
  const tokens = tokensIn(inputs);
  const scores: number[] = [];
  for (const state of states) {
    const logit = throughLayers(layers, state).reduce((sum, value, i) => sum + value * weights[i]!, bias);
    scores.push(1 / (1 + Math.exp(-logit)));
    await yieldIfSpent();
  }
  return { scores, usage: { prompt_tokens: tokens, total_tokens: tokens } };
}

/** Weights of the model's score head. Throws 501 if the model gives no scores. */
function headOf({ model }: EmbedServices) {
  const { score = { refusal: "its engine gives no hidden states" } } = model;
  if (!("refusal" in score)) return score;
  const message = `this model gives no scores: ${score.refusal}`;
  throw new ApiError(501, "invalid_request_error", message, {
    apiCode: "scores_unsupported",
    shouldRetry: false,
  });
}

/**
 * Tokens of a pair. The chat template writes them if it knows the roles `query` and `document`. Otherwise an
 * encoder's tokenizer adds its special tokens, and for other models the two texts are concatenated. Throws 400 if
 * the pair is empty or exceeds the context.
 */
async function tokensOf({ query, document, param }: Pair, services: EmbedServices): Promise<TokenPair> {
  const { template, model } = services;
  for (const text of [query, document]) refuseEnormous([text], param, services);
  const hasRoles = ["query", "document"].every((role) => template?.mentions(role, false));
  const pair =
    template !== null && hasRoles
      ? { tokens: await writtenTokens({ query, document, param }, services), secondAt: 0 }
      : await besideEachOther(query, document, services);
  const { tokens } = pair;
  if (tokens.length === 0)
    throw badRequest(`${param} must not be empty: there are no tokens to score`, param);
  if (tokens.length > model.contextMax) throw promptTooLong(model.contextMax, tokens.length, param);
  return pair;
}

async function besideEachOther(query: string, document: string, services: EmbedServices): Promise<TokenPair> {
  const first = await promptTokens(query, false, services);
  const second = await promptTokens(document, false, services);
  if (services.model.isEncoder) return services.tokenizer.pair(first, second);
  return { tokens: [...first, ...second], secondAt: 0 };
}

async function writtenTokens(
  { query, document, param }: Pair,
  services: EmbedServices,
): Promise<readonly TokenId[]> {
  const messages = Object.entries({ query, document }).map(([role, content]) => ({ role, content }));
  const options = { addGenerationPrompt: true };
  const job = { messages, options, tokensMax: services.model.contextMax, wantsTokens: true };
  return chatWritten(await services.encoder.writeChat(job).catch(refuseBusy), param, services).tokens;
}
