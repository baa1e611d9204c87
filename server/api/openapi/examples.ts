/** Example bodies: each field that a reader knows is in one of them, so that the reader reads it. */

type Body = Readonly<Record<string, unknown>>;

/** Sampling fields and end conditions under all of their names. */
const drawings: readonly Body[] = [
  { max_tokens: 64, stop: ["\n\n"], repetition_penalty: 1.1, logit_bias: { "42": 1 } },
  {
    max_completion_tokens: 64,
    stop_sequences: ["\n\n"],
    repeat_penalty: 1.1,
    repeat_last_n: -1,
    bad_words: ["never"],
  },
  { max_output_tokens: 64, allowed_token_ids: [42], stop_token_ids: [2] },
  { temperature: 4, min_p: 0.1 },
  { n_predict: 64, samplers: ["penalties", "top_k", "top_p", "min_p", "temperature"] },
];

const names: readonly Body[] = [
  { session_id: "session-1", safety_identifier: "person-1" },
  { prompt_cache_key: "session-1", user: "person-1" },
];

const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tag = { begin: "<city>", content: { type: "json_schema", json_schema: schema }, end: "</city>" };
const tagFormats: readonly Body[] = [
  { type: "triggered_tags", triggers: ["<city>"], tags: [tag] },
  { type: "tags_with_separator", separator: ",", tags: [{ ...tag, type: "tag" }] },
  {
    type: "sequence",
    elements: [
      { type: "const_string", value: "City: " },
      { type: "regex", pattern: "[A-Z]+" },
      { type: "grammar", grammar: 'root ::= "a"' },
      { type: "or", elements: [{ type: "any_text" }] },
      { ...tag, type: "tag", end: ["</city>"] },
    ],
  },
];

const constraints: readonly Body[] = [
  { response_format: { type: "json_object", schema } },
  {
    response_format: {
      type: "json_schema",
      json_schema: { name: "city", description: "", schema, strict: true },
    },
  },
  ...tagFormats.map((format) => ({ response_format: { type: "structural_tag", format } })),
  {
    response_format: {
      type: "structural_tag",
      structures: [{ begin: "<city>", schema, end: "</city>" }],
      triggers: ["<city>"],
    },
  },
  { structured_outputs: { json: schema, disable_any_whitespace: true } },
  { structured_outputs: { json: schema, indent: 2 } },
  { structured_outputs: { regex: "[A-Z]+" } },
  { structured_outputs: { choice: ["yes", "no"] } },
  { structured_outputs: { grammar: 'root ::= "a"' } },
  { structured_outputs: { json_object: true } },
  { structured_outputs: { structural_tag: { format: tagFormats[0]! } } },
  { guided_json: schema },
  { guided_regex: "[A-Z]+" },
  { guided_choice: ["yes", "no"] },
  { guided_grammar: 'root ::= "a"' },
  { grammar: 'root ::= "a"' },
  { ebnf: 'root ::= "a"' },
  { json_schema: schema },
  { regex: "[A-Z]+" },
];

const thoughts: readonly Body[] = [
  { enable_thinking: false, chat_template_kwargs: { enable_thinking: false } },
  { thinking: { type: "enabled", budget_tokens: 256 } },
  { think: "low" },
  { reasoning: { enabled: true, effort: "low", max_tokens: 256, exclude: false } },
  { output_config: { effort: "low" } },
];

/** The body with each of the variants. */
function varied(body: Body, variants: readonly Body[], place?: "options"): Body[] {
  return variants.map((variant) =>
    place === undefined ? { ...body, ...variant } : { ...body, [place]: variant },
  );
}

/** Bodies that ask for text in every way that all wire formats share. */
export function generating(body: Body, without: readonly string[] = []): Body[] {
  const isTaken = (variant: Body): boolean => !without.some((name) => name in variant);
  return varied(body, [...drawings, ...names, ...constraints].filter(isTaken));
}

/** The same, with sampling in `options`. */
export function generatingInOptions(body: Body): Body[] {
  return [
    ...varied(body, [...drawings, ...names, { num_predict: 64 }], "options"),
    ...varied(body, [...names, ...constraints]),
  ];
}

export function thinking(body: Body): Body[] {
  return varied(body, thoughts);
}

const parameters = schema;
const called = { name: "weather", arguments: '{"city":"Paris"}' };

/** Chats in OpenAI's format with calls in their past. */
export const chatMessages: readonly Body[] = [
  { role: "system", content: "Be brief.", name: "rules" },
  { role: "user", content: [{ type: "text", text: "How is the weather in Paris?" }] },
  {
    role: "assistant",
    content: null,
    reasoning_content: "A call tells.",
    tool_calls: [
      { id: "call_1", type: "function", function: called },
      { id: "call_2", type: "custom", custom: { name: "note", input: "Paris" } },
    ],
  },
  { role: "tool", tool_call_id: "call_1", content: "18 °C" },
  { role: "assistant", content: null, function_call: called, reasoning: "Again." },
  { role: "function", name: "weather", content: "18 °C" },
  { role: "assistant", content: null, refusal: "No more calls.", audio: { id: "audio_1" } },
  { role: "assistant", content: [{ type: "refusal", refusal: "No." }] },
];

export const chatTools: readonly Body[] = [
  {
    type: "function",
    function: { name: "weather", description: "The weather in a city", parameters, strict: true },
  },
];

export const chatChoices: readonly unknown[] = [
  { type: "function", function: { name: "weather" } },
  {
    type: "allowed_tools",
    allowed_tools: { mode: "auto", tools: [{ type: "function", function: { name: "weather" } }] },
  },
];

