import type { ControlTexts, RenderedPrompt } from "./control-text.ts";
import { joinedContents } from "./conversation/content.ts";
import type { ChatMessage, RenderOptions } from "./conversation/messages.ts";
import { ConversationWriter, type WrittenChat } from "./conversation/writer.ts";
import { defaultLimits, type RenderLimits } from "./jinja/budget.ts";
import { JinjaError } from "./jinja/errors.ts";
import { JinjaTemplate } from "./jinja/jinja-template.ts";
import { fromJavaScript, jsonOfText } from "./jinja/json.ts";
import { Dict, isList, type Value } from "./jinja/values.ts";
import { jsonTextOf, rememberJsonText } from "./json-text.ts";
import { TemplateError } from "./template-error.ts";
import type { TemplateSource } from "./template-source.ts";

/**
 * Reserved variables, which clients may not set: they would change the prompt in ways that the API does not
 * show.
 */
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

const mute = "the chat template writes nothing of a user's message";

/** A model's chat template. */
export class ChatTemplate {
  readonly source: TemplateSource;
  readonly #main: JinjaTemplate;
  readonly #withTools: JinjaTemplate;
  readonly #controlTexts: ControlTexts;
  readonly #wallClock: () => Date;
  readonly #limits: RenderLimits;
  /** Default arguments, for requests that do not set them. */
  readonly #usual: Dict;
  readonly #writer = new ConversationWriter(this);
  #problem: { readonly reason: string | null } | null = null;

  /**
   * Throws TemplateError when the template is not valid Jinja. `wallClock` is for templates that name the
   * date.
   */
  constructor(
    source: TemplateSource,
    controlTexts: ControlTexts,
    wallClock: () => Date = () => new Date(),
    limits: RenderLimits = defaultLimits,
  ) {
    this.source = source;
    this.#main = parsed(source.template);
    this.#withTools = source.toolTemplate === null ? this.#main : parsed(source.toolTemplate);
    this.#controlTexts = controlTexts;
    this.#wallClock = wallClock;
    this.#limits = limits;
    const usual = JSON.parse(source.argumentsText ?? "{}") as Record<string, unknown>;
    rememberJsonText(usual, source.argumentsText ?? "{}");
    this.#usual = this.#checkedKwargs(fromJavaScript(usual, jsonTextOf) as Dict);
  }

  /**
   * Reason why no chat is possible: the template refuses a user message, or omits its text. Null if there is
   * none.
   */
  problem(isWanted?: () => boolean): string | null {
    this.#problem ??= { reason: this.#foundProblem(isWanted) };
    return this.#problem.reason;
  }

  #foundProblem(isWanted?: () => boolean): string | null {
    const text = "Azq1";
    try {
      const messages = [{ role: "user", content: text }];
      const rendered = this.#writer.write(messages, { addGenerationPrompt: true }, isWanted);
      const isWritten = rendered.text.toLowerCase().includes(text.toLowerCase());
      return isWritten ? null : mute;
    } catch (error) {
      if (error instanceof TemplateError && error.isOfMessages)
        return `the chat template refuses a user's message: ${error.message}`;
      throw error;
    }
  }

  /** Names of configured default arguments that the template does not use. */
  get unknownArguments(): readonly string[] {
    const names = Object.keys(JSON.parse(this.source.argumentsText ?? "{}"));
    return names.filter((name) => !this.mentions(name, false) && !this.mentions(name, true));
  }

  /** Jinja source for requests with tools, or without. */
  sourceText(withTools: boolean): string {
    const { template, toolTemplate } = this.source;
    return withTools ? (toolTemplate ?? template) : template;
  }

  /** True if the template with tools, or without, contains this name as a word. */
  mentions(name: string, withTools: boolean): boolean {
    return hasWord(this.sourceText(withTools), name);
  }

  /** True if the template with tools, or without, takes a variable of this name from outside. */
  reads(name: string, withTools: boolean): boolean {
    return (withTools ? this.#withTools : this.#main).arguments.has(name);
  }

  /** Renders a conversation, rewritten as far as the template requires. Throws TemplateError. */
  write(messages: readonly ChatMessage[], options: RenderOptions, isWanted?: () => boolean): WrittenChat {
    // Templates of rerankers may know the roles `query` and `document` alone.
    const isChat = messages.some(({ role }) => role === "user");
    if (isChat && this.problem(isWanted) === mute) throw new TemplateError(mute);
    return this.#writer.write(messages, options, isWanted);
  }

  /**
   * Renders messages unchanged to the prompt's text. Control text in messages, tools and kwargs stays text:
   * pass the result to `Tokenizer.encodeRendered`. Throws TemplateError, also once `isWanted` returns false.
   */
  render(
    messages: readonly ChatMessage[],
    options: RenderOptions,
    isWanted: () => boolean = () => true,
  ): RenderedPrompt {
    const tools = options.tools?.length ? options.tools : null;
    const { template, toolTemplate } = this.source;
    const mark = options.continuesLast === true ? freeMark(JSON.stringify(messages) + template) : "";
    const read = (value: unknown): Value => expectNoError(() => fromJavaScript(value, jsonTextOf));
    const given = this.#withUsual(this.#checkedKwargs(read(options.templateKwargs ?? {}) as Dict))
      .set("messages", read(marked(messages.map(asTemplatesRead), mark)))
      .set("tools", read(tools))
      .set("documents", null);
    const disguised = this.#controlTexts.disguise(given, template + (toolTemplate ?? ""));
    if (disguised === null) throw new TemplateError("the messages use every private-use character there is");
    const variables = new Map<string, Value>(Object.entries(this.source.specialTokens));
    for (const [name, value] of (disguised.value as Dict).entries()) variables.set(name as string, value);
    variables.set("add_generation_prompt", options.addGenerationPrompt);
    const { standIns } = disguised;
    const context = { variables, now: this.#wallClock(), limits: this.#limits, standIns, isWanted };
    const jinja = tools === null ? this.#main : this.#withTools;
    const written = expectNoError(() => jinja.render(context));
    const text = withArgumentTexts(written, (disguised.value as Dict).get("messages")!);
    return { text: mark === "" ? text : upTo(mark, text), standIns };
  }

  #withUsual(given: Dict): Dict {
    for (const [name, value] of this.#usual.entries()) if (!given.has(name)) given.set(name, value);
    return given;
  }

  #checkedKwargs(kwargs: Dict): Dict {
    const { specialTokens } = this.source;
    const used = new Dict();
    for (const [key, value] of kwargs.entries()) {
      const name = key as string;
      if (
        ownNames.has(name) ||
        Object.hasOwn(specialTokens, name) ||
        !/^[A-Za-z_][A-Za-z0-9_]{0,63}$/.test(name)
      ) {
        throw new TemplateError(`chat_template_kwargs may not set ${JSON.stringify(name.slice(0, 64))}`);
      }
      // The template's words are the allow-list: a name the template does not know cannot change its outcome.
      if (this.mentions(name, false) || this.mentions(name, true)) used.set(name, value);
    }
    return used;
  }
}

