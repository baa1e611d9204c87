/**
 * Ways in which families of models write calls and thoughts, with chat templates of our own that write them as
 * the published ones do.
 */
import type { CallFormName } from "../../text/formats/call-forms.ts";

export interface Dialect {
  /** Families of `model/families/`. */
  readonly families: readonly string[];
  /** The models, for readers. */
  readonly models: string;
  /** Null: the template writes no calls. */
  readonly calls: CallFormName | null;
  /** Opening mark of thoughts; null: none. */
  readonly thoughts: string | null;
  /** Text between the opening of the assistant's turn and the thoughts, in prompts and in the past. */
  readonly opened: string;
  /** Thoughts of an answer as the model writes them, up to the text; "" for none. */
  readonly thought: string;
  readonly template: string;
}

/** Thoughts of every answer in tests. */
export const THOUGHT = "Two cities.";

interface Written {
  readonly families: readonly string[];
  readonly models: string;
  readonly calls?: CallFormName;
  /** Jinja that writes the calls of a message `m`; `f` is a call's function. */
  readonly writes?: string;
  /** Texts around thoughts. `isOpen`: prompts end with the first one. */
  readonly thoughts?: { readonly around: readonly [string, string]; readonly isOpen: boolean };
  /** Other text of the template. */
  readonly also?: string;
}

/** Jinja that writes a text, whose white space beside tags would else be trimmed. */
function exactly(text: string): string {
  return text === "" ? "" : `{{ ${JSON.stringify(text)} }}`;
}

/** Jinja that writes each call, with a text between two. */
function each(call: string, between = ""): string {
  return `{% for c in m.tool_calls or [] %}{% set f = c.function %}{% if not loop.first %}${exactly(between)}{% endif %}${call}{% endfor %}`;
}

/** The same between two texts, which stand there only if there are calls. */
function block(begin: string, call: string, between: string, end: string): string {
  return `{% if m.tool_calls %}${exactly(begin)}${each(call, between)}${exactly(end)}{% endif %}`;
}

/** Jinja that writes each argument `v` of the name `k`. */
function given(argument: string, between = ""): string {
  return `{% for k, v in f.arguments | items %}{% if not loop.first %}${exactly(between)}{% endif %}${argument}{% endfor %}`;
}

const json = "{{ f.arguments if f.arguments is string else f.arguments | tojson }}";
const jsonOrText = "{{ v if v is string else v | tojson }}";
const named = `{"name": "{{ f.name }}", "arguments": ${json}}`;

const hermes = each(`<tool_call>\n${named}\n</tool_call>`, "\n");
const think = (isOpen: boolean) => ({ around: ["<think>\n", "\n</think>\n\n"], isOpen }) as const;

/** DeepSeek's block of calls; `call` is what stands for one. */
function deepSeekCalls(call: string, between: string): string {
  return block(
    "<｜tool▁calls▁begin｜>",
    `<｜tool▁call▁begin｜>${call}<｜tool▁call▁end｜>`,
    between,
    "<｜tool▁calls▁end｜>",
  );
}

/** DeepSeek's later block of calls, in tags. */
function dsmlCalls(tag: string): string {
  const value = `" string="{{ 'true' if v is string else 'false' }}">${jsonOrText}`;
  const argument = `<｜DSML｜parameter name="{{ k }}${value}</｜DSML｜parameter>\n`;
  const call = `<｜DSML｜invoke name="{{ f.name }}">\n${given(argument)}</｜DSML｜invoke>\n`;
  return block(`<｜DSML｜${tag}>\n`, call, "", `</｜DSML｜${tag}>`);
}

/** Jinja macro that writes a value without quotes around names. */
function bareValue(quote: string): string {
  return `{% macro bare(v) %}{% if v is string %}${quote}{{ v }}${quote}{% elif v is mapping %}{ {%- for k, w in v | dictsort %}{{ k }}:{{ bare(w) }}{{ "," if not loop.last }}{% endfor %}}{% elif v is sequence %}[{% for w in v %}{{ bare(w) }}{{ "," if not loop.last }}{% endfor %}]{% else %}{{ v | tojson }}{% endif %}{% endmacro %}`;
}

