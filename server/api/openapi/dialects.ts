/** Operations of Anthropic's, Ollama's and llama-server's APIs. */

import { serverSettings } from "../../config.ts";
import { parseMessageBatch } from "../anthropic/batches.ts";
import { readRequest } from "../anthropic/line-form.ts";
import { parseCountRequest, parseMessagesRequest } from "../anthropic/schema.ts";
import { Fields, fieldsOf, readingAt } from "../fields.ts";
import { parseLlamaCompletion, parseLlamaInfill } from "../llama/completion.ts";
import { parseLlamaEmbedding } from "../llama/embedding.ts";
import { parseOllamaEmbed, parseOllamaEmbeddings } from "../ollama/embed.ts";
import { parsePull } from "../ollama/pull.ts";
import { nameOf, parseOllamaChat, parseOllamaGenerate } from "../ollama/schema.ts";
import { noTargets } from "../targets.ts";
import * as answers from "./answers.ts";
import { askedTurns, chatTools, generating, generatingInOptions, thinking } from "./examples.ts";
import { json, jsonOrEvents, media, type Operation, type Operations } from "./operation.ts";
import type { RecordedBody } from "./recorded.ts";
import { count, counted, flag, listOf, number, oneOf, type Schema, shape, text } from "./shapes.ts";
import { standIn } from "./stand-in.ts";

const LINES = "application/x-ndjson";
const orLines = (schema: Schema) => ({ status: 200, json: schema, other: LINES });

const messages = [{ role: "user", content: "Hi" }];
const message = { model: "demo", max_tokens: 64, messages };
const tokenCount = {
  read: (body) => parseCountRequest(body, standIn),
  examples: [
    { model: "demo", messages },
    ...askedTurns.map((more) => ({ model: "demo", messages, ...more })),
    ...thinking({ model: "demo", messages }),
  ],
} satisfies RecordedBody;

const answered = {
  read: (body) => parseMessagesRequest(body, standIn),
  examples: [
    message,
    ...askedTurns.map((more) => ({ ...message, ...more })),
    { ...message, metadata: { user_id: "person-1" } },
    ...generating(message),
    ...thinking(message),
  ],
} satisfies RecordedBody;

const { textOrNull } = answers;
const requestsMax = serverSettings.batchLinesMax.default;
const batched = {
  read: (body) => {
    const { requests } = parseMessageBatch(body, requestsMax);
    for (const [index, request] of requests.entries()) {
      const fields = fieldsOf(request, `requests[${index}]`);
      const { body: params } = readRequest(fields);
      readingAt(fields.pathOf("params"), () => parseMessagesRequest(params, standIn));
    }
  },
  examples: [
    { requests: [{ custom_id: "first", params: message }], completion_window: "24h", priority: 0 },
    { requests: answered.examples.map((params, index) => ({ custom_id: String(index), params })) },
  ],
} satisfies RecordedBody;

const batch = shape({
  id: text,
  type: oneOf("message_batch"),
  processing_status: oneOf("in_progress", "canceling", "ended"),
  request_counts: shape(counted("processing", "succeeded", "errored", "canceled", "expired")),
  created_at: text,
  expires_at: text,
  ended_at: textOrNull,
  cancel_initiated_at: textOrNull,
  archived_at: textOrNull,
  results_url: textOrNull,
});

export const anthropicOperations: Operations = {
  "POST /v1/messages": {
    summary: "Answers a conversation",
    body: answered,
    answer: jsonOrEvents(answers.message),
  },
  "POST /v1/messages/batches": {
    summary: "Answers conversations as a job",
    body: batched,
    answer: json(batch),
  },
  "GET /v1/messages/batches": {
    summary: "Lists batches of messages",
    query: { after_id: text, before_id: text, limit: count },
    answer: json(shape({ data: listOf(batch), has_more: flag, first_id: textOrNull, last_id: textOrNull })),
  },
  "GET /v1/messages/batches/{id}": [
    { summary: "Describes a batch of messages", answer: json(batch) },
    {
      path: "/v1/messages/batches/{id}/results",
      summary: "Downloads the results of a batch of messages",
      answer: media("application/x-jsonl"),
    },
  ],
  "POST /v1/messages/batches/{id}": {
    path: "/v1/messages/batches/{id}/cancel",
    summary: "Cancels a batch of messages",
    answer: json(batch),
  },
  "DELETE /v1/messages/batches/{id}": {
    summary: "Deletes a batch of messages that has ended",
    answer: json(shape({ id: text, type: oneOf("message_batch_deleted") })),
  },
  "POST /v1/messages/count_tokens": {
    summary: "Counts the tokens of a conversation",
    body: tokenCount,
    answer: json(shape({ input_tokens: answers.tokens })),
  },
};

