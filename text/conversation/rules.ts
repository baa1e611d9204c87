/**
 * Rewrites of conversations that a chat template refuses. A rule changes a message by its neighbours and the
 * template only, so that later turns do not change the prompt of earlier ones.
 */

import { type CallForm, isBlock } from "../../grammar/tools/call-form.ts";
import { writtenCalls } from "../formats/written-calls.ts";
import { argumentsText, objectIn } from "./call-style.ts";
import { joinedContents } from "./content.ts";
import type { ChatMessage, Content } from "./messages.ts";
import { callsOf, isSystem, joined, type PastCall, textOf, thoughtsOf } from "./messages.ts";

export interface Rule {
  /** Field to name as changed in `x-bunting-ignored`; null: the meaning stays the same. */
  readonly ignoredAs: string | null;
  /** Probe conversation, and the texts that a template which does not need the rule writes for it. */
  readonly asked: readonly ChatMessage[];
  readonly shown: readonly string[];
  /** True if the texts must appear in this order. */
  readonly isInOrder?: boolean;
  /** Words that the template must contain; the rule also applies if one is missing. */
  readonly words?: readonly string[];
  /** True if the rule loses nothing that any template could write. */
  readonly isHarmless: boolean;
  /**
   * True to apply the rule only if the template then accepts the probe; otherwise the loss is only reported.
   */
  readonly mustHelp?: boolean;
  /** Applies the rule; returns the same list if it changes nothing. */
  apply(messages: readonly ChatMessage[], context: RuleContext): readonly ChatMessage[];
}

export interface RuleContext {
  /** True if the completion continues the last message. */
  readonly continuesLast: boolean;
  /** Format of the model's tool calls; null: unknown. */
  readonly form: CallForm | null;
}

/** Rules in the order of their application. */
export const rules: readonly Rule[] = [
  {
    ignoredAs: null,
    words: ["tool_calls"],
    isHarmless: false,
    asked: [user("Azq1"), caller("Bzq2"), result("Czq3"), assistant("Dzq4")],
    shown: ["Bzq2", "Czq3"],
    apply: callsInTheirForm,
  },
  {
    ignoredAs: "messages.tool_calls",
    words: ["tool_calls"],
    isHarmless: false,
    asked: [user("Azq1"), caller("Bzq2"), result("Czq3"), assistant("Dzq4")],
    shown: ["Bzq2", "Czq3"],
    apply: callsAsText,
  },
  {
    ignoredAs: null,
    words: ["developer"],
    isHarmless: true,
    asked: [system("Azq1"), { role: "developer", content: "Bzq2" }, user("Czq3")],
    shown: ["Azq1", "Bzq2", "Czq3"],
    apply: developersAsSystem,
  },
  {
    ignoredAs: "messages.role.system",
    isHarmless: true,
    asked: [system("Azq1"), system("Bzq2"), user("Czq3")],
    shown: ["Azq1", "Bzq2", "Czq3"],
    apply: firstSystemsJoined,
  },
  {
    ignoredAs: "messages.role.system",
    isHarmless: true,
    asked: [system("Azq1"), user("Bzq2"), assistant("Czq3"), system("Dzq4"), user("Ezq5")],
    shown: ["Azq1", "Bzq2", "Czq3", "Dzq4", "Ezq5"],
    isInOrder: true,
    apply: (messages) => systemsAsUsers(messages, headOf(messages).length),
  },
  {
    ignoredAs: "messages.role.system",
    isHarmless: true,
    asked: [system("Azq1"), user("Bzq2")],
    shown: ["Azq1", "Bzq2"],
    apply: (messages) => systemsAsUsers(messages, 0),
  },
  {
    ignoredAs: "messages.role.system",
    isHarmless: true,
    asked: [system("Azq1"), user("Bzq2"), assistant("Czq3")],
    shown: ["Azq1", "Bzq2", "Czq3"],
    apply: (messages) => (messages.at(-1)?.role === "user" ? messages : systemsAsUsers(messages, 0)),
  },
  {
    ignoredAs: "messages.tool_call_id",
    isHarmless: true,
    asked: [user("Azq1"), assistant("Bzq2"), result("Czq3")],
    shown: ["Czq3"],
    apply: loneResultsAsUsers,
  },
  {
    ignoredAs: "messages.tool_call_id",
    isHarmless: true,
    asked: [user("Azq1"), caller("Bzq2"), user("Czq3")],
    shown: ["Bzq2", "Czq3"],
    apply: missingResults,
  },
  {
    ignoredAs: "messages.content",
    isHarmless: true,
    asked: [user("Azq1"), assistant(""), user("Bzq2")],
    shown: ["Azq1", "Bzq2"],
    apply: withoutEmpty,
  },
  {
    ignoredAs: "messages.reasoning_content",
    isHarmless: true,
    asked: [user("Azq1"), { ...caller("Bzq2"), content: "Czq3", reasoning_content: "Dzq4" }, result("Ezq5")],
    shown: ["Bzq2", "Czq3", "Ezq5"],
    apply: thoughtsInText,
  },
  {
    ignoredAs: "messages.role",
    isHarmless: true,
    asked: [user("Azq1"), assistant("Bzq2"), caller("Czq3"), result("Dzq4"), assistant("Ezq5")],
    shown: ["Bzq2", "Czq3", "Dzq4", "Ezq5"],
    apply: askedBeforeCalls,
  },
  {
    ignoredAs: "messages.content",
    isHarmless: false,
    mustHelp: true,
    asked: [user("Azq1"), { ...caller("Bzq2"), content: "Czq3" }, result("Dzq4"), assistant("Ezq5")],
    shown: ["Bzq2", "Czq3", "Dzq4", "Ezq5"],
    apply: textBeforeCalls,
  },
  {
    ignoredAs: "messages.role",
    isHarmless: true,
    asked: [system("Azq1"), assistant("Bzq2")],
    shown: ["Azq1", "Bzq2"],
    apply: (messages) => (messages.some(({ role }) => role === "user") ? messages : withUserFirst(messages)),
  },
  {
    ignoredAs: "messages.role",
    isHarmless: true,
    asked: [assistant("Azq1"), user("Bzq2")],
    shown: ["Azq1", "Bzq2"],
    apply: withUserFirst,
  },
  {
    ignoredAs: "messages.role",
    isHarmless: true,
    asked: [user("Azq1"), user("Bzq2"), assistant("Czq3"), assistant("Dzq4"), user("Ezq5")],
    shown: ["Azq1", "Bzq2", "Czq3", "Dzq4"],
    apply: neighboursJoined,
  },
  {
    ignoredAs: "messages.role",
    isHarmless: true,
    asked: [user("Azq1"), caller("Bzq2"), result("Czq3"), user("Dzq4")],
    shown: ["Bzq2", "Czq3", "Dzq4"],
    apply: answeredBeforeUsers,
  },
];

