/** Conversations as trees: editing a message or regenerating a response adds a branch. Pure. */
import type { ChatSettings } from "./settings.ts";

/** Tool call of a response. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON, as the model wrote it. */
  readonly arguments: string;
}

/** Measurements of a response. */
export interface Figures {
  readonly completionTokens: number | null;
  readonly tokensPerSecond: number | null;
  readonly firstTokenMs: number | null;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** Reason for its end: the server's finish reason, or "stopped" by the user. */
  readonly finish: string | null;
}

export interface Turn {
  readonly id: string;
  /** Turn before it; null for the first of a conversation. */
  readonly parent: string | null;
  readonly role: "user" | "assistant" | "tool";
  readonly content: string;
  readonly thoughts?: string;
  readonly thoughtMs?: number;
  readonly calls?: readonly ToolCall[];
  /** Call whose result this is. */
  readonly callId?: string;
  /** Sentence of the error that cut the response off. */
  readonly error?: string;
  readonly figures?: Figures;
  readonly requestId?: string;
}

export interface Conversation {
  readonly id: string;
  readonly changedMs: number;
  readonly settings: ChatSettings;
  /** Oldest first. */
  readonly turns: readonly Turn[];
  /** Last turn of the branch on screen; null: there is none. */
  readonly head: string | null;
}

/** Random id without `crypto.randomUUID`, which browsers offer only to pages over TLS. */
export function newId(): string {
  return crypto.getRandomValues(new BigUint64Array(1))[0]!.toString(36);
}

/** Turns from the beginning to the turn `head`. */
export function pathTo(turns: readonly Turn[], head: string | null): Turn[] {
  const byId = new Map(turns.map((turn) => [turn.id, turn]));
  const path: Turn[] = [];
  for (let turn = byId.get(head ?? ""); turn !== undefined; turn = byId.get(turn.parent ?? "")) {
    path.push(turn);
    byId.delete(turn.id); // an imported file may hold a cycle
  }
  return path.reverse();
}

/** The turn's alternatives, itself included, oldest first. */
export function siblings(turns: readonly Turn[], { parent, role }: Turn): Turn[] {
  return turns.filter((other) => other.parent === parent && other.role === role);
}

/** Last turn of the newest branch below a turn. */
export function tipOf(turns: readonly Turn[], id: string): string {
  const newest = turns.findLast(({ parent }) => parent === id);
  return newest === undefined ? id : tipOf(turns, newest.id);
}

/** The conversation without a turn and everything after it. */
export function without(conversation: Conversation, id: string): Conversation {
  const removed = new Set([id]);
  for (const { id: one, parent } of conversation.turns) if (removed.has(parent ?? "")) removed.add(one);
  const turns = conversation.turns.filter((turn) => !removed.has(turn.id));
  if (!removed.has(conversation.head ?? "")) return { ...conversation, turns };
  const { parent, role } = conversation.turns.find((turn) => turn.id === id)!;
  const other = turns.findLast((turn) => turn.parent === parent && turn.role === role);
  return { ...conversation, turns, head: other === undefined ? parent : tipOf(turns, other.id) };
}

/** Tool calls of the last response without results. */
export function openCalls(path: readonly Turn[]): readonly ToolCall[] {
  const last = path.findLastIndex(({ role }) => role === "assistant");
  const given = new Set(path.slice(last + 1).map(({ callId }) => callId));
  return path.slice(last + 1).some(({ role }) => role === "user")
    ? []
    : (path[last]?.calls ?? []).filter(({ id }) => !given.has(id));
}

/** Messages of a request. Leaves out empty responses, and those that an error cut off. */
export function messagesOf(path: readonly Turn[], system: string): object[] {
  const messages: object[] = system.trim() === "" ? [] : [{ role: "system", content: system.trim() }];
  for (const { role, content, calls = [], callId, error } of path) {
    if (error !== undefined) continue;
    if (role === "tool") messages.push({ role, tool_call_id: callId, content });
    else if (role === "user") messages.push({ role, content });
    else if (content !== "" || calls.length > 0) messages.push({ role, content, ...toolCalls(calls) });
  }
  return messages;
}

function toolCalls(calls: readonly ToolCall[]): object {
  if (calls.length === 0) return {};
  return {
    tool_calls: calls.map(({ id, name, arguments: given }) => ({
      id,
      type: "function",
      function: { name, arguments: given },
    })),
  };
}

/** First question, in one line. */
export function titleOf({ turns }: Conversation): string {
  return (
    turns
      .find(({ role }) => role === "user")
      ?.content.replace(/\s+/g, " ")
      .trim() || "Empty"
  );
}
