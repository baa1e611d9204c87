/**
 * Chat templates of our own with the forms and demands of model families: order of roles, ids, types of
 * arguments, text beside calls.
 */

const refuse = (reason: string): string => `{{ raise_exception('${reason}') }}`;
const offered = (mark: string): string => `{% if tools %}${mark}{{ tools | tojson }}\n{% endif %}`;

/** Macro that checks alternating roles, apart from calls and their results. */
const turns = `{% set ns = namespace(turn = 0) %}{% for m in rest %}
  {%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}
    {%- if (m.role == 'user') != (ns.turn % 2 == 0) %}${refuse("roles must take turns")}{% endif %}
    {%- set ns.turn = ns.turn + 1 %}
  {%- endif %}
{%- endfor %}`;

const head = `{% if messages[0].role == 'system' %}{% set first = messages[0].content %}{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}`;

const nineLetters = (id: string): string =>
  `{% if ${id} is not defined or ${id} | length != 9 %}${refuse("ids have nine letters")}{% endif %}`;

export const familyTemplates: Readonly<Record<string, string>> = {
  mistral: `${head}${turns}[INST]{{ first }}[/INST]${offered("[AVAILABLE_TOOLS]")}{% for m in rest %}
  {%- if m.role == 'user' %}[INST] {{ m.content }}[/INST]
  {%- elif m.tool_calls is defined and m.tool_calls is not none %}[TOOL_CALLS] [
    {%- for call in m.tool_calls %}${nineLetters("call.id")}{{ call.function | tojson }}, {{ call.id }}{% endfor %}]</s>
  {%- elif m.role == 'assistant' %} {{ m.content | trim }}</s>
  {%- elif m.role == 'tool' %}${nineLetters("m.tool_call_id")}[TOOL_RESULTS] {"content": {{ m.content }}, "call_id": "{{ m.tool_call_id }}"}[/TOOL_RESULTS]
  {%- else %}${refuse("only user and assistant roles")}{% endif %}{% endfor %}`,

  "mistral's later": `${head}${turns}[SYSTEM_PROMPT]{{ first }}[/SYSTEM_PROMPT]${offered("[AVAILABLE_TOOLS]")}{% for m in rest %}
  {%- if m.role == 'user' %}[INST]{{ m.content }}[/INST]
  {%- elif m.role == 'assistant' %}
    {%- if not m.content and not m.tool_calls %}${refuse("an assistant says or calls something")}{% endif %}{{ m.content }}
    {%- for call in m.tool_calls or [] %}${nineLetters("call.id")}[TOOL_CALLS]{{ call.function.name }}[ARGS]
      {{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}{% endfor %}</s>
  {%- elif m.role == 'tool' %}${nineLetters("m.tool_call_id")}[TOOL_RESULTS]{{ m.tool_call_id }}[TOOL_CONTENT]{{ m.content }}[/TOOL_RESULTS]
  {%- else %}${refuse("no such role")}{% endif %}{% endfor %}`,

  "llama 3": `${head}<|start_header_id|>system<|end_header_id|>{{ first }}<|eot_id|>
{%- if tools %}{% if not rest or rest[0].role != 'user' %}${refuse("no first user message")}{% endif %}{{ tools | tojson }}
Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.{% endif %}
{%- for m in rest %}
  {%- if 'tool_calls' in m %}
    {%- if m.tool_calls | length != 1 %}${refuse("single tool-calls only")}{% endif %}
    {%- set call = m.tool_calls[0].function %}<|start_header_id|>assistant<|end_header_id|>{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}<|eot_id|>
  {%- elif m.role == 'tool' %}<|start_header_id|>ipython<|end_header_id|>{{ m.content | tojson }}<|eot_id|>
  {%- else %}<|start_header_id|>{{ m.role }}<|end_header_id|>{{ m.content | trim }}<|eot_id|>{% endif %}{% endfor %}`,

  "qwen 3": `${offered("# Tools")}{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}
{% if m.role == 'tool' %}<tool_response>{{ m.content }}</tool_response>{% else %}{% if m.reasoning_content is string %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% endif %}
  {%- for call in m.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {% if call.function.arguments is string %}{{ call.function.arguments }}{% else %}{{ call.function.arguments | tojson }}{% endif %}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`,

  "qwen 3.5": `${offered("# Tools")}{% set ns = namespace(asked = false) %}{% for m in messages %}
  {%- if m.role == 'user' %}{% set ns.asked = true %}{% endif %}{% endfor %}
  {%- if not ns.asked %}${refuse("No user query found in messages.")}{% endif %}{% for m in messages %}
  {%- if m.role == 'system' and not loop.first %}${refuse("System message must be at the beginning.")}{% endif %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls or [] %}
<tool_call>
<function={{ call.function.name }}>
{% for name, value in call.function.arguments | items %}<parameter={{ name }}>
{{ value if value is string else value | tojson }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}<|im_end|>{# tool #}
{% endfor %}`,

  "gemma 2": `{% if messages[0].role == 'system' %}${refuse("System role not supported")}{% endif %}{% for m in messages %}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}${refuse("Conversation roles must alternate")}{% endif -%}
<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content | trim }}<end_of_turn>
{% endfor %}`,

  "gemma 3": `${head}{% for m in rest %}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}${refuse("Conversation roles must alternate")}{% endif -%}
<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}
{% if loop.first %}{{ first }}

{% endif %}{{ m.content | trim }}<end_of_turn>
{% endfor %}`,

  "gemma 4": `${offered("<|tool>")}{% for m in messages %}<|turn>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls or [] %}<|tool_call>call:{{ call.function.name }}{
    {%- if call.function.arguments is mapping %}{% for name, value in call.function.arguments | dictsort %}{{ name }}:<|"|>{{ value }}<|"|>{% endfor %}
    {%- else %}{{ call.function.arguments }}{% endif %}}<tool_call|>{% endfor %}<turn|>{# tool #}
{% endfor %}`,

  "gpt-oss": `${offered("namespace functions. ")}{% set ns = namespace(called = none) %}
{%- if messages[0].role in ['developer', 'system'] %}<|start|>developer<|message|>{{ messages[0].content }}<|end|>{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}
{%- for m in rest %}
  {%- if m.role == 'assistant' and 'tool_calls' in m %}
    {%- if m.content and m.thinking %}${refuse("Cannot pass both content and thinking")}{% endif %}<|start|>assistant<|channel|>analysis<|message|>{{ m.content or m.thinking }}<|end|>
    {%- set call = m.tool_calls[0].function %}{% set ns.called = call.name %}<|start|>assistant<|channel|>commentary to=functions.{{ call.name }} <|constrain|>json<|message|>{{ call.arguments | tojson }}<|call|>
  {%- elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{% set ns.called = none %}
  {%- elif m.role == 'tool' %}{% if ns.called is none %}${refuse("no previous assistant message with a tool call")}{% endif %}<|start|>functions.{{ ns.called }} to=assistant<|channel|>commentary<|message|>{{ m.content | tojson }}<|end|>
  {%- elif m.role == 'user' %}<|start|>user<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}`,

  glm: `[gMASK]<sop>${offered("<|system|>")}{% for m in messages %}
  {%- if m.role == 'tool' %}<|observation|><tool_response>{{ m.content }}</tool_response>
  {%- else %}<|{{ m.role }}|>{{ m.content }}{% endif %}
  {%- for call in m.tool_calls or [] %}<tool_call>{{ call.function.name }}{% for name, value in call.function.arguments.items() %}<arg_key>{{ name }}</arg_key><arg_value>{{ value if value is string else value | tojson }}</arg_value>{% endfor %}</tool_call>{% endfor %}
{%- endfor %}`,

  deepseek: `{% set ns = namespace(system = '') %}{% for m in messages %}{% if m.role == 'system' %}{% set ns.system = ns.system + m.content %}{% endif %}{% endfor %}{{ ns.system }}${offered("## Tools")}{% for m in messages %}
  {%- if m.role == 'user' %}<｜User｜>{{ m.content }}
  {%- elif m.role == 'assistant' and m.content is none %}<｜Assistant｜><｜tool▁calls▁begin｜>{% for call in m.tool_calls %}{{ '<｜tool▁call▁begin｜>' + call.type + '<｜tool▁sep｜>' + call.function.name + '\n\`\`\`json\n' + call.function.arguments + '\n\`\`\`<｜tool▁call▁end｜>' }}{% endfor %}<｜tool▁calls▁end｜>
  {%- elif m.role == 'assistant' %}<｜Assistant｜>{{ m.content }}<｜end▁of▁sentence｜>
  {%- elif m.role == 'tool' %}<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜>{% endif %}{% endfor %}`,

  "phi 4": `{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>`,

  cohere: `${offered("# Available Tools")}{% set ns = namespace(place = 0) %}{% for m in messages %}
  {%- if m.role == 'tool' %}<|START_TOOL_RESULT|>{"tool_call_id": "{{ ns.place }}", "results": {{ m.content | tojson }}}<|END_TOOL_RESULT|>{% set ns.place = ns.place + 1 %}
  {%- elif m.tool_calls %}<|START_THINKING|>{{ m.content }}<|END_THINKING|><|START_ACTION|>[{% for call in m.tool_calls %}{"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}{% endfor %}]<|END_ACTION|>
  {%- else %}<|{{ m.role }}|>{{ m.content }}{% endif %}{% endfor %}`,

  granite: `${offered("<|start_of_role|>tools<|end_of_role|>")}{% for m in messages %}<|start_of_role|>{{ 'tool_response' if m.role == 'tool' else m.role }}<|end_of_role|>{{ m.content }}
  {%- for call in m.tool_calls or [] %}<tool_call>[{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}]{% endfor %}<|end_of_text|>
{% endfor %}`,

  kimi: `${offered("<|im_system|>tool_declare")}{% for m in messages %}<|im_{{ m.role }}|>{% if m.role == 'tool' %}## Return of {{ m.tool_call_id }}
{% endif %}{{ m.content }}{% if m.tool_calls %}<|tool_calls_section_begin|>{% for call in m.tool_calls %}<|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>{% if call.function.arguments is string %}{{ call.function.arguments }}{% else %}{{ call.function.arguments | tojson }}{% endif %}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}<|im_end|>{% endfor %}`,
};
