import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Environment, Interpreter, parse, tokenize } from "@huggingface/jinja";
import type { ControlTexts, RenderedPrompt } from "./control-text.ts";

/** A part of a message's content; only text is known. */
export interface TextPart {
  readonly type: "text";
  readonly text: string;
}

/** A message as the chat API has it. Further fields (name, tool_calls, …) reach the template as they are. */
export interface ChatMessage {
  readonly role: string;
  readonly content?: string | readonly TextPart[] | null | undefined;
  readonly [field: string]: unknown;
}

export interface RenderOptions {
  /** Open the assistant's turn at the end. */
  readonly addGenerationPrompt: boolean;
  /** Function definitions as the API has them; null or empty: none. */
  readonly tools?: readonly unknown[] | null;
  /** Further template variables from the client. Our own names are refused; those the template ignores are too. */
  readonly templateKwargs?: Readonly<Record<string, unknown>>;
}

/** The template refused the messages, or ran away. The sentence is fit for the client. */
export class TemplateError extends Error {
  override readonly name = "TemplateError";
}

/** What a chat template is made of. */
export interface TemplateSource {
  /** Jinja. */
  readonly template: string;
  /** Used instead when tools are given. */
  readonly toolTemplate: string | null;
  /** bos_token, eos_token and the like, as the template's variables. */
  readonly specialTokens: Readonly<Record<string, string>>;
}

/** Limits on what a template may do, far above honest use. */
export interface TemplateLimits {
  /** Evaluated nodes of the template's syntax tree. */
  readonly operationsMax: number;
  /** UTF-16 units of any string made on the way, the prompt included. */
  readonly lengthMax: number;
}

/** Nodes within nodes, macros that call macros included. */
const depthMax = 400;

const defaultLimits: TemplateLimits = { operationsMax: 2_000_000, lengthMax: 64 * 1024 * 1024 };

type Program = ReturnType<typeof parse>;

/** Variables that are ours: a client that sets one would change what is rendered behind the API's back. */
const ownNames = new Set([
  "messages",
  "tools",
  "documents",
  "add_generation_prompt",
  "continue_final_message",
  "chat_template",
  "conversation",
  "tokenize",
  "tokenizer",
  "padding",
  "truncation",
  "max_length",
  "return_tensors",
  "return_dict",
  "tokenizer_kwargs",
  "raise_exception",
  "strftime_now",
  "range",
  "namespace",
  "loop",
  "true",
  "false",
  "none",
  "True",
  "False",
  "None",
]);

/** A model's chat template. */
export class ChatTemplate {
  readonly #source: TemplateSource;
  readonly #main: Program;
  readonly #withTools: Program;
  readonly #controlTexts: ControlTexts;
  readonly #wallClock: () => Date;
  readonly #limits: TemplateLimits;

  /** Throws TemplateError when the template is not valid Jinja. `wallClock` is for templates that name the date. */
  constructor(
    source: TemplateSource,
    controlTexts: ControlTexts,
    wallClock: () => Date = () => new Date(),
    limits: TemplateLimits = defaultLimits,
  ) {
    this.#source = source;
    this.#main = parsed(source.template);
    this.#withTools = source.toolTemplate === null ? this.#main : parsed(source.toolTemplate);
    this.#controlTexts = controlTexts;
    this.#wallClock = wallClock;
    this.#limits = limits;
  }

  /** Whether the template that renders with tools, or without, reads a variable or a field of this name. */
  mentions(name: string, withTools: boolean): boolean {
    const { template, toolTemplate } = this.#source;
    return hasWord(withTools ? (toolTemplate ?? template) : template, name);
  }