/** The messages with a mark and a space after the content of the last one. */
function marked(messages: readonly ChatMessage[], mark: string): readonly ChatMessage[] {
  const last = messages.at(-1);
  if (mark === "" || last === undefined) return messages;
  return [...messages.slice(0, -1), { ...last, content: joinedContents(last.content, `${mark} `, "") }];
}

/** A noncharacter that does not occur in the text. */
function freeMark(text: string): string {
  for (let code = 0xfdd0; code <= 0xfdef; code++) {
    const mark = String.fromCharCode(code);
    if (!text.includes(mark)) return mark;
  }
  throw new TemplateError("the messages use every character that could mark where to go on");
}

/**
 * Text before the mark. If the template dropped the space after the mark, it trims messages; then spaces
 * before the mark are dropped too.
 */
function upTo(mark: string, text: string): string {
  const end = text.lastIndexOf(mark);
  if (end < 0) throw new TemplateError("the last message is not written as it is, so it cannot be continued");
  return text.startsWith(`${mark} `, end) ? text.slice(0, end) : text.slice(0, end).trimEnd();
}

/** True if the template contains the word, which consists of letters, digits and underscores. */
function hasWord(template: string, word: string): boolean {
  return new RegExp(`\\b${word}\\b`).test(template);
}

function parsed(template: string): JinjaTemplate {
  return expectNoError(() => new JinjaTemplate(template), "the chat template is not valid Jinja: ");
}

/**
 * Runs a template and turns its own errors into TemplateError. They name parts of the template (a missing
 * variable, an operation on null), never the server's state.
 */
function expectNoError<Result>(run: () => Result, prefix = ""): Result {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof JinjaError)) throw error;
    throw new TemplateError(prefix + error.message, error.kind !== "LimitError");
  }
}

/** Writes argument texts of calls verbatim, also where the template turned them into JSON strings. */
function withArgumentTexts(written: string, messages: Value): string {
  const members = (value: Value | undefined, name: string): Value | undefined =>
    value instanceof Dict ? value.get(name) : undefined;
  const listOf = (value: Value | undefined): readonly Value[] =>
    value !== undefined && isList(value) ? value : [];
  let text = written;
  for (const call of listOf(messages).flatMap((message) => listOf(members(message, "tool_calls")))) {
    const given = members(members(call, "function"), "arguments");
    if (typeof given === "string" && given !== "") text = text.replaceAll(jsonOfText(given), () => given);
  }
  return text;
}

/** The message with reasoning under both names that templates use, as in transformers. */
function asTemplatesRead(message: ChatMessage): ChatMessage {
  const reasoning = message.reasoning_content ?? message.thinking ?? message.reasoning ?? null;
  return reasoning === null ? message : { thinking: reasoning, ...message, reasoning_content: reasoning };
}