const written: Readonly<Record<string, Written>> = {
  "Qwen 2.5": {
    families: ["qwen2", "qwen2_vl", "qwen3_vl", "qwen3_vl_moe"],
    models: "Qwen 2.5, Qwen2.5-VL and Qwen3-VL, Instruct",
    calls: "Hermes",
    writes: hermes,
  },
  "Qwen 3": {
    families: ["qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe", "qwen3_next", "smollm3"],
    models: "Qwen 3, Qwen3-VL and Qwen3-Next, Thinking; SmolLM 3",
    calls: "Hermes",
    writes: hermes,
    thoughts: think(false),
  },
  QwQ: { families: ["qwen2"], models: "QwQ", calls: "Hermes", writes: hermes, thoughts: think(true) },
  "Qwen3-Coder": {
    families: ["qwen3_moe", "qwen3_next"],
    models: "Qwen3-Coder, Qwen3-Coder-Next",
    calls: "Qwen3-Coder",
    writes: each(
      `<tool_call>\n<function={{ f.name }}>\n${given("<parameter={{ k }}>\n{{ v }}\n</parameter>\n")}</function>\n</tool_call>`,
      "\n",
    ),
  },
  "Qwen 3.5": {
    families: ["qwen3_5", "qwen3_5_moe", "nemotron_h"],
    models: "Qwen 3.5 to 3.8, Nemotron 3",
    calls: "Qwen3-Coder",
    writes: each(
      `<tool_call>\n<function={{ f.name }}>\n${given(`<parameter={{ k }}>\n${jsonOrText}\n</parameter>\n`)}</function>\n</tool_call>`,
      "\n",
    ),
    thoughts: think(true),
  },
  "GLM 4.5": {
    families: ["glm4_moe"],
    models: "GLM 4.5, 4.5-Air, 4.6",
    calls: "GLM 4.5",
    writes: each(
      `<tool_call>{{ f.name }}\n${given(`<arg_key>{{ k }}</arg_key>\n<arg_value>${jsonOrText}</arg_value>\n`)}</tool_call>`,
      "\n",
    ),
    thoughts: { around: ["<think>", "</think>\n"], isOpen: false },
  },
  "GLM 4.7": {
    families: ["glm4_moe", "glm4_moe_lite"],
    models: "GLM 4.7, 4.7-Flash, 5",
    calls: "GLM 4.7",
    writes: each(
      `<tool_call>{{ f.name }}${given(`<arg_key>{{ k }}</arg_key><arg_value>${jsonOrText}</arg_value>`)}</tool_call>`,
    ),
    thoughts: { around: ["<think>", "</think>"], isOpen: true },
  },
  "MiniMax M2": {
    families: ["minimax_m2"],
    models: "MiniMax M2 to M2.7",
    calls: "MiniMax M2",
    writes: block(
      "<minimax:tool_call>\n",
      `<invoke name="{{ f.name }}">\n${given(`<parameter name="{{ k }}">${jsonOrText}</parameter>\n`)}</invoke>\n`,
      "",
      "</minimax:tool_call>",
    ),
    thoughts: think(true),
  },
  "Kimi K2": {
    families: ["deepseek_v3", "kimi_k2", "kimi_linear"],
    models: "Kimi K2, K2-Thinking, K2.5",
    calls: "Kimi K2",
    writes: block(
      "<|tool_calls_section_begin|>",
      `<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>${json}<|tool_call_end|>`,
      "",
      "<|tool_calls_section_end|>",
    ),
    thoughts: { around: ["<think>", "</think>"], isOpen: false },
  },
  "DeepSeek V3": {
    families: ["deepseek_v3"],
    models: "DeepSeek V3, R1",
    calls: "DeepSeek V3",
    writes: deepSeekCalls(`function<｜tool▁sep｜>{{ f.name }}\n\`\`\`json\n${json}\n\`\`\``, "\n"),
    thoughts: { around: ["<think>\n", "\n</think>\n\n"], isOpen: true },
  },
  "DeepSeek V3.1": {
    families: ["deepseek_v3"],
    models: "DeepSeek V3.1",
    calls: "DeepSeek V3.1",
    writes: deepSeekCalls(`{{ f.name }}<｜tool▁sep｜>${json}`, ""),
    thoughts: { around: ["<think>", "</think>"], isOpen: true },
  },
  "DeepSeek V3.2": {
    families: [],
    models: "DeepSeek V3.2",
    calls: "DeepSeek V3.2",
    writes: dsmlCalls("function_calls"),
    thoughts: { around: ["<think>", "</think>"], isOpen: true },
  },
  "DeepSeek V4": {
    families: [],
    models: "DeepSeek V4",
    calls: "DeepSeek V4",
    writes: dsmlCalls("tool_calls"),
    thoughts: { around: ["<think>", "</think>"], isOpen: true },
  },
  "R1-Distill": {
    families: ["llama", "qwen2"],
    models: "DeepSeek-R1-Distill",
    thoughts: { around: ["<think>\n", "\n</think>\n\n"], isOpen: true },
  },
  "gpt-oss": {
    families: ["gpt_oss"],
    models: "gpt-oss",
    calls: "gpt-oss",
    writes: each(
      `<|channel|>commentary to=functions.{{ f.name }} <|constrain|>json<|message|>${json}<|call|>`,
    ),
    thoughts: { around: ["<|channel|>analysis<|message|>", "<|end|><|start|>assistant"], isOpen: false },
    also: "<|channel|>final<|message|>",
  },
  "Gemma 4": {
    families: ["gemma4", "gemma4_unified"],
    models: "Gemma 4",
    calls: "Gemma 4",
    writes: `${bareValue('<|"|>')}${each("<|tool_call>call:{{ f.name }}{{ bare(f.arguments) }}<tool_call|>")}`,
    thoughts: { around: ["<|channel>thought\n", "\n<channel|>"], isOpen: false },
  },
  FunctionGemma: {
    families: ["gemma3"],
    models: "FunctionGemma",
    calls: "FunctionGemma",
    writes: `${bareValue("<escape>")}${each("<start_function_call>call:{{ f.name }}{{ bare(f.arguments) }}<end_function_call>")}`,
    also: "<escape>",
  },
  "Llama 3": {
    families: ["llama"],
    models: "Llama 3.1 to 3.3",
    calls: "Llama's JSON",
    writes: each(`{"name": "{{ f.name }}", "parameters": ${json}}`),
    also: 'Respond in the format {"name": function name, "parameters": dictionary}',
  },
  "Llama's Python": {
    families: ["llama", "llama4_text"],
    models: "Llama 3.2 and 4 with vLLM's templates",
    calls: "Llama's Python",
    writes: block(
      "[",
      `{{ f.name }}(${given(`{{ k }}={{ "'" + v + "'" if v is string else v | tojson if v is sequence else v }}`, ", ")})`,
      ", ",
      "]",
    ),
    also: "respond with [func_name1(params_name1=params_value1)]",
  },
  "Llama 4": {
    families: ["llama4_text"],
    models: "Llama 4",
    calls: "Llama's JSON",
    writes: each(`{"name": "{{ f.name }}", "parameters": ${json}}`),
    also: '<|header_start|> Respond in the format {"name": function name, "parameters": dictionary}',
  },
  "Mistral 7B": {
    families: ["mistral", "mixtral"],
    models: "Mistral 7B 0.3, Mixtral 8x22B",
    calls: "Mistral's spaced list",
    writes: block("[TOOL_CALLS] [", named, ", ", "]"),
  },
  "Mistral Small 3.2": {
    families: ["mistral"],
    models: "Mistral Small 3.2",
    calls: "Mistral's [CALL_ID]",
    writes: each(`[TOOL_CALLS]{{ f.name }}[CALL_ID]{{ c.id }}[ARGS]${json}`),
  },
  "Mistral's earlier": {
    families: ["mistral", "mixtral"],
    models: "Mistral Nemo, Small 2 and 3.1",
    calls: "Mistral's list",
    writes: block("[TOOL_CALLS][", named, ", ", "]"),
  },
  "Mistral's later": {
    families: ["mistral", "ministral3", "mistral4"],
    models: "Ministral 3, Devstral, Magistral, Mistral Small 4",
    calls: "Mistral's [ARGS]",
    writes: each(`[TOOL_CALLS]{{ f.name }}[ARGS]${json}`),
    thoughts: { around: ["[THINK]", "[/THINK]"], isOpen: false },
  },
  Cohere: {
    families: ["cohere2", "cohere2_moe"],
    models: "Command R7B, A",
    calls: "Cohere",
    writes: block(
      "<|START_ACTION|>[\n    ",
      `{"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ f.name }}", "parameters": ${json}}`,
      ",\n    ",
      "\n]<|END_ACTION|>",
    ),
    thoughts: { around: ["<|START_THINKING|>", "<|END_THINKING|>"], isOpen: false },
  },
  "Seed-OSS": {
    families: ["seed_oss"],
    models: "Seed-OSS",
    calls: "Seed-OSS",
    writes: each(
      `<seed:tool_call>\n<function={{ f.name }}>\n${given("<parameter={{ k }}>{{ v }}</parameter>\n")}</function>\n</seed:tool_call>`,
      "\n",
    ),
    thoughts: { around: ["<seed:think>", "</seed:think>\n"], isOpen: false },
  },
  Hunyuan: {
    families: ["hunyuan_v1_dense", "hunyuan_v1_moe"],
    models: "Hunyuan",
    calls: "Hunyuan",
    writes: block(
      "<tool_calls>",
      `<tool_call>{{ f.name }}\n\`\`\`json\n${json}\n\`\`\`</tool_call>`,
      "\n",
      "</tool_calls>",
    ),
    thoughts: { around: ["<think>\n", "\n</think>\n"], isOpen: false },
    also: "{# .split('<answer>') #}",
  },
  "Hunyuan-A13B's list": {
    families: ["hunyuan_v1_moe"],
    models: "Hunyuan-A13B with vLLM's template",
    calls: "Hunyuan's list",
    writes: block("<tool_calls>[", named, ", ", "]</tool_calls>"),
    thoughts: { around: ["<think>\n", "\n</think>\n"], isOpen: false },
    also: "{# .split('<answer>') #}<tool_calls>[",
  },
  "ERNIE 4.5": {
    families: ["ernie4_5_moe"],
    models: "ERNIE 4.5 21B-A3B Thinking",
    calls: "Hermes",
    writes: hermes,
    thoughts: { around: ["<think>\n", "\n</think>\n\n"], isOpen: true },
    also: "<global_setting>",
  },
  "Ling and Ring": {
    families: ["bailing_moe"],
    models: "Ling 2, Ring 2",
    calls: "Hermes",
    writes: hermes,
    thoughts: { around: ["<think>\n", "\n</think>\n\n"], isOpen: false },
  },
  "Ling 3": {
    families: [],
    models: "Ling 3",
    calls: "Ling 3",
    writes: each(
      `<tool_call>{{ f.name }}\n${given(`<arg_key>{{ k }}</arg_key>\n<arg_value>${jsonOrText}</arg_value>`)}{{ '\\n</tool_call>' }}`,
      "\n",
    ),
    thoughts: { around: ["<think>", "</think>"], isOpen: true },
  },
  "MiniCPM 5": {
    families: [],
    models: "MiniCPM 5",
    calls: "MiniCPM 5",
    writes: each(
      `<function name="{{ f.name }}">${given('<param name="{{ k }}">{{ v }}</param>')}</function>`,
      "\n",
    ),
    thoughts: think(false),
  },
  "EXAONE 4": {
    families: ["exaone4"],
    models: "EXAONE 4",
    calls: "EXAONE 4",
    writes: each(`<tool_call>${named}</tool_call>`, "\n"),
    thoughts: think(true),
  },
  "Granite 3": {
    families: ["granite", "granitemoe"],
    models: "Granite 3",
    calls: "Granite 3",
    thoughts: { around: ["<think>", "</think>"], isOpen: false },
    also: "respond only with <|tool_call|> followed by a JSON list. Thoughts are between <think></think>, the response between <response></response>.",
  },
  "Granite 4": {
    families: ["granite", "granitemoehybrid"],
    models: "Granite 4",
    calls: "Hermes",
    writes: hermes,
  },
  "Phi-4-mini": {
    families: ["phi3"],
    models: "Phi-4-mini",
    calls: "Phi-4-mini",
    writes: block("<|tool_call|>[", named, ", ", "]<|/tool_call|>"),
  },
  "Nemotron Nano 2": {
    families: ["nemotron_h", "llama"],
    models: "Nemotron Nano 2, Llama Nemotron",
    calls: "Nemotron 2",
    writes: block("<TOOLCALL>[", named, ", ", "]</TOOLCALL>"),
    thoughts: think(true),
  },
  LFM2: {
    families: ["lfm2", "lfm2_moe"],
    models: "LFM2, LFM2.5",
    calls: "LFM2",
    writes: block(
      "<|tool_call_start|>[",
      `{{ f.name }}(${given(`{{ k }}={{ "'" + v + "'" if v is string else v | tojson if v is sequence else v }}`, ", ")})`,
      ", ",
      "]<|tool_call_end|>",
    ),
    thoughts: { around: ["<think>", "</think>"], isOpen: false },
  },
  "Falcon-H1": { families: ["falcon_h1"], models: "Falcon-H1", calls: "Hermes", also: "<tool_call>" },
  "OLMo 3": {
    families: ["olmo3"],
    models: "OLMo 3",
    calls: "OLMo 3",
    writes: block(
      "<function_calls>",
      `{{ f.name }}(${given(`{{ k }}={{ "'" + v + "'" if v is string else v | tojson }}`, ", ")})`,
      "\n",
      "</function_calls>",
    ),
    also: "<functions>",
    thoughts: think(false),
  },
  Apertus: {
    families: ["apertus"],
    models: "Apertus",
    calls: "Apertus",
    writes: block("<|tools_prefix|>[", `{"{{ f.name }}": ${json}}`, ", ", "]<|tools_suffix|>"),
    thoughts: { around: ["<|inner_prefix|>", "<|inner_suffix|>"], isOpen: false },
  },
};

function dialectOf({ families, models, calls, writes = "", thoughts, also = "" }: Written): Dialect {
  const [before, after] = thoughts?.around ?? ["", ""];
  const isOpen = thoughts?.isOpen ?? false;
  const past = thoughts === undefined ? "" : `${exactly(before)}{{ m.reasoning_content }}${exactly(after)}`;
  return {
    families,
    models,
    calls: calls ?? null,
    thoughts: thoughts === undefined ? null : before.trim(),
    opened: isOpen ? before : "",
    thought: thoughts === undefined ? "" : `${isOpen ? "" : before}${THOUGHT}${after}`,
    template: `{% if tools %}${also}{{ tools | tojson }}{% endif %}{% for m in messages %}<|turn>{{ m.role }}
{% if m.role == 'assistant' %}${past}{{ m.content }}${writes}{% else %}{{ m.content }}{% if m.role == 'tool' %}{{ m.tool_call_id }}{% endif %}{% endif %}<turn|>
{% endfor %}{% if add_generation_prompt %}<|turn>assistant
${isOpen ? exactly(before) : ""}{% endif %}`,
  };
}

export const dialects: ReadonlyMap<string, Dialect> = new Map(
  Object.entries(written).map(([name, one]) => [name, dialectOf(one)]),
);