  /**
   * Renders messages to the prompt's text. Control text in messages, tools and kwargs stays text: hand the result to
   * `Tokenizer.encodeRendered`. Content given in parts is joined with newlines. Throws TemplateError.
   */
  render(messages: readonly ChatMessage[], options: RenderOptions): RenderedPrompt {
    const tools = options.tools?.length ? options.tools : null;
    const kwargs = this.#checkedKwargs(options.templateKwargs ?? {});
    const { template, toolTemplate } = this.#source;
    const disguised = this.#controlTexts.disguise(
      [messages.map(withPlainContent), tools, kwargs] as const,
      template + (toolTemplate ?? ""),
    );
    if (disguised === null) throw new TemplateError("the messages use every private-use character there is");
    const [safeMessages, safeTools, safeKwargs] = disguised.values;
    const variables = {
      ...this.#source.specialTokens,
      ...safeKwargs,
      messages: safeMessages,
      tools: safeTools,
      documents: null,
      add_generation_prompt: options.addGenerationPrompt,
    };
    const text = this.#run(tools === null ? this.#main : this.#withTools, variables);
    return { text, standIns: disguised.standIns };
  }

  #run(program: Program, variables: Readonly<Record<string, unknown>>): string {
    const environment = new Environment();
    const globals = templateGlobals(this.#wallClock, this.#limits);
    for (const [name, value] of Object.entries({ ...globals, ...variables })) environment.set(name, value);
    try {
      const result = new BoundedInterpreter(environment, this.#limits).run(program);
      return String(result.value);
    } catch (error) {
      if (error instanceof TemplateError) throw error;
      // The library's own errors (a missing variable, an operation on null) name template parts, never our state.
      throw new TemplateError(messageOf(error));
    }
  }

  #checkedKwargs(kwargs: Readonly<Record<string, unknown>>): Record<string, unknown> {
    const { template, toolTemplate, specialTokens } = this.#source;
    const used: Record<string, unknown> = {};
    for (const [name, value] of Object.entries(kwargs)) {
      if (
        ownNames.has(name) ||
        Object.hasOwn(specialTokens, name) ||
        !/^[A-Za-z_][A-Za-z0-9_]{0,63}$/.test(name)
      ) {
        throw new TemplateError(`chat_template_kwargs may not set ${JSON.stringify(name.slice(0, 64))}`);
      }
      // Template words are the allow-list: a name the template does not know cannot change its outcome.
      if (hasWord(template, name) || (toolTemplate !== null && hasWord(toolTemplate, name)))
        used[name] = value;
    }
    return used;
  }
}

/**
 * A folder's chat template: chat_template.jinja, else tokenizer_config.json's `chat_template`, a string or a list of
 * named ones. Null when the model has none: it can complete but not chat. Throws TemplateError.
 */
export function readTemplateSource(folder: string): TemplateSource | null {
  const configPath = join(folder, "tokenizer_config.json");
  const config = existsSync(configPath)
    ? (JSON.parse(readFileSync(configPath, "utf8")) as Record<string, unknown>)
    : {};
  const filePath = join(folder, "chat_template.jinja");
  const named = existsSync(filePath) ? readFileSync(filePath, "utf8") : config.chat_template;
  const specialTokens = specialTokensOf(config);
  if (typeof named === "string") return { template: named, toolTemplate: null, specialTokens };
  if (!Array.isArray(named)) return null;
  const byName = new Map(
    (named as { name: string; template: string }[]).map((entry) => [entry.name, entry.template]),
  );
  const template = byName.get("default");
  if (template === undefined) {
    throw new TemplateError(
      `${configPath}: chat_template has no "default" among ${[...byName.keys()].join(", ")}`,
    );
  }
  return { template, toolTemplate: byName.get("tool_use") ?? null, specialTokens };
}

function specialTokensOf(config: Readonly<Record<string, unknown>>): Record<string, string> {
  const tokens: Record<string, string> = {};
  for (const name of [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
  ]) {
    const value = config[name] as string | { content?: unknown } | null | undefined;
    const text = typeof value === "string" ? value : value?.content;
    if (typeof text === "string") tokens[name] = text;
  }
  return tokens;
}

/** `word` consists of letters, digits and underscores. */
function hasWord(template: string, word: string): boolean {
  return new RegExp(`\\b${word}\\b`).test(template);
}

function parsed(template: string): Program {
  try {
    return parse(tokenize(template, { lstrip_blocks: true, trim_blocks: true }));
  } catch (error) {
    throw new TemplateError(`the chat template is not valid Jinja: ${messageOf(error)}`);
  }
}

