/** Part of a chat template that the writer uses; implemented by `ChatTemplate`. */
export interface ConversationTemplate {
  render(messages: readonly ChatMessage[], options: RenderOptions, isWanted?: () => boolean): RenderedPrompt;
  mentions(word: string, withTools: boolean): boolean;
  sourceText(withTools: boolean): string;
}

/** A conversation as written by a chat template. */

import { isDeepStrictEqual } from "node:util";
import { type CallForm, triggersOf } from "../../grammar/tools/call-form.ts";
import type { RenderedPrompt } from "../control-text.ts";
import { callFormIn } from "../formats/call-forms.ts";
import { CallReader } from "../formats/call-reader.ts";
import { TemplateError } from "../template-error.ts";
import { type CallStyle, callStyles, inStyle, plainStyle } from "./call-style.ts";
import { type ContentForms, formsFound, inForm, partOf, plainForms } from "./content.ts";
import type { ChatMessage, Content, RenderOptions } from "./messages.ts";
import { callsOf, type PastCall } from "./messages.ts";
import { type OffersPlace, offeredIn, placeOfOffers, probeOffer } from "./offers.ts";
import { paired } from "./pairs.ts";
import { caller, type Rule, result, rules } from "./rules.ts";

export interface WrittenChat extends RenderedPrompt {
  /** Fields whose value in the prompt differs from the one that the client sent. */
  readonly ignored: readonly string[];
}

/** Effect of a rule: none, applied, or only reported because it does not help. */
type Need = "none" | "applied" | "reported";

/**
 * Writes conversations of any client with a chat template, whatever order, ids and roles the template
 * requires. Finds these requirements with small probe conversations, each rendered once, when it is first
 * needed. Rewrites therefore depend only on the template: later turns do not change the prompt of earlier
 * ones.
 */
export class ConversationWriter {
  readonly #template: ConversationTemplate;
  readonly #needs = new Map<string, Need>();
  readonly #styles = new Map<boolean, CallStyle>();
  #offers: OffersPlace | null = null;
  readonly #callForms = new Map<boolean, CallForm | null>();
  readonly #forms = new Map<string, ContentForms>();
  /** Returns false once no request waits for the conversation that is being written. */
  #isWanted: () => boolean = () => true;

  constructor(template: ConversationTemplate) {
    this.#template = template;
  }

