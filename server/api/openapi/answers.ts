/** JSON Schemas of response bodies. Tests validate real responses with them, and reject undescribed fields. */

import { missReasons } from "../../answer/cache-outcome.ts";
import {
  anything,
  count,
  counted,
  either,
  flag,
  listOf,
  mapOf,
  nullable,
  number,
  oneOf,
  type Schema,
  shape,
  text,
} from "./shapes.ts";

export const tokens = count;
export const textOrNull: Schema = { type: ["string", "null"] };
const numberOrNull: Schema = { type: ["number", "null"] };
const tokenIds = listOf(count);
const nothing: Schema = { type: "array", maxItems: 0 };
/** An object that comes back as the client sent it. */
const echoed: Schema = { type: "object" };

/**
 * A refusal. Anthropic's routes add `type` and `request_id`; Ollama's hold the message alone, and Parrot's an
 * empty `traceback` beside it. A variable's failure names the call where it began (`origin`) and its `path`.
 */
export const failure = shape({
  error: either(
    text,
    shape({
      message: text,
      type: text,
      "param?": textOrNull,
      "code?": textOrNull,
      "details?": shape({ error_code: text, unsupported: listOf(text) }),
      "origin?": text,
      "path?": listOf(text),
    }),
  ),
  "type?": oneOf("error"),
  "request_id?": text,
  "traceback?": oneOf(""),
});

/** Health of the server; with the loading progress while it loads its model. */
export const status = shape({ status: text, "stage?": text, "doneBytes?": count, "totalBytes?": count });

export const model = shape({
  id: text,
  object: oneOf("model"),
  created: count,
  owned_by: text,
  root: text,
  parent: { type: "null" },
  max_model_len: count,
  type: oneOf("model"),
  display_name: text,
  created_at: text,
  max_input_tokens: count,
  max_tokens: count,
  permission: nothing,
});
export const modelList = shape({ object: oneOf("list"), data: listOf(model) });

const usage = shape({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  prompt_tokens_details: shape({ cached_tokens: count }),
  "completion_tokens_details?": shape({ reasoning_tokens: count }),
});
const promptUsage = shape({
  prompt_tokens: count,
  total_tokens: count,
  "prompt_tokens_details?": shape({ cached_tokens: count }),
});

const timings = shape({
  cache_n: count,
  prompt_n: count,
  prompt_ms: number,
  prompt_per_token_ms: numberOrNull,
  prompt_per_second: numberOrNull,
  predicted_n: count,
  predicted_ms: number,
  predicted_per_token_ms: numberOrNull,
  predicted_per_second: numberOrNull,
  "draft_n?": count,
  "draft_n_accepted?": count,
});

const range = shape({ expected: number, low: number, high: number });
export const estimate = shape({
  object: oneOf("estimate"),
  model: text,
  prompt_tokens: count,
  position: count,
  first_token_ms: range,
  end_ms: range,
});

const milliseconds = mapOf(number);
export const record = shape({
  object: oneOf("request"),
  id: text,
  model: text,
  route: text,
  status: text,
  error: textOrNull,
  created: number,
  total_ms: number,
  first_token_ms: numberOrNull,
  causes: milliseconds,
  first_token_causes: nullable(milliseconds),
  tokens: shape({
    prompt: count,
    found: mapOf(count),
    computed: count,
    recomputed: count,
    generated: count,
    drafts: shape({ checked: count, right: count }),
  }),
  late: shape({ tokens: count, ms: number }),
  preemptions: count,
  engines: listOf(count),
  choices: count,
  behind: textOrNull,
  same_prefix_of: textOrNull,
});
const why = shape({ why: record });

