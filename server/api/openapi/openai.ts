/** Operations of OpenAI's API, and those that vLLM adds to it. */

import { Fields } from "../fields.ts";
import { parseBatch } from "../openai/batches.ts";
import { parseEmbeddingsRequest } from "../openai/embeddings.ts";
import { parseChatRequest, parseCompletionRequest } from "../openai/schema.ts";
import { parseDetokenize, parseTemplated, parseTokenize } from "../openai/tokenize.ts";
import { parseCompactRequest } from "../responses/compact.ts";
import { parseAddedItems, parseConversation, parseConversationUpdate } from "../responses/conversations.ts";
import { parseResponsesRequest } from "../responses/schema.ts";
import { parseRerank, parseScore } from "../score.ts";
import { noTargets } from "../targets.ts";
import * as answers from "./answers.ts";
import {
  chatChoices,
  chatMessages,
  chatTools,
  generating,
  responseChoices,
  responseItems,
  responseTools,
  thinking,
} from "./examples.ts";
import { deleted, json, jsonOrEvents, media, type Operations, pageOf, pageParameters } from "./operation.ts";
import { count, flag, mapOf, oneOf, shape, text } from "./shapes.ts";
import { standIn } from "./stand-in.ts";

const { model, template } = standIn;
const hi = { messages: [{ role: "user", content: "Hi" }] };
const plainChat = { model: "demo", ...hi };

const chat = {
  read: (body: Readonly<Record<string, unknown>>) => parseChatRequest(body, model, noTargets, template),
  examples: [
    plainChat,
    { ...plainChat, messages: chatMessages, tools: chatTools, parallel_tool_calls: false },
    ...chatChoices.map((tool_choice) => ({ ...plainChat, tools: chatTools, tool_choice })),
    { ...plainChat, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } },
    { ...plainChat, prediction: { type: "content", content: [{ type: "text", text: "Hello" }] } },
    { ...plainChat, logprobs: true, top_logprobs: 2, metadata: { user_id: "person-1" } },
    { ...plainChat, continue_final_message: true },
    ...generating(plainChat),
    ...thinking(plainChat),
  ],
} as const;

const plainPrompt = { model: "demo", prompt: "Once upon a time" };
const completion = {
  read: (body: Readonly<Record<string, unknown>>) => parseCompletionRequest(body, model),
  examples: [
    plainPrompt,
    { ...plainPrompt, tools: [], stream: true, stream_options: { include_usage: true } },
    { ...plainPrompt, echo: true, logprobs: 1 },
    ...generating(plainPrompt),
  ],
} as const;

const plainInput = { model: "demo", input: "Hi" };
const response = {
  read: (body: Readonly<Record<string, unknown>>) => parseResponsesRequest(body, standIn),
  examples: [
    plainInput,
    { ...plainInput, input: responseItems, instructions: "Be brief.", tools: responseTools },
    ...responseChoices.map((tool_choice) => ({ ...plainInput, tools: responseTools, tool_choice })),
    { ...plainInput, text: { format: { type: "json_schema", name: "any", schema: {} }, verbosity: "low" } },
    { ...plainInput, include: ["reasoning.encrypted_content"], metadata: { about: "tests" } },
    { ...plainInput, stream: true, stream_options: {} },
    { ...plainInput, conversation: "conv_1" },
    { ...plainInput, conversation: { id: "conv_1" } },
    ...generating(plainInput),
    ...thinking(plainInput),
  ],
} as const;

const compaction = {
  read: (body: Readonly<Record<string, unknown>>) => parseCompactRequest(body, standIn),
  examples: [
    plainInput,
    { ...plainInput, input: responseItems, instructions: "Be brief.", tools: responseTools },
    { ...plainInput, conversation: { id: "conv_1" } },
    ...generating(plainInput),
    ...thinking(plainInput),
  ],
} as const;

const conversation = shape({
  id: text,
  object: oneOf("conversation"),
  created_at: count,
  metadata: mapOf(text),
});
const items = { items: responseItems };