  /**
   * Applies the rules that the template needs; if it refuses the result, all harmless rules too. Throws
   * TemplateError.
   */
  write(
    messages: readonly ChatMessage[],
    options: RenderOptions,
    isWanted: () => boolean = () => true,
  ): WrittenChat {
    this.#isWanted = isWanted;
    const withTools = (options.tools?.length ?? 0) > 0;
    const given: readonly ChatMessage[] = paired(messages).map((message) => this.#formed(message, withTools));
    const context = {
      continuesLast: options.continuesLast === true,
      form: this.#callForm(withTools),
    };
    const rendered = (needOf: (rule: Rule) => Need): WrittenChat => {
      const ignored = new Set<string>(withTools && this.#offersPlace() === "none" ? ["tools"] : []);
      let current = given;
      for (const rule of rules) {
        const next = rule.apply(current, context);
        const need = next === current ? "none" : needOf(rule);
        if (need === "applied") current = next;
        if (need !== "none" && rule.ignoredAs !== null) ignored.add(rule.ignoredAs);
      }
      return { ...this.#render(current, options, withTools), ignored: [...ignored] };
    };
    try {
      return rendered((rule) => this.#needOf(rule, withTools));
    } catch (error) {
      if (!(error instanceof TemplateError) || !error.isOfMessages) throw error;
      try {
        return rendered((rule) => (rule.isHarmless ? "applied" : this.#needOf(rule, withTools)));
      } catch {
        throw error;
      }
    }
  }

  #render(messages: readonly ChatMessage[], options: RenderOptions, withTools: boolean): RenderedPrompt {
    const hasCalls = messages.some((message) => message.role === "tool" || callsOf(message).length > 0);
    const styled = hasCalls ? inStyle(messages, this.#style(withTools)) : messages;
    // Rules may have changed a role, or made a text.
    const formed = styled.map((message) => this.#formed(message, withTools));
    const { tools } = options;
    const placed = withTools ? offeredIn(this.#offersPlace(), formed, tools!) : formed;
    return this.#template.render(placed, options, this.#isWanted);
  }

  #offersPlace(): OffersPlace {
    this.#offers ??= placeOfOffers((messages) => {
      const formed = messages.map((message) => this.#formed(message, true));
      return this.#written(formed, true, probeOffer);
    });
    return this.#offers;
  }

  #formed(message: ChatMessage, withTools: boolean): ChatMessage {
    return inForm(message, this.#formsOf(message.role, withTools));
  }

  #formsOf(role: string, withTools: boolean): ContentForms {
    const key = `${role} ${withTools}`;
    const known = this.#forms.get(key);
    if (known !== undefined) return known;
    const asked: ChatMessage = { role: "user", content: "Czq3" };
    const user = role === "user" ? asked : this.#formed(asked, withTools);
    const style = role === "tool" ? this.#style(withTools) : plainStyle;
    const around = (content: Content): readonly ChatMessage[] => {
      const message = { role, content };
      if (role === "user") return [message];
      if (role === "tool") return inStyle([user, caller("Dzq4"), { ...result(""), content }], style);
      return role === "assistant" ? [user, message, user] : [message, user];
    };
    const forms = formsFound((content) => this.#written(around(content), withTools)) ?? plainForms;
    this.#forms.set(key, forms);
    return forms;
  }

  #needOf(rule: Rule, withTools: boolean): Need {
    const key = `${rules.indexOf(rule)} ${withTools}`;
    const known = this.#needs.get(key);
    if (known !== undefined) return known;
    const need = this.#foundNeed(rule, withTools);
    this.#needs.set(key, need);
    return need;
  }

  #foundNeed(rule: Rule, withTools: boolean): Need {
    const { words = [], asked, shown, isInOrder = false, mustHelp = false, apply } = rule;
    if (!words.every((word) => this.#template.mentions(word, withTools))) return "applied";
    const shows = (messages: readonly ChatMessage[]): boolean => {
      const formed = messages.map((message) => this.#formed(message, withTools));
      return this.#shows(inStyle(formed, this.#style(withTools)), shown, withTools, isInOrder);
    };
    if (shows(asked)) return "none";
    return mustHelp && !shows(apply(asked, { continuesLast: false, form: null })) ? "reported" : "applied";
  }

  #callForm(withTools: boolean): CallForm | null {
    const known = this.#callForms.get(withTools);
    if (known !== undefined) return known;
    const form = callFormIn(this.#template.sourceText(withTools));
    this.#callForms.set(withTools, form);
    return form;
  }

  /**
   * First style in which the template writes all parts of calls and results, and the calls in the model's own
   * format. If there is none, the first style in which it writes all parts.
   */
  #style(withTools: boolean): CallStyle {
    const known = this.#styles.get(withTools);
    if (known !== undefined) return known;
    const found = this.#foundStyle(withTools);
    this.#styles.set(withTools, found ?? plainStyle);
    if (found === null) return plainStyle;
    const style = { ...found, cut: this.#cutOf(found, withTools) };
    this.#styles.set(withTools, style);
    return style;
  }

  #foundStyle(withTools: boolean): CallStyle | null {
    const form = this.#callForm(withTools);
    const user = this.#formed({ role: "user", content: "Azq1" }, withTools);
    const calls = this.#formed(caller("Bzq2", "Czq3"), withTools);
    const shown = ["look0", "look1", "Bzq2", "Czq3", "Dzq4", "Ezq5"];
    let complete: CallStyle | null = null;
    for (const contentOf of [(text: string) => text, (text: string) => [partOf(text)]]) {
      const results = ["Dzq4", "Ezq5"].map((text, index) => ({
        ...result("", index),
        content: contentOf(text),
      }));
      for (const style of callStyles(form?.arguments.kind === "tagged")) {
        const text = this.#written(inStyle([user, calls, ...results], style), withTools);
        if (text === null || !shown.every((one) => text.includes(one))) continue;
        if (form === null || this.#readsBack(form, [user, results[0]!], style, withTools)) return style;
        complete ??= style;
      }
      if (complete !== null) break;
    }
    return complete;
  }

  /**
   * True if the tool-call parser reads back a call with values of every JSON type, written in this style
   * between other messages.
   */
  #readsBack(
    form: CallForm,
    [user, answer]: readonly [ChatMessage, ChatMessage],
    style: CallStyle,
    withTools: boolean,
  ): boolean {
    const [call] = callsOf(caller("Bzq2"));
    const called = { name: call!.function.name, arguments: valuesOfEveryKind };
    const message = this.#formed({ ...caller(), tool_calls: [{ ...call!, function: called }] }, withTools);
    const text = this.#written(inStyle([user, message, answer], style), withTools);
    return text !== null && isCallIn(text.slice(text.lastIndexOf("Azq1")), form, called);
  }

  /** "text" if calls are JSON and the template writes a text unchanged. */
  #cutOf(style: CallStyle, withTools: boolean): CallStyle["cut"] {
    const form = this.#callForm(withTools);
    if (form !== null && form.arguments.kind !== "json") return "object";
    const text = '{"place": "Bzq2';
    const [call] = callsOf(caller("Bzq2"));
    const cut = { ...call!, function: { ...call!.function, arguments: text } };
    const messages = [
      { role: "user", content: "Azq1" },
      { role: "assistant", content: "", tool_calls: [cut] },
      result("Czq3"),
    ].map((message) => this.#formed(message, withTools));
    return this.#shows(inStyle(messages, style), [text], withTools) ? "text" : "object";
  }

  /** True if the template accepts these messages and writes the texts. */
  #shows(
    messages: readonly ChatMessage[],
    texts: readonly string[],
    withTools: boolean,
    isInOrder = false,
  ): boolean {
    const text = this.#written(messages, withTools);
    if (text === null) return false;
    let from = 0;
    return texts.every((one) => {
      const at = text.indexOf(one, from);
      if (isInOrder) from = at;
      return at >= 0;
    });
  }

  /**
   * Text of messages without further changes; null if the template refuses them. Throws TemplateError if it
   * takes too long, or once `isWanted` returns false.
   */
  #written(messages: readonly ChatMessage[], withTools: boolean, offer: object = offered): string | null {
    const tools = withTools ? [offer] : null;
    try {
      return this.#template.render(messages, { addGenerationPrompt: true, tools }, this.#isWanted).text;
    } catch (error) {
      if (error instanceof TemplateError && error.isOfMessages) return null;
      throw error;
    }
  }
}

const valuesOfEveryKind = { place: "Bzq2", yes: true, none: null, number: 1.5, list: ["a", 1, { b: false }] };

/** True if the first call in a text is of this name and these arguments. */
function isCallIn(text: string, form: CallForm, { name, arguments: given }: PastCall["function"]): boolean {
  const parameters = { properties: { place: { type: "string" } } };
  const starts = triggersOf(form, [name]).map((trigger) => text.indexOf(trigger));
  const start = Math.min(...starts.filter((at) => at >= 0));
  if (start === Number.POSITIVE_INFINITY) return false;
  const reader = new CallReader(form, [{ name, parameters, isStrict: false }]);
  const [call, read] = reader.push(text.slice(start));
  if (call?.kind !== "call" || call.name !== name || read?.kind !== "arguments") return false;
  try {
    return isDeepStrictEqual(JSON.parse(read.text), given);
  } catch {
    return false;
  }
}

/**
 * Offered function. Its name differs from the called ones, so that those can only come from written calls.
 */
const offered = {
  type: "function",
  function: {
    name: "other",
    description: "Another.",
    parameters: { type: "object", properties: { place: { type: "string" } }, required: [] },
  },
};