export const cacheRecord = shape({
  object: oneOf("request.cache"),
  id: text,
  model: text,
  created: number,
  prompts: listOf(
    shape({
      prompt_tokens: count,
      found: mapOf(count),
      ended: text,
      session: nullable(shape({ id: count, parent: nullable(count), by: text })),
      misses: listOf(
        shape({
          reason: oneOf(...missReasons),
          from: count,
          tokens: count,
          cost_ms: number,
          "message?": nullable(count),
          "role?": text,
          "now?": text,
          "was?": text,
        }),
      ),
      earlier: nullable(shape({ shared_tokens: count, ended_ms_ago: numberOrNull, own_tokens_since: count })),
    }),
  ),
});

const entry = { token: text, logprob: number, bytes: nullable(tokenIds) };
const entries = listOf(
  shape({ ...entry, "id?": count, "top_logprobs?": listOf(shape({ ...entry, "id?": count })) }),
);
const called = shape({ name: text, arguments: text });

/** Likeliest tokens of each position, by id. */
const promptLogprobs = nullable(
  listOf(nullable(mapOf(shape({ logprob: number, rank: nullable(count), decoded_token: text })))),
);

/** Members of every response body with choices. */
function choices(object: string, choice: Schema): Schema {
  return shape({
    id: text,
    object: oneOf(object),
    created: count,
    model: text,
    choices: listOf(choice),
    usage,
    system_fingerprint: text,
    "service_tier?": text,
    "timings?": timings,
    "prompt_logprobs?": promptLogprobs,
    "prompt_token_ids?": tokenIds,
    "bunting?": why,
  });
}

const end = {
  index: count,
  finish_reason: oneOf("stop", "length", "tool_calls"),
  stop_reason: { type: ["string", "integer", "null"] },
  "token_ids?": tokenIds,
};

export const chat = choices(
  "chat.completion",
  shape({
    ...end,
    message: shape({
      role: oneOf("assistant"),
      content: textOrNull,
      refusal: { type: "null" },
      "reasoning_content?": text,
      "reasoning?": text,
      "tool_calls?": listOf(shape({ id: text, type: oneOf("function"), function: called })),
    }),
    logprobs: nullable(shape({ content: entries, refusal: { type: "null" } })),
  }),
);

export const completion = choices(
  "text_completion",
  shape({
    ...end,
    text,
    logprobs: nullable(
      shape({
        tokens: listOf(text),
        token_logprobs: listOf(numberOrNull),
        top_logprobs: nullable(listOf(nullable(mapOf(number)))),
        text_offset: listOf(count),
      }),
    ),
    "prompt_logprobs?": promptLogprobs,
    "prompt_token_ids?": tokenIds,
  }),
);

export const embeddings = shape({
  object: oneOf("list"),
  data: listOf(shape({ object: oneOf("embedding"), index: count, embedding: either(listOf(number), text) })),
  model: text,
  usage: promptUsage,
});
export const rerank = shape({
  id: text,
  model: text,
  usage: promptUsage,
  results: listOf(shape({ index: count, relevance_score: number, "document?": shape({ text }) })),
});
export const score = shape({
  id: text,
  object: oneOf("list"),
  created: count,
  model: text,
  data: listOf(shape({ index: count, object: oneOf("score"), score: number })),
  usage: promptUsage,
});

