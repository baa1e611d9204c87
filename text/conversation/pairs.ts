/** Pairs calls with results: gives each result its call, and sorts results by their calls. */
import type { ChatMessage } from "./messages.ts";
import { callsOf, type PastCall } from "./messages.ts";

interface MadeCall {
  readonly id: string;
  readonly name: string;
  /** Index among all calls. */
  readonly place: number;
}

/**
 * Gives every call an id, and every result the id and the name of its call; sorts adjacent results by their
 * calls. A result with an id belongs to the call of that id. One without belongs to the first open call of
 * its name, else to the first open call. A result without a call stays unchanged behind the others.
 */
export function paired(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  if (!messages.some((message) => message.role === "tool" || callsOf(message).length > 0)) return messages;
  const calls = new MadeCalls();
  const result: ChatMessage[] = [];
  let results: { readonly message: ChatMessage; readonly place: number }[] = [];
  const endResults = (): void => {
    const sorted = results.toSorted((one, other) => one.place - other.place);
    result.push(...sorted.map(({ message }) => message));
    results = [];
  };
  for (const message of messages) {
    if (message.role === "tool") {
      const call = calls.answeredBy(message);
      const known =
        call === null ? message : { ...message, tool_call_id: call.id, name: message.name ?? call.name };
      results.push({ message: known, place: call?.place ?? Number.MAX_SAFE_INTEGER });
      continue;
    }
    endResults();
    const own = callsOf(message).map((call) => ({ ...call, id: calls.add(call) }));
    result.push(own.length === 0 ? message : { ...message, tool_calls: own satisfies PastCall[] });
  }
  endResults();
  return result;
}

/** Tool calls so far, with those that have no result yet. */
class MadeCalls {
  readonly #byId = new Map<string, MadeCall[]>();
  /** Calls without a result, oldest first. */
  readonly #open: MadeCall[] = [];
  #count = 0;

  /** Adds a call. Returns its id or, if it has none, one made from its index. */
  add({ id = `call_${this.#count}`, function: { name } }: PastCall): string {
    const call = { id, name, place: this.#count++ };
    const same = this.#byId.get(id);
    if (same === undefined) this.#byId.set(id, [call]);
    else same.push(call);
    this.#open.push(call);
    return id;
  }

  /** Call that the message is a result of; null for none. */
  answeredBy(message: ChatMessage): MadeCall | null {
    const { tool_call_id: id } = message;
    const call = typeof id === "string" ? this.#ofId(id) : this.#ofName(message.name);
    const at = call === null ? -1 : this.#open.indexOf(call);
    if (at >= 0) this.#open.splice(at, 1);
    return call;
  }

  /**
   * Prefers the last call without a result: clients that number the calls of each message anew repeat ids.
   */
  #ofId(id: string): MadeCall | null {
    const own = this.#byId.get(id) ?? [];
    return own.findLast((call) => this.#open.includes(call)) ?? own.at(-1) ?? null;
  }

  #ofName(name: unknown): MadeCall | null {
    return this.#open.find((call) => call.name === name) ?? this.#open[0] ?? null;
  }
}
