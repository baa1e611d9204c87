/** Operations of `--parrot-api`: the paper's bodies, and the routes of the client that its authors published. */

import {
  readContent,
  readDeclaration,
  readGet,
  readSemanticCall,
  readSet,
  readSubmit,
} from "../programs/parrot-bodies.ts";
import { failure } from "./answers.ts";
import { json, type Operations } from "./operation.ts";
import { count, flag, listOf, shape, text } from "./shapes.ts";
import { standIn } from "./stand-in.ts";

const { model } = standIn;
const variable = { semantic_var_id: "answer", session_id: "0" };
const drawn = {
  sampling_config: {
    temperature: 0.5,
    top_p: 0.9,
    max_gen_length: 32,
    stop_str: "\n",
    stop_token_ids: [2],
    ignore_tokenizer_eos: false,
    presence_penalty: 0,
    frequency_penalty: 0,
    logit_bias: { "42": 1 },
    n: 1,
    best_of: 1,
  },
};

const id = { session_id: count };
const empty = json(shape({}));
const content = json(shape({ content: text }));

export const parrotOperations: Operations = {
  "POST /v1/session": {
    summary: "Opens a session",
    body: { read: (given) => given, examples: [{ api_key: "key" }] },
    answer: json(shape({ ...id, session_auth: text })),
  },
  "GET /v1/session/{id}": { summary: "Finds a session", answer: json(shape(id)) },
  "DELETE /v1/session/{id}": { summary: "Ends a session", answer: empty },
  "POST /v1/semantic_call": {
    summary: "Submits a call",
    body: {
      read: (body) => readSemanticCall(body, model),
      examples: [
        {
          session_id: 0,
          template: "{{text}} {{earlier}} Summary: {{summary}}",
          parameters: [
            { name: "text", is_output: false, value: "Paris is large." },
            { name: "earlier", is_output: false, var_id: "0.0.earlier" },
            { name: "summary", is_output: true, ...drawn },
          ],
          output_criteria: "latency",
          remove_pure_fill: true,
        },
      ],
    },
    answer: json(
      shape({
        request_id: count,
        param_info: listOf(shape({ parameter_name: text, is_output: flag, var_name: text, var_id: text })),
      }),
    ),
  },
  "POST /v1/semantic_var": {
    summary: "Declares a variable",
    body: { read: readDeclaration, examples: [{ session_id: 0, var_name: "text" }] },
    answer: json(shape({ var_id: text })),
  },
  "POST /v1/semantic_var/{id}": {
    summary: "Sets a variable",
    body: { read: readContent, examples: [{ content: "Paris is large." }] },
    answer: empty,
  },
  "GET /v1/semantic_var/{id}": {
    summary: "Waits for a value",
    query: { criteria: text },
    answer: content,
  },
  "POST /v1/submit": {
    summary: "Submits a call as in the paper",
    body: {
      read: (body) => readSubmit(body, model),
      examples: [
        {
          session_id: "0",
          prompt: "Write {{task}} in {{style}}: {{code}}",
          placeholders: [
            { name: "task", in_out: false, semantic_var_id: "task", transforms: "strip" },
            { name: "style", in_out: false, transforms: ["strip", { truncate: 64 }] },
            { name: "code", in_out: true, ...drawn },
          ],
        },
      ],
    },
    answer: json(shape({ request_id: count })),
  },
  "POST /v1/set": {
    summary: "Sets a variable as in the paper",
    body: { read: readSet, examples: [{ ...variable, content: "a game" }] },
    answer: empty,
  },
  "POST /v1/get": {
    summary: "Waits for a value as in the paper",
    body: { read: readGet, examples: [{ ...variable, criteria: "latency" }] },
    answer: content,
  },
  "POST /v1/py_native_call": { summary: "Refuses to run code", answer: { status: 500, json: failure } },
};