const part = shape({
  type: text,
  text,
  "annotations?": nothing,
  "logprobs?": entries,
});
export const responseItem = shape({
  type: text,
  id: text,
  status: oneOf("in_progress", "completed", "incomplete"),
  "role?": text,
  "content?": listOf(part),
  "summary?": listOf(echoed),
  "encrypted_content?": text,
  "call_id?": text,
  "name?": text,
  "namespace?": text,
  "arguments?": text,
  "input?": text,
  "output?": either(text, listOf(part)),
});
const responseUsage = shape({
  input_tokens: count,
  input_tokens_details: shape({ cached_tokens: count }),
  output_tokens: count,
  output_tokens_details: shape({ reasoning_tokens: count }),
  total_tokens: count,
});
export const compaction = shape({
  id: text,
  object: oneOf("response.compaction"),
  created_at: count,
  output: listOf(responseItem),
  usage: responseUsage,
  "bunting?": why,
});
export const response = shape({
  id: text,
  object: oneOf("response"),
  created_at: count,
  status: oneOf("queued", "in_progress", "completed", "incomplete", "failed", "cancelled"),
  completed_at: numberOrNull,
  error: nullable(shape({ code: text, message: text })),
  incomplete_details: nullable(shape({ reason: text })),
  model: text,
  usage: nullable(responseUsage),
  output: listOf(responseItem),
  instructions: textOrNull,
  max_output_tokens: numberOrNull,
  max_tool_calls: numberOrNull,
  metadata: mapOf(text),
  tools: listOf(echoed),
  tool_choice: either(text, echoed),
  parallel_tool_calls: flag,
  previous_response_id: textOrNull,
  conversation: nullable(shape({ id: text })),
  reasoning: shape({ effort: textOrNull, summary: textOrNull }),
  text: shape({ format: echoed, "verbosity?": text }),
  temperature: number,
  top_p: number,
  presence_penalty: number,
  frequency_penalty: number,
  top_logprobs: count,
  truncation: oneOf("disabled"),
  service_tier: text,
  prompt_cache_key: textOrNull,
  safety_identifier: textOrNull,
  user: textOrNull,
  store: flag,
  background: flag,
  "bunting?": why,
});

export const file = shape({
  id: text,
  object: oneOf("file"),
  bytes: count,
  created_at: count,
  "expires_at?": count,
  filename: text,
  purpose: text,
  status: text,
  status_details: { type: "null" },
});
const time = numberOrNull;
export const batch = shape({
  id: text,
  object: oneOf("batch"),
  endpoint: text,
  model: textOrNull,
  errors: nullable(
    shape({
      object: oneOf("list"),
      data: listOf(shape({ code: text, line: numberOrNull, message: text, param: textOrNull })),
    }),
  ),
  input_file_id: text,
  completion_window: text,
  status: text,
  output_file_id: textOrNull,
  error_file_id: textOrNull,
  created_at: count,
  in_progress_at: time,
  expires_at: time,
  finalizing_at: time,
  completed_at: time,
  failed_at: time,
  expired_at: time,
  cancelling_at: time,
  cancelled_at: time,
  request_counts: shape({ total: count, completed: count, failed: count }),
  usage: responseUsage,
  metadata: nullable(mapOf(text)),
  paused_by: textOrNull,
});

export const tokenized = either(
  shape({ count, max_model_len: count, tokens: tokenIds, token_strs: nullable(listOf(text)) }),
  shape({ tokens: listOf(either(count, shape({ id: count, piece: either(text, tokenIds) }))) }),
);

export const message = shape({
  id: text,
  type: oneOf("message"),
  role: oneOf("assistant"),
  model: text,
  content: listOf(
    shape({
      type: oneOf("text", "thinking", "tool_use"),
      "text?": text,
      "citations?": anything,
      "thinking?": text,
      "signature?": text,
      "id?": text,
      "name?": text,
      "input?": anything,
      "caller?": anything,
    }),
  ),
  stop_reason: text,
  stop_sequence: textOrNull,
  usage: shape({
    input_tokens: count,
    cache_creation_input_tokens: count,
    cache_read_input_tokens: count,
    output_tokens: count,
    output_tokens_details: shape({ thinking_tokens: count }),
  }),
  "bunting?": why,
});