function withPlainContent(message: ChatMessage): ChatMessage {
  const { content } = message;
  return Array.isArray(content)
    ? { ...message, content: content.map((part: TextPart) => part.text).join("\n") }
    : message;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** What transformers gives to every template, but bounded and with our clock. */
function templateGlobals(wallClock: () => Date, limits: TemplateLimits): Record<string, unknown> {
  return {
    true: true,
    True: true,
    false: false,
    False: false,
    none: null,
    None: null,
    raise_exception(message: unknown) {
      throw new TemplateError(
        typeof message === "string" ? message : "the chat template refused the messages",
      );
    },
    range(first: number, second?: number, step = 1) {
      const [from, to] = second === undefined ? [0, first] : [first, second];
      const count = Math.max(0, Math.ceil((to - from) / step));
      if (!(count <= limits.operationsMax)) throw new TemplateError("the chat template loops too often");
      return Array.from({ length: count }, (_, i) => from + i * step);
    },
    strftime_now: (format: string) => formatDate(wallClock(), format),
  };
}

/** Python's strftime in the C locale, in UTC: the directives that templates use; others stay as they are. */
function formatDate(date: Date, format: string): string {
  const two = (value: number): string => String(value).padStart(2, "0");
  const hour12 = date.getUTCHours() % 12 || 12;
  const name = (options: Intl.DateTimeFormatOptions): string =>
    new Intl.DateTimeFormat("en-US", { ...options, timeZone: "UTC" }).format(date);
  const fields: Readonly<Record<string, () => string>> = {
    Y: () => String(date.getUTCFullYear()),
    y: () => two(date.getUTCFullYear() % 100),
    m: () => two(date.getUTCMonth() + 1),
    d: () => two(date.getUTCDate()),
    B: () => name({ month: "long" }),
    b: () => name({ month: "short" }),
    A: () => name({ weekday: "long" }),
    a: () => name({ weekday: "short" }),
    H: () => two(date.getUTCHours()),
    I: () => two(hour12),
    p: () => (date.getUTCHours() < 12 ? "AM" : "PM"),
    M: () => two(date.getUTCMinutes()),
    S: () => two(date.getUTCSeconds()),
    "%": () => "%",
  };
  return format.replace(/%(.)/g, (directive, letter: string) => fields[letter]?.() ?? directive);
}

type Node = Parameters<Interpreter["evaluate"]>[0];
type Value = ReturnType<Interpreter["evaluate"]>;

/** Stops a template that loops or grows without end. */
class BoundedInterpreter extends Interpreter {
  readonly #limits: TemplateLimits;
  /** Expressions that loops run over: each item is an operation, even when the loop's body is empty. */
  readonly #iterables = new Set<unknown>();
  #operations = 0;
  #depth = 0;

  constructor(environment: Environment, limits: TemplateLimits) {
    super(environment);
    this.#limits = limits;
  }

  override evaluate(node: Node, environment: Environment): Value {
    if (node?.type === "For") this.#iterables.add(iterableOf(node));
    this.#spend(1);
    const value = this.#evaluateDeeper(node, environment);
    if (node !== undefined && this.#iterables.has(node) && Array.isArray(value.value))
      this.#spend(value.value.length);
    if (typeof value.value === "string" && value.value.length > this.#limits.lengthMax) {
      throw new TemplateError(
        `the chat template made a text of more than ${this.#limits.lengthMax} characters`,
      );
    }
    return value;
  }
  #evaluateDeeper(node: Node, environment: Environment): Value {
    if (this.#depth >= depthMax) throw new TemplateError("the chat template recurses too deep");
    this.#depth++;
    try {
      return super.evaluate(node, environment);
    } finally {
      this.#depth--; // `continue` and `break` are exceptions: they pass here too
    }
  }

  #spend(operations: number): void {
    this.#operations += operations;
    if (this.#operations > this.#limits.operationsMax) {
      throw new TemplateError(`the chat template took more than ${this.#limits.operationsMax} operations`);
    }
  }
}

/** What a `for` statement evaluates first; with an inline `if`, the list before it. */
function iterableOf(loop: Node): unknown {
  const { iterable } = loop as unknown as { iterable: { type: string; lhs?: unknown } };
  return iterable.type === "SelectExpression" ? iterable.lhs : iterable;
}