export const openaiOperations: Operations = {
  "GET /v1/models": { summary: "Lists the served models", answer: json(answers.modelList) },
  "GET /v1/models/{id}": { summary: "Describes a model", answer: json(answers.model) },
  "POST /v1/chat/completions": {
    summary: "Answers a conversation",
    body: chat,
    answer: jsonOrEvents(answers.chat),
  },
  "POST /v1/chat/completions/input_tokens": {
    summary: "Counts the tokens of a conversation",
    body: chat,
    answer: json(shape({ input_tokens: answers.tokens })),
  },
  "POST /v1/completions": {
    summary: "Continues a text",
    body: completion,
    answer: jsonOrEvents(answers.completion),
  },
  "POST /v1/estimate": {
    summary: "Estimates when a conversation would be answered",
    body: chat,
    answer: json(answers.estimate),
  },
  "POST /v1/embeddings": {
    summary: "Makes vectors of texts",
    body: {
      read: (body) => parseEmbeddingsRequest(body, standIn),
      examples: [
        { model: "demo", input: ["Hi", "Bye"], encoding_format: "float" },
        { model: "demo", input: "Hi", prompt: "query: " },
      ],
    },
    answer: json(answers.embeddings),
  },
  "POST /v1/rerank": {
    summary: "Orders documents by their fit to a query",
    body: {
      read: (body) => parseRerank(body, standIn, noTargets),
      examples: [{ model: "demo", query: "capital", documents: ["Paris", { text: "Rome" }], top_n: 1 }],
    },
    answer: json(answers.rerank),
  },
  "POST /v1/score": {
    summary: "Scores pairs of texts",
    body: {
      read: (body) => parseScore(body, standIn, noTargets),
      examples: [
        { model: "demo", text_1: "capital", text_2: ["Paris", { text: "Rome" }] },
        { model: "demo", text_1: [{ text: "capital" }], text_2: "Paris" },
      ],
    },
    answer: json(answers.score),
  },
  "POST /v1/responses": {
    summary: "Makes a response",
    body: response,
    answer: jsonOrEvents(answers.response),
  },
  "POST /v1/responses/{id}": [
    {
      path: "/v1/responses/input_tokens",
      summary: "Counts the tokens of a response's input",
      body: response,
      answer: json(shape({ object: text, input_tokens: answers.tokens })),
    },
    {
      path: "/v1/responses/compact",
      summary: "Replaces a conversation by its messages and a summary of the rest",
      body: compaction,
      answer: json(answers.compaction),
    },
    {
      path: "/v1/responses/{id}/cancel",
      summary: "Cancels a response in the background",
      answer: json(answers.response),
    },
  ],
  "GET /v1/responses/{id}": [
    {
      summary: "Reads a stored response, or the events of one in the background",
      query: { stream: flag, starting_after: count },
      answer: jsonOrEvents(answers.response),
    },
    {
      path: "/v1/responses/{id}/input_items",
      summary: "Lists the input of a stored response",
      query: pageParameters,
      answer: json(pageOf(answers.responseItem)),
    },
  ],
  "DELETE /v1/responses/{id}": { summary: "Deletes a stored response", answer: json(deleted) },
  "POST /v1/conversations": {
    summary: "Begins a conversation that responses can belong to",
    body: { read: parseConversation, examples: [{ metadata: { about: "tests" } }, items] },
    answer: json(conversation),
  },
  "GET /v1/conversations/{id}": [
    { summary: "Describes a conversation", answer: json(conversation) },
    {
      path: "/v1/conversations/{id}/items",
      summary: "Lists the items of a conversation",
      query: pageParameters,
      answer: json(pageOf(answers.responseItem)),
    },
    {
      path: "/v1/conversations/{id}/items/{item_id}",
      summary: "Reads an item of a conversation",
      answer: json(answers.responseItem),
    },
  ],
  "POST /v1/conversations/{id}": [
    {
      summary: "Replaces the metadata of a conversation",
      body: { read: parseConversationUpdate, examples: [{ metadata: { about: "tests" } }] },
      answer: json(conversation),
    },
    {
      path: "/v1/conversations/{id}/items",
      summary: "Adds items to a conversation",
      body: { read: parseAddedItems, examples: [items] },
      answer: json(pageOf(answers.responseItem)),
    },
  ],
  "DELETE /v1/conversations/{id}": [
    {
      summary: "Deletes a conversation",
      answer: json(shape({ id: text, object: oneOf("conversation.deleted"), deleted: oneOf(true) })),
    },
    {
      path: "/v1/conversations/{id}/items/{item_id}",
      summary: "Deletes an item of a conversation",
      answer: json(conversation),
    },
  ],
  "POST /v1/files": {
    summary: "Uploads the lines of a batch",
    body: {
      form: shape({
        purpose: oneOf("batch"),
        file: { type: "string", format: "binary" },
        "expires_after[seconds]?": text,
      }),
    },
    answer: json(answers.file),
  },
  "GET /v1/files": {
    summary: "Lists files",
    query: { ...pageParameters, purpose: text },
    answer: json(pageOf(answers.file)),
  },
  "GET /v1/files/{id}": [
    { summary: "Describes a file", answer: json(answers.file) },
    {
      path: "/v1/files/{id}/content",
      summary: "Downloads a file",
      answer: media("application/octet-stream"),
    },
  ],
  "DELETE /v1/files/{id}": { summary: "Deletes a file", answer: json(deleted) },
  "POST /v1/batches": {
    summary: "Runs the lines of a file",
    body: {
      read: parseBatch,
      examples: [
        {
          input_file_id: "file-1",
          endpoint: "/v1/chat/completions",
          completion_window: "24h",
          metadata: { about: "tests" },
          output_expires_after: { anchor: "created_at", seconds: 86_400 },
        },
      ],
    },
    answer: json(answers.batch),
  },
  "GET /v1/batches": { summary: "Lists batches", query: pageParameters, answer: json(pageOf(answers.batch)) },
  "GET /v1/batches/{id}": { summary: "Describes a batch", answer: json(answers.batch) },
  "POST /v1/batches/{id}": {
    path: "/v1/batches/{id}/cancel",
    summary: "Cancels a batch",
    answer: json(answers.batch),
  },
  "POST /tokenize": {
    summary: "Turns a text or a conversation into tokens",
    body: {
      read: (body) => parseTokenize(body, standIn),
      examples: [
        { prompt: "Hi", add_special_tokens: true, return_token_strs: true },
        { messages: chatMessages, tools: chatTools },
        ...thinking(hi),
        { content: "Hi", add_special: false, parse_special: true, with_pieces: true },
      ],
    },
    answer: json(answers.tokenized),
  },
  "POST /detokenize": {
    summary: "Turns tokens into text",
    body: { read: (body) => parseDetokenize(body, standIn), examples: [{ model: "demo", tokens: [1, 2] }] },
    answer: json(shape({ prompt: text, content: text })),
  },
  "POST /apply-template": {
    summary: "Writes a conversation as the model's chat template does",
    body: {
      read: (body) => parseTemplated(new Fields(body), template),
      examples: [hi, { messages: chatMessages, tools: chatTools }, ...thinking(hi)],
    },
    answer: json(shape({ prompt: text })),
  },
};