const details = shape({
  parent_model: text,
  format: text,
  family: text,
  families: listOf(text),
  parameter_size: text,
  quantization_level: text,
});
const ollamaModel = { name: text, model: text, size: count, digest: text, details };
export const ollamaTags = shape({ models: listOf(shape({ ...ollamaModel, modified_at: text })) });
export const ollamaRunning = shape({
  models: listOf(shape({ ...ollamaModel, size_vram: count, context_length: count, expires_at: text })),
});
export const ollamaShow = shape({
  modelfile: text,
  parameters: text,
  template: text,
  details,
  model_info: mapOf(anything),
  capabilities: listOf(text),
  modified_at: text,
});
const ollamaAnswer = {
  model: text,
  created_at: text,
  "logprobs?": entries,
  done: flag,
  "done_reason?": text,
  "total_duration?": count,
  "load_duration?": count,
  "prompt_eval_count?": count,
  "prompt_eval_duration?": count,
  "eval_count?": count,
  "eval_duration?": count,
  "bunting?": why,
};
export const ollamaChat = shape({
  ...ollamaAnswer,
  message: shape({
    role: oneOf("assistant"),
    content: text,
    "thinking?": text,
    "tool_calls?": listOf(
      shape({ "id?": text, function: shape({ "index?": count, name: text, arguments: anything }) }),
    ),
  }),
});
export const ollamaText = shape({ ...ollamaAnswer, response: text, "thinking?": text });
export const ollamaEmbed = shape({
  model: text,
  embeddings: listOf(listOf(number)),
  total_duration: count,
  load_duration: count,
  prompt_eval_count: count,
});

const drawing = {
  temperature: number,
  top_k: count,
  top_p: number,
  min_p: number,
  repeat_penalty: number,
};
export const props = shape({
  default_generation_settings: shape({ n_ctx: count, params: shape(drawing) }),
  total_slots: count,
  model_alias: text,
  chat_template: text,
  modalities: shape({ vision: flag, audio: flag }),
  build_info: text,
});
export const slots = listOf(
  shape({ id: count, n_ctx: count, is_processing: flag, running: count, waiting: count }),
);
export const llamaEmbeddings = listOf(shape({ index: count, embedding: listOf(listOf(number)) }));
const llamaAnswer = shape({
  index: count,
  content: text,
  tokens: tokenIds,
  id_slot: count,
  "completion_probabilities?": entries,
  stop: flag,
  model: text,
  tokens_predicted: count,
  tokens_evaluated: count,
  tokens_cached: count,
  generation_settings: shape({
    n_predict: { type: "integer" },
    ...drawing,
    presence_penalty: number,
    frequency_penalty: number,
    stop: listOf(text),
    n_probs: count,
    stream: flag,
  }),
  prompt: either(text, tokenIds),
  has_new_line: flag,
  truncated: flag,
  stop_type: oneOf("eos", "limit", "word"),
  stopping_word: text,
  "timings?": timings,
  "bunting?": why,
});
/** Values by the paths in `response_fields`. The `not` keeps a whole answer from matching too. */
const llamaParts = { ...mapOf(anything), not: { required: ["index", "stop", "prompt"] } };
const llamaOne = either(llamaAnswer, llamaParts);
export const llamaCompletion = either(llamaOne, listOf(llamaOne));

const device = shape({
  name: text,
  pages: count,
  pageTokens: count,
  stepTokensMax: count,
  stepChunksMax: count,
  "stepDrawsMax?": count,
  contextMax: count,
  vocabSize: count,
  "hidden?": shape({ size: count, rowsMax: count }),
  "draftsMax?": count,
  "draftModel?": shape({ share: number }),
  "states?": shape({ slots: count, bytes: count }),
  "abortPoints?": count,
});
const load = shape({
  ...counted("waiting", "deferred", "running", "paused", "tokensPending"),
  ...counted("pagesTotal", "pagesFree", "pagesCached", "statesTotal", "statesFree", "checkpoints"),
  ...counted("stepsTotal", "promptTokensTotal", "generatedTokensTotal"),
  ...counted("prefixQueriedTotal", "prefixHitTotal", "preemptionsTotal", "evictedPagesTotal"),
  ...counted("tierStoredPagesTotal", "tierFoundPagesTotal", "tierLoadedPagesTotal"),
  ...counted("tierShortLoadsTotal", "tierHostPagesTotal", "stepsOverTarget", "skippedDecodesTotal"),
  ...counted("draftsTotal", "draftTokensTotal", "acceptedTokensTotal", "stepTokens"),
  acceptedByPlace: listOf(count),
  deviceMs: number,
  stepMs: number,
});
const placement = shape({
  engine: count,
  reason: text,
  costs: listOf(
    shape({
      engine: count,
      cachedTokens: count,
      loadMs: number,
      evictMs: number,
      promptMs: number,
      delayMs: number,
      decodeMs: number,
      harmMs: number,
    }),
  ),
});