/** Items of the Responses API. */
export const responseItems: readonly Body[] = [
  {
    type: "message",
    role: "user",
    id: "msg_1",
    status: "completed",
    content: [{ type: "input_text", text: "Hi" }],
  },
  { type: "message", role: "assistant", content: [{ type: "refusal", refusal: "No." }] },
  {
    type: "reasoning",
    summary: [{ type: "summary_text", text: "A call." }],
    encrypted_content: "bunting-1:QQ==",
  },
  { type: "function_call", call_id: "call_1", namespace: "tools", ...called },
  { type: "function_call_output", call_id: "call_1", output: [{ type: "input_text", text: "18 °C" }] },
  { type: "custom_tool_call", call_id: "call_2", name: "note", input: "Paris" },
  { type: "custom_tool_call_output", call_id: "call_2", output: "done" },
  { type: "item_reference", id: "msg_0" },
  { role: "user", content: "And now?" },
];

const responseFunction = {
  type: "function",
  name: "weather",
  description: "Weather",
  parameters,
  strict: true,
};
export const responseTools: readonly Body[] = [
  responseFunction,
  {
    type: "custom",
    name: "note",
    description: "Keeps a note",
    format: { type: "grammar", syntax: "regex", definition: "[a-z]+" },
  },
  { type: "namespace", name: "tools", description: "More", tools: [{ ...responseFunction, name: "clock" }] },
];

export const responseChoices: readonly unknown[] = [
  { type: "function", name: "weather" },
  { type: "function", name: "clock", namespace: "tools" },
  { type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "weather" }] },
];

const cached = { cache_control: { type: "ephemeral", ttl: "1h" } };

/** System prompt of the Messages API. */
const systemBlocks: readonly Body[] = [{ type: "text", text: "Be brief.", ...cached }];

/** Turns of the Messages API. */
const turns: readonly Body[] = [
  {
    role: "system",
    content: [
      {
        type: "tool_addition",
        tool: { type: "tool_definition", definition: { name: "clock", input_schema: parameters } },
      },
      { type: "tool_removal", tool: { type: "tool_reference", name: "clock" } },
    ],
  },
  { role: "user", content: [{ type: "text", text: "Hi", ...cached, citations: [] }], ...cached },
  {
    role: "assistant",
    content: [
      { type: "thinking", thinking: "A call tells.", signature: "" },
      { type: "redacted_thinking", data: "" },
      {
        type: "tool_use",
        id: "toolu_1",
        name: "weather",
        input: { city: "Paris" },
        caller: { type: "direct" },
      },
    ],
  },
  {
    role: "user",
    content: [
      {
        type: "tool_result",
        tool_use_id: "toolu_1",
        is_error: false,
        content: [{ type: "text", text: "18 °C", ...cached }],
      },
      {
        type: "search_result",
        title: "Paris",
        source: "a book",
        content: [{ type: "text", text: "A city." }],
      },
      {
        type: "document",
        title: "Paris",
        context: "a book",
        source: { type: "text", media_type: "text/plain", data: "A city." },
        citations: { enabled: false },
      },
      { type: "document", source: { type: "content", content: [{ type: "text", text: "A city." }] } },
      { type: "document", source: { type: "base64", data: "" } },
      { type: "image", source: { type: "base64", data: "" } },
      { type: "container_upload", file_id: "file_1" },
    ],
  },
];

const turnTools: readonly Body[] = [
  {
    ...{ name: "weather", type: "custom", description: "Weather", input_schema: parameters, strict: true },
    ...cached,
  },
];

/** Fields that requests for messages and for their count share. */
export const askedTurns: readonly Body[] = [
  { messages: turns, tools: turnTools, system: systemBlocks },
  {
    tools: turnTools,
    tool_choice: { type: "tool", name: "weather", disable_parallel_tool_use: true, ...cached },
  },
  { output_config: { effort: "low", format: { type: "json_schema", schema: {} }, ...cached }, ...cached },
];

/** Nodes of programs, by kind. */
const body = { calls: [{ prompt: "{{item}}", output: "said" }], result: "said" };
const tests: readonly Body[] = [
  { equals: "yes" },
  { contains: "yes" },
  { matches: "ye?s" },
  { passes: [{ regex: "yes" }] },
];
const outputs = { answer: { variable: "answer", transforms: ["strip"], temperature: 0, max_tokens: 16 } };
/** Sampling fields that calls of programs accept. */
const drawn = generating({}, [
  ...["max_completion_tokens", "max_output_tokens", "n_predict", "stop_sequences"],
  ...["session_id", "prompt_cache_key"],
  ...["grammar", "ebnf", "json_schema", "regex"],
]);
export const programCalls: readonly Body[] = [
  {
    name: "ask",
    prompt: "Q: {{question}}\nA: {{answer}}",
    inputs: {
      question: { variable: "question", transforms: ["strip"] },
    },
    outputs,
  },
  { prompt: "{{fact}}", inputs: { fact: { value: "Paris" } }, output: "echoed" },
  { messages: [{ role: "user", content: "{{question}}" }], outputs: ["told"] },
  { map: "parts", item: "item", ...body, output: "mapped", concurrency: 8 },
  { reduce: "parts", item: "item", initial: "question", accumulator: "sum", ...body, output: "reduced" },
  {
    choose: "question",
    cases: tests.map((test) => ({ ...test, ...body })),
    otherwise: body,
    output: "chosen",
  },
  ...tests.map((until, index) => ({
    repeat: "question",
    state: "state",
    ...body,
    until,
    count: 4,
    output: `repeated-${index}`,
  })),
  ...drawn.map((call, index) => ({ prompt: "{{question}}", ...call, output: `drawn-${index}` })),
  {
    prompt: drawn.map((_, index) => `{{held-${index}}}`).join(" "),
    outputs: Object.fromEntries(drawn.map((own, index) => [`held-${index}`, own])),
  },
];
