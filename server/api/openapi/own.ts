/** Operations of Bunting's own API: programs, records, the server's state. */

import { atOnce } from "../../../base/time-slice.ts";
import { stateViews } from "../../http/state-events.ts";
import { Fields } from "../fields.ts";
import { ProgramReader } from "../programs/schema.ts";
import { parseCalls, parseSession, parseValue } from "../programs/sessions.ts";
import { readChanges } from "../what-if.ts";
import * as answers from "./answers.ts";
import { programCalls } from "./examples.ts";
import { json, jsonOrEvents, media, type Operations } from "./operation.ts";
import { count, flag, listOf, number, oneOf, shape, text } from "./shapes.ts";
import { standIn } from "./stand-in.ts";

const { model } = standIn;
const variables = { question: "Why?", parts: ["a", "b"], later: null };
const small = {
  variables: { question: "Why?" },
  calls: [{ prompt: "Q: {{question}}\nA:", output: "answer", max_tokens: 32 }],
};
const program = { model: "demo", variables, calls: programCalls, cache_salt: "tenant" };

export const serverOperations: Operations = {
  "GET /": { summary: "The page", answer: media("text/html") },
  "GET /page/{file}": { summary: "A file of the page", answer: media("application/octet-stream") },
  "GET /openapi.json": { summary: "This description", answer: json({ type: "object" }) },
  "GET /health": { summary: "Tells whether the server lives", answer: json(answers.status) },
  "GET /health/ready": { summary: "Tells whether the server answers requests", answer: json(answers.status) },
  "GET /ping": { summary: "Tells whether the server answers requests", answer: json(answers.status) },
  "GET /version": { summary: "Tells the server's version", answer: json(shape({ version: text })) },
  "GET /metrics": { summary: "Metrics in Prometheus's text format", answer: media("text/plain") },
  "GET /state": { summary: "Tells what the server does at this moment", answer: json(answers.state) },
  "GET /state/stream": {
    summary: "Tells what the server does from now on",
    query: { view: oneOf(...stateViews) },
    answer: media("text/event-stream"),
  },
  "GET /v1/stream": {
    summary: "Goes on with a stream that lost its connection, behind the header Last-Event-ID",
    query: { conv_id: text, from: oneOf("0"), starting_after: count },
    answer: media("text/event-stream"),
  },
  "DELETE /v1/stream": {
    summary: "Ends a stream",
    query: { conv_id: text },
    answer: { status: 204 },
  },
  "POST /v1/what-if": {
    summary: "Simulates the recorded requests with other engines or targets",
    body: { read: readChanges, examples: [{ engines: 2 }, { engines: 1, tbt_ms: 100 }] },
    answer: json(answers.whatIf),
  },
  "GET /v1/cache/text": {
    summary: "Tells the first words of a node of a prefix cache",
    query: { engine: count, node: count },
    answer: json(shape({ object: oneOf("cache.text"), engine: count, node: count, text, is_whole: flag })),
  },
  "GET /v1/usage": {
    summary: "Tells the use of keys by day",
    query: { days: { ...count, minimum: 1 } },
    answer: json(answers.usagePage),
  },
  "GET /v1/requests": {
    summary: "Lists records of requests",
    query: { slow: number, limit: count, sort: oneOf("created", "duration", "first_token") },
    answer: json(
      shape({ object: oneOf("list"), data: listOf(answers.record), has_more: flag, kept_max: count }),
    ),
  },
  "GET /v1/requests/{id}/…": [
    {
      path: "/v1/requests/{id}",
      summary: "Tells where the time of a request went",
      answer: json(answers.record),
    },
    {
      path: "/v1/requests/{id}/cache",
      summary: "Tells what of a request's prompt was cached, and why not more",
      answer: json(answers.cacheRecord),
    },
  ],
};

const ended = { timeout: number, criteria: text, stream: flag, cancel_on_disconnect: flag };

export const programOperations: Operations = {
  "GET /v1/programs": { summary: "Lists the key's open programs", answer: json(answers.programList) },
  "POST /v1/programs": {
    summary: "Runs a program and returns its values",
    body: {
      read: (body) => atOnce(new ProgramReader(model).request(new Fields(body))),
      examples: [
        small,
        { ...program, stream: true, await: ["answer"], explain: true, cancel_on_disconnect: true },
        { ...program, stream: true, await: { answer: "latency" } },
      ],
    },
    answer: jsonOrEvents(answers.programResult),
  },
  "POST /v1/sessions": {
    summary: "Opens a program that grows call by call",
    body: { read: (body) => atOnce(parseSession(body, model)), examples: [small, program] },
    answer: json(answers.session, 201),
  },
  "POST /v1/sessions/{id}/…": {
    path: "/v1/sessions/{id}/calls",
    summary: "Adds calls",
    body: {
      read: (body) => atOnce(parseCalls(body, model, 0)),
      examples: [{ calls: small.calls }, ...programCalls, { variables, calls: programCalls }],
    },
    answer: json(answers.session),
  },
  "PUT /v1/sessions/{id}/…": {
    path: "/v1/sessions/{id}/variables/{name}",
    summary: "Sets a variable",
    body: { read: parseValue, examples: [{ value: "Paris" }] },
    answer: json(answers.variable),
  },
  "GET /v1/sessions/{id}/…": [
    {
      path: "/v1/sessions/{id}/variables/{name}",
      summary: "Waits for a value",
      query: ended,
      answer: { ...jsonOrEvents(answers.variable), otherStatus: 202 },
    },
    {
      path: "/v1/sessions/{id}/graph",
      summary: "Draws the program",
      query: { format: oneOf("json", "mermaid", "dot") },
      answer: { status: 200, json: answers.graph, other: "text/plain" },
    },
  ],
  "DELETE /v1/sessions/{id}/…": [
    { path: "/v1/sessions/{id}", summary: "Ends a session", answer: json(answers.deletedSession) },
    {
      path: "/v1/sessions/{id}/variables/{name}",
      summary: "Releases a variable",
      answer: json(shape({ name: text, object: text, released: flag })),
    },
  ],
};