export const state = shape({
  version: text,
  model: text,
  contextMax: count,
  status: text,
  timeMs: number,
  "engines?": listOf(shape({ device, load })),
  "placements?": listOf(shape({ timeMs: number, sequence: count, placement })),
  "computed?": shape({ requests: count, jobs: count }),
  "jobs?": nullable(shape({ active: count, linesRunning: count })),
});

const quantiles = shape({ count, mean: number, p50: number, p90: number, p99: number, max: number });
const outcome = shape({
  unanswered: count,
  waiting_ms: quantiles,
  first_token_ms: quantiles,
  between_tokens_ms: quantiles,
  total_ms: quantiles,
  hit_rate: number,
});
export const whatIf = shape({
  object: oneOf("what_if"),
  changes: shape({ engines: nullable(count), tbt_ms: nullable(count) }),
  recorded: shape({ calls: count, simulated_calls: count, seconds: number, engines: count }),
  before: outcome,
  after: outcome,
});

export const usagePage = shape({
  object: oneOf("page"),
  data: listOf(
    shape({
      object: oneOf("bucket"),
      start_time: count,
      end_time: count,
      results: listOf(
        shape({
          object: text,
          input_tokens: count,
          input_cached_tokens: count,
          output_tokens: count,
          num_model_requests: count,
          api_key_id: textOrNull,
          bunting: shape({
            computed_tokens: count,
            device_ms: count,
            answered: count,
            failed: count,
            cancelled: count,
          }),
        }),
      ),
    }),
  ),
  has_more: flag,
  next_page: { type: "null" },
});

const programUsage = shape({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  prompt_tokens_details: shape({ cached_tokens: count }),
});
const value = either(text, listOf(text));
const variableFields = {
  name: text,
  state: text,
  "value?": value,
  "error?": shape({ code: text, message: text, origin: text, path: listOf(text) }),
};
export const variable = shape(variableFields);
const explained = shape({
  calls: listOf(
    shape({
      name: text,
      state: text,
      objective: textOrNull,
      gang: numberOrNull,
      waited_for: textOrNull,
      ready_ms: numberOrNull,
      placed_ms: numberOrNull,
      started_ms: numberOrNull,
      first_token_ms: numberOrNull,
      ended_ms: numberOrNull,
      tokens: shape(counted("prompt", "found", "warmed", "output")),
    }),
  ),
  critical_path: listOf(shape({ kind: text, name: text, from_ms: number, to_ms: number })),
  waited_ms: numberOrNull,
});
export const programResult = shape({
  id: text,
  object: oneOf("program"),
  variables: mapOf(variable),
  usage: programUsage,
  "explain?": explained,
});
export const programList = shape({
  object: oneOf("list"),
  data: listOf(
    shape({ id: text, object: oneOf("program"), created: number, calls: mapOf(count), usage: programUsage }),
  ),
  has_more: flag,
});
export const session = shape({
  id: text,
  object: oneOf("session"),
  calls: listOf(shape({ name: text, kind: text, outputs: listOf(text) })),
});
export const deletedSession = shape({ id: text, object: oneOf("session"), deleted: oneOf(true) });
export const graph = shape({
  id: text,
  object: oneOf("graph"),
  variables: listOf(shape({ ...variableFields, written_by: textOrNull, read_by: listOf(text) })),
  nodes: listOf(shape({ name: text, kind: text, state: text, reads: listOf(text), writes: listOf(text) })),
  usage: programUsage,
  explain: explained,
});