const ollamaChat = { model: "demo", messages };
const ollamaText = { model: "demo", prompt: "Hi" };
const past = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "The weather?" },
  {
    role: "assistant",
    content: "",
    thinking: "A call tells.",
    tool_calls: [{ id: "call_1", function: { name: "weather", arguments: { city: "Paris" } } }],
  },
  { role: "tool", tool_name: "weather", tool_call_id: "call_1", content: "18 °C", images: [] },
  { role: "tool", name: "weather", content: "18 °C" },
];
const named = { model: "demo" };
const refused = (summary: string): Operation => ({ summary, answer: { status: 501, json: answers.failure } });

export const ollamaOperations: Operations = {
  "GET /api/version": {
    summary: "Tells the version of Ollama's API",
    answer: json(shape({ version: text })),
  },
  "GET /api/tags": { summary: "Lists the served models", answer: json(answers.ollamaTags) },
  "GET /api/ps": { summary: "Lists the models in memory", answer: json(answers.ollamaRunning) },
  "POST /api/show": {
    summary: "Describes a model",
    body: { read: (body) => nameOf(new Fields(body), standIn.model), examples: [named, { name: "demo" }] },
    answer: json(answers.ollamaShow),
  },
  "POST /api/pull": {
    summary: "Fetches a published model",
    body: {
      read: (body) => parsePull(new Fields(body)),
      examples: [{ ...named, stream: false }, { name: "demo" }],
    },
    answer: orLines(shape({ status: text })),
  },
  "POST /api/create": refused("Refuses to make a model"),
  "POST /api/blobs/{digest}": refused("Refuses to store a part of a model"),
  "POST /api/copy": refused("Refuses to copy a model"),
  "POST /api/push": refused("Refuses to send a model"),
  "DELETE /api/delete": refused("Refuses to delete a model"),
  "POST /api/chat": {
    summary: "Answers a conversation",
    body: {
      read: (body) => parseOllamaChat(body, standIn, noTargets),
      examples: [
        ollamaChat,
        { ...ollamaChat, messages: past, tools: chatTools, stream: false, keep_alive: "5m" },
        { ...ollamaChat, format: "json", logprobs: true, top_logprobs: 2 },
        { name: "demo", messages },
        ...generatingInOptions(ollamaChat),
        ...thinking(ollamaChat),
      ],
    },
    answer: orLines(answers.ollamaChat),
  },
  "POST /api/generate": {
    summary: "Answers a prompt",
    body: {
      read: (body) => parseOllamaGenerate(body, standIn, noTargets),
      examples: [
        ollamaText,
        { ...ollamaText, system: "Be brief.", stream: false, keep_alive: "5m" },
        { ...ollamaText, raw: true },
        ...generatingInOptions(ollamaText),
        ...thinking(ollamaText),
      ],
    },
    answer: orLines(answers.ollamaText),
  },
  "POST /api/embed": {
    summary: "Makes vectors of texts",
    body: {
      read: (body) => parseOllamaEmbed(body, standIn, noTargets),
      examples: [{ model: "demo", input: ["Hi", "Bye"] }],
    },
    answer: json(answers.ollamaEmbed),
  },
  "POST /api/embeddings": {
    summary: "Makes a vector of a text",
    body: { read: (body) => parseOllamaEmbeddings(body, standIn, noTargets), examples: [ollamaText] },
    answer: json(shape({ embedding: listOf(number) })),
  },
};

const prompt = { prompt: "Once upon a time" };
const inObject = { prompt_string: "Hi" };
const gap = { input_prefix: "def add(a, b):\n", input_suffix: "\n" };

export const llamaOperations: Operations = {
  "GET /props": { summary: "Describes model and server", answer: json(answers.props) },
  "GET /slots": { summary: "Lists the engines", answer: json(answers.slots) },
  "POST /embedding": {
    summary: "Makes vectors of texts",
    body: {
      read: (body) => parseLlamaEmbedding(body, standIn, noTargets),
      examples: [
        { content: "Hi", embd_normalize: 2 },
        ...["content", "input"].flatMap((name) => [{ [name]: inObject }, { [name]: [inObject] }]),
      ],
    },
    answer: json(answers.llamaEmbeddings),
  },
  "POST /completion": {
    summary: "Continues a text",
    body: {
      read: (body) => parseLlamaCompletion(body, standIn, noTargets),
      examples: [
        prompt,
        { prompt: inObject, n_probs: 2, response_fields: ["content"] },
        { prompt: [inObject] },
        { ...prompt, stream: true, return_progress: true },
        ...generating(prompt),
      ],
    },
    answer: jsonOrEvents(answers.llamaCompletion),
  },
  "POST /infill": {
    summary: "Fills a gap in a text",
    body: {
      read: (body) => parseLlamaInfill(body, standIn, noTargets),
      examples: [
        gap,
        { ...gap, prompt: "    ", input_extra: [{ filename: "sum.py", text: "" }] },
        ...generating(gap),
      ],
    },
    answer: jsonOrEvents(answers.llamaCompletion),
  },
};