const noResult = "[no result: the call was interrupted]";
const noUser = "[the conversation begins]";
const goesOn = "[the assistant goes on]";
const noAnswer = "[no answer]";

function user(content: Content): ChatMessage {
  return { role: "user", content };
}

function assistant(content: string): ChatMessage {
  return { role: "assistant", content };
}

function system(content: string): ChatMessage {
  return { role: "system", content };
}

/** Assistant message that calls one function per value, each with one argument. */
export function caller(...values: readonly string[]): ChatMessage {
  const calls = values.map(
    (value, index): PastCall => ({
      id: `call${index}of9`,
      type: "function",
      function: { name: `look${index}`, arguments: { place: value } },
    }),
  );
  return { role: "assistant", content: "", tool_calls: calls };
}

export function result(content: string, index = 0): ChatMessage {
  return { role: "tool", content, tool_call_id: `call${index}of9`, name: `look${index}` };
}

/** System messages at the beginning of a conversation. */
function headOf(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const end = messages.findIndex((message) => !isSystem(message));
  return end < 0 ? messages : messages.slice(0, end);
}

/** Replaces each message for which `change` returns a list. */
function changed(
  messages: readonly ChatMessage[],
  change: (message: ChatMessage, index: number) => readonly ChatMessage[] | null,
): readonly ChatMessage[] {
  let all: ChatMessage[] | null = null;
  for (const [index, message] of messages.entries()) {
    const others = change(message, index);
    if (others !== null) all ??= messages.slice(0, index);
    all?.push(...(others ?? [message]));
  }
  return all ?? messages;
}

/** Writes tool calls into the content, in the model's own format. */
function callsInTheirForm(messages: readonly ChatMessage[], { form }: RuleContext): readonly ChatMessage[] {
  if (form === null) return messages;
  return changed(messages, (message) => {
    const calls = callsOf(message).map(({ function: { name, arguments: given } }) => ({
      name,
      arguments: typeof given === "object" || form.arguments.kind === "json" ? given : objectIn(given),
    }));
    if (calls.length === 0) return null;
    const { tool_calls: _, ...rest } = message;
    const between = isBlock(form) ? "" : form.between;
    return [{ ...rest, content: joinedContents(message.content, writtenCalls(form, calls), between) }];
  });
}

/** Writes tool calls and their results into the content of messages, as plain text. */
function callsAsText(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const called = new Set<unknown>();
  return changed(messages, (message) => {
    if (message.role === "tool") return called.has(message.tool_call_id) ? [resultAsUser(message)] : null;
    const calls = callsOf(message);
    for (const { id } of calls) called.add(id);
    if (calls.length === 0) return null;
    const { tool_calls: _, ...rest } = message;
    const texts = calls.map(
      (call) => `[called ${call.function.name}: ${argumentsText(call.function.arguments)}]`,
    );
    return [{ ...rest, content: joinedContents(message.content, texts.join("\n"), "\n") }];
  });
}

function resultAsUser(message: ChatMessage): ChatMessage {
  const { name } = message;
  const of = typeof name === "string" ? ` of ${name}` : "";
  return user(joinedContents(`[result${of}]`, message.content, " "));
}

/**
 * Rule for templates that do not know the role `developer`: they drop its messages, or write a role that the
 * model was not trained with.
 */
