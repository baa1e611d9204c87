/** Chat templates of our own with the demands of published ones that decide whether a conversation's prompts go on. */
import { dialects } from "./dialects.ts";

export interface PromptShape {
  readonly template: string;
  /** Thoughts of an answer as the model writes them, up to the text. */
  readonly thought: string;
  /** Row of the table of equal prompts in docs/reference/conversations.md: the past thoughts that the template writes. */
  readonly row: string;
}

interface Demands {
  /** Past thoughts that the template writes. */
  readonly thoughts: "all" | "since the question" | "none";
  /** Place of system messages: any, at the beginning alone, or joined there by the template. */
  readonly system: "anywhere" | "first" | "joined first";
  /** True if users and the assistant must take turns. */
  readonly takesTurns?: boolean;
  /** True if results in a row share a user's turn. */
  readonly joinsResults?: boolean;
  /** True if calls' arguments are joined with other texts. */
  readonly joinsArguments?: boolean;
}

const refuse = (reason: string): string => `{{ raise_exception(${JSON.stringify(reason)}) }}`;

/** A template in the form of Qwen 3, which these demands change. */
function templateOf({ thoughts, system, takesTurns, joinsResults, joinsArguments }: Demands): string {
  const json = joinsArguments
    ? `{{ '{"name": "' + f.name + '", "arguments": ' + f.arguments + '}' }}`
    : `{"name": "{{ f.name }}", "arguments": {{ f.arguments if f.arguments is string else f.arguments | tojson }}}`;
  const call = `{{ "\\n" if not loop.first or m.content }}<tool_call>\n${json}\n</tool_call>`;
  const calls = `{% for c in m.tool_calls or [] %}{% set f = c.function %}${call}{% endfor %}`;
  const shown = { all: "true", "since the question": "loop.index0 > ns.asked", none: "false" }[thoughts];
  const past = `{% if m.reasoning_content and ${shown} %}{{ "<think>\\n" + m.reasoning_content + "\\n</think>\\n\\n" }}{% endif %}`;
  const isFirst =
    system === "first"
      ? `{% if m.role == 'system' and not loop.first %}${refuse("System message must be at the beginning.")}{% endif %}`
      : "";
  const turns = takesTurns
    ? `{% if m.role == 'user' and ns.before in ['user', 'tool'] or m.role == 'assistant' and not m.tool_calls and ns.before == 'assistant' %}${refuse("Roles must take turns.")}{% endif %}{% set ns.before = m.role %}`
    : "";
  const result = joinsResults
    ? `{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}{{ "\\n<tool_response>\\n" + m.content + "\\n</tool_response>" }}{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ "<|im_end|>\\n" }}{% endif %}`
    : `{{ "<|im_start|>tool\\n" + m.content + "<|im_end|>\\n" }}`;
  const joined = system === "joined first";
  const head = joined
    ? `{% for m in messages %}{% if m.role == 'system' %}{% set ns.system = ns.system + m.content %}{% endif %}{% endfor %}{{ ns.system }}`
    : "";
  const skips = joined ? "{% if m.role == 'system' %}{% continue %}{% endif %}" : "";
  return `{% set ns = namespace(asked=-1, before='', system='') %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.asked = loop.index0 %}{% endif %}{% endfor %}${head}{% if tools %}# Tools\n{{ tools | tojson }}\n{% endif %}{% for m in messages %}${skips}${isFirst}${turns}{% if m.role == 'tool' %}${result}{% elif m.role == 'assistant' %}{{ "<|im_start|>assistant\\n" }}${past}{{ m.content or '' }}${calls}{{ "<|im_end|>\\n" }}{% else %}{{ "<|im_start|>" + m.role + "\\n" + m.content + "<|im_end|>\\n" }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}{% endif %}`;
}

const rows = { all: "all", "since the question": "since the last question", none: "dropped" };

function shape(name: string, demands: Demands): readonly [string, PromptShape] {
  const { thought } = dialects.get("Qwen 3")!;
  return [name, { template: templateOf(demands), thought, row: rows[demands.thoughts] }];
}

/** Shapes by their demands. In brackets models whose templates are like that. */
export const promptShapes: ReadonlyMap<string, PromptShape> = new Map([
  shape("all thoughts", { thoughts: "all", system: "anywhere" }),
  shape("thoughts since the last question (Qwen 3, GLM 4.5)", {
    ...{ thoughts: "since the question", system: "anywhere", joinsResults: true },
  }),
  shape("no past thoughts (DeepSeek R1)", { thoughts: "none", system: "anywhere" }),
  shape("a system message at the beginning alone", { thoughts: "all", system: "first", joinsResults: true }),
  shape("the same, and thoughts since the last question (Qwen 3.5)", {
    ...{ thoughts: "since the question", system: "first", joinsResults: true },
  }),
  shape("system messages joined at the beginning (DeepSeek V3)", { thoughts: "all", system: "joined first" }),
  shape("users and the assistant in turn (Mistral, Gemma)", {
    ...{ thoughts: "all", system: "first", takesTurns: true },
  }),
  shape("arguments as a text (DeepSeek V3)", {
    ...{ thoughts: "all", system: "anywhere", joinsArguments: true },
  }),
]);