function developersAsSystem(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  return changed(messages, (message) =>
    message.role === "developer" ? [{ ...message, role: "system" }] : null,
  );
}

function firstSystemsJoined(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const [first, ...others] = headOf(messages);
  if (first === undefined || others.length === 0) return messages;
  const content = others.reduce((all: Content, one) => joinedContents(all, one.content), first.content);
  return [{ ...first, content }, ...messages.slice(others.length + 1)];
}

/**
 * Appends each system message to the user message or tool result before it, or makes it a user message. After
 * results, a user message would count as a new question, and templates drop the reasoning before the last
 * question.
 */
function systemsAsUsers(messages: readonly ChatMessage[], from: number): readonly ChatMessage[] {
  const all: ChatMessage[] = messages.slice(0, from);
  for (const message of messages.slice(from)) {
    const last = all.at(-1);
    if (!isSystem(message)) all.push(message);
    else if (last?.role !== "user" && last?.role !== "tool") all.push(user(message.content));
    else all[all.length - 1] = { ...last, content: joinedContents(last.content, message.content) };
  }
  return messages.slice(from).some(isSystem) ? all : messages;
}

function loneResultsAsUsers(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const called = new Set<unknown>();
  return changed(messages, (message) => {
    for (const { id } of callsOf(message)) called.add(id);
    return message.role === "tool" && !called.has(message.tool_call_id) ? [resultAsUser(message)] : null;
  });
}

/** Adds a placeholder result for each call whose message is followed by something else. */
function missingResults(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  let open: readonly PastCall[] = [];
  return changed(messages, (message) => {
    if (message.role === "tool") {
      open = open.filter(({ id }) => id !== message.tool_call_id);
      return null;
    }
    const missing = open.map(({ id, function: { name } }) => ({
      role: "tool",
      content: noResult,
      tool_call_id: id,
      name,
    }));
    open = callsOf(message);
    return missing.length === 0 ? null : [...missing, message];
  });
}

function withoutEmpty(
  messages: readonly ChatMessage[],
  { continuesLast }: RuleContext,
): readonly ChatMessage[] {
  return changed(messages, (message, index) => {
    const isKept = continuesLast && index === messages.length - 1;
    const isEmpty =
      message.role === "assistant" && textOf(message).trim() === "" && callsOf(message).length === 0;
    return isEmpty && !isKept ? [] : null;
  });
}

function thoughtsInText(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  return changed(messages, (message) => {
    const thoughts = thoughtsOf(message);
    if (callsOf(message).length === 0 || thoughts === "" || textOf(message) === "") return null;
    const { reasoning_content: _, ...rest } = message;
    return [{ ...rest, content: joinedContents(thoughts, message.content) }];
  });
}

/** Inserts a user message between an assistant's plain text message and a following message with calls. */
function askedBeforeCalls(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  return changed(messages, (message, index) => {
    const before = messages[index - 1];
    const isAnswered = before?.role === "assistant" && callsOf(before).length === 0;
    return isAnswered && callsOf(message).length > 0 ? [user(goesOn), message] : null;
  });
}

/** Splits text and calls of one message into two messages. */
function textBeforeCalls(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  return changed(messages, (message) => {
    if (textOf(message) === "" || callsOf(message).length === 0) return null;
    const { tool_calls: calls, ...text } = message;
    return [text, { role: message.role, content: "", tool_calls: calls }];
  });
}

/**
 * Adds a user's message before a conversation that begins with an assistant's. If there are only system
 * messages, turns the last one into a user's.
 */
function withUserFirst(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const { length } = headOf(messages);
  if (length === messages.length) return systemsAsUsers(messages, length - 1);
  if (messages[length]!.role === "user") return messages;
  return [...messages.slice(0, length), user(noUser), ...messages.slice(length)];
}

function neighboursJoined(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const all: ChatMessage[] = [];
  for (const message of messages) {
    const last = all.at(-1);
    if (last === undefined || !areOne(last, message)) all.push(message);
    else all[all.length - 1] = together(last, message);
  }
  return all.length === messages.length ? messages : all;
}

function areOne(first: ChatMessage, second: ChatMessage): boolean {
  if (first.role !== second.role) return false;
  return (
    first.role === "user" ||
    (first.role === "assistant" && callsOf(first).length + callsOf(second).length === 0)
  );
}

function together(first: ChatMessage, second: ChatMessage): ChatMessage {
  const thoughts = joined(thoughtsOf(first), thoughtsOf(second));
  return {
    ...first,
    ...second,
    content: joinedContents(first.content, second.content),
    ...(thoughts === "" ? {} : { reasoning_content: thoughts }),
  };
}

/** Adds an assistant's message between calls with their results and a user's message that follows them. */
function answeredBeforeUsers(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  return changed(messages, (message, index) => {
    const before = messages[index - 1];
    const isBehindCalls = before?.role === "tool" || (before !== undefined && callsOf(before).length > 0);
    return message.role === "user" && isBehindCalls ? [assistant(noAnswer), message] : null;
  });
}
