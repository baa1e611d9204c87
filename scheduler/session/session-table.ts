import type { AdapterId, EngineId, SessionPlace } from "../core.ts";
import type { HashedTokens } from "./hashed-tokens.ts";
import { type Nearest, type PastPrompt, PromptHistory } from "./prompt-history.ts";
import { RETURN_MAX_MS, ReturnTimes } from "./return-times.ts";

/**
 * Evidence by which the session of a prompt was recognized:
 *
 * - `continued`: it begins like a session of the key;
 * - `branched`: it shares a long stem with a session that waits for a tool, and is its child;
 * - `named`: the client gave it the name of such a session, and it is its child;
 * - `new`: none of these.
 */
export const sessionSigns = ["continued", "branched", "named", "new"] as const;

export type SessionSign = (typeof sessionSigns)[number];

/** Names that a client gives with a prompt. Different names separate sessions; equal names alone do not join them. */
export interface SessionNames {
  /** Name of a conversation, with its subagents; null: none. */
  readonly session: string | null;
  /** Name of the person who asks; null: none. */
  readonly person: string | null;
}

export const noNames: SessionNames = Object.freeze({ session: null, person: null });

/** Prompt whose session is asked for. */
export interface NamedPrompt {
  readonly tenant: string;
  readonly salt: string;
  readonly adapter: AdapterId;
  readonly tokens: HashedTokens;
  readonly names: SessionNames;
}

/** End of an answer. */
export interface Ending {
  /** Names of the tools that it calls; empty: none. */
  readonly tools: readonly string[];
}

/** The last answer of a session that waits for its next prompt. */
export interface Waiting {
  readonly past: PastPrompt;
  readonly sinceMs: number;
  readonly awaitsTool: boolean;
  /** True if a subagent has begun since: the tool that is awaited is the subagent. */
  hasChild: boolean;
  /** Times of answers that ended alike, of all sessions of the tenant. */
  readonly times: ReturnTimes;
}

/** The turns of one agent or chat. */
export interface Session {
  readonly place: SessionPlace;
  readonly tenant: string;
  readonly salt: string;
  readonly adapter: AdapterId;
  names: SessionNames;
  /** Tokens with which every prompt of the session begins. */
  readonly stemTokens: number;
  /** Its own times between answers that call tools and the next prompts. */
  readonly toolTimes: ReturnTimes;
  readonly answerTimes: ReturnTimes;
  /** Prompts whose answers have not ended. */
  running: number;
  /** Tokens of the prompt that began last. */
  lastTokens: HashedTokens;
  /** Engine of the last answer; null: none has ended. */
  engine: EngineId | null;
  /** Null: it has had no answer, or a prompt of it runs. */
  waiting: Waiting | null;
}

/** A prompt of a session. */
export interface Turn {
  readonly session: Session;
  readonly place: SessionPlace;
  readonly by: SessionSign;
  readonly tokens: HashedTokens;
  /** Tokens with which an earlier prompt of a session begins alike, cached or not. */
  readonly knownTokens: number;
}

/** Sessions at most. */
const SESSIONS_MAX = 256;
/** Kinds of endings with times of their own at most. */
const KINDS_MAX = 256;
/** Fewest tokens of a stem that a subagent shares with the agent that waits for it. */
const STEM_TOKENS = 128;
/**
 * Most tokens at the end of a prompt that are no part of its session's stem. There the chat template opens the answer
 * (generation prompt). They are at most 1 / `OPENING_PART` of the prompt.
 */
const OPENING_TOKENS = 16;
const OPENING_PART = 4;
/** Weight of a session's own times beside those of all sessions of its tenant. */
const OWN_WEIGHT = 4;

/** Guesses for answers that call tools, other answers, and other answers of subagents, whose work is done. */
const TOOL_GUESS = ReturnTimes.guess(0.9, 0, 12);
const ANSWER_GUESS = ReturnTimes.guess(0.5, 6, 15);
const DONE_GUESS = ReturnTimes.guess(0.05, 0, 12);
/** Guess for agents that wait for subagents, from the answer that called them. */
const PARENT_GUESS = ReturnTimes.guess(0.95, 5, 15);

/**
 * Recognizes the session of each prompt by the earlier prompts of the same tenant, salt and adapter. All prompts of
 * an agent begin with its first one. So a prompt belongs to the session of the earlier prompt with the longest common
 * prefix, if that covers the first prompt of the session. A session has one prompt in flight at a time.
 *
 * Evicts the least recently used sessions.
 */
export class SessionTable {
  readonly history: PromptHistory;
  readonly #sessionsMax: number;
  /** Sessions by id, least recently used first. */
  readonly #sessions = new Map<number, Session>();
  /** Times by tenant and kind of ending, least recently used first. */
  readonly #times = new Map<string, ReturnTimes>();
  #nextId = 0;

  constructor(history = new PromptHistory(), sessionsMax = SESSIONS_MAX) {
    this.history = history;
    this.#sessionsMax = sessionsMax;
  }

  /** Sessions, least recently used first. */
  get all(): Iterable<Session> {
    return this.#sessions.values();
  }

  get size(): number {
    return this.#sessions.size;
  }

  find(id: number): Session | null {
    return this.#sessions.get(id) ?? null;
  }

  /** Returns the session of a prompt that is about to be submitted. */
  begin(prompt: NamedPrompt, nowMs: number): Turn {
    const nearest = this.#nearestOf(prompt);
    const found = nearest === null ? null : this.#continued(prompt, nearest);
    const parent = found === null ? this.#parentOf(prompt) : null;
    const session = found ?? this.#open(prompt, parent?.id ?? null);
    const waiting = parent === null ? null : (this.find(parent.id)?.waiting ?? null);
    if (waiting !== null) waiting.hasChild = true;
    const by = found !== null ? "continued" : (parent?.by ?? "new");
    if (session.waiting !== null) this.#learn(session, session.waiting, nowMs - session.waiting.sinceMs);
    session.waiting = null;
    session.running += 1;
    session.lastTokens = prompt.tokens;
    session.names = { ...session.names, ...given(prompt.names) };
    this.#touch(session);
    const knownTokens = nearest?.shared ?? 0;
    return { session, place: session.place, by, tokens: prompt.tokens, knownTokens };
  }

  /** Ends a turn. `past`: its entry in the history, if the next prompt may continue it; else null. */
  end({ session }: Turn, past: PastPrompt | null, { tools }: Ending, nowMs: number): void {
    session.running -= 1;
    session.engine = past?.engine ?? session.engine;
    if (session.running > 0 || past === null || this.find(session.place.id) !== session) return;
    const times = this.#timesOf(`${session.tenant} ${kindOf(session, tools)}`);
    session.waiting = { past, sinceMs: nowMs, awaitsTool: tools.length > 0, hasChild: false, times };
  }

  /** Returns the times after which prompts may follow a waiting session's answer. */
  timesOf(session: Session, { awaitsTool, hasChild, times }: Waiting): ReturnTimes {
    const sum = new ReturnTimes();
    if (hasChild) {
      PARENT_GUESS.addTo(sum, 1);
      this.#timesOf(`${session.tenant} parent`).addTo(sum, 1);
      return sum;
    }
    guessFor(session, awaitsTool).addTo(sum, 1);
    times.addTo(sum, 1);
    (awaitsTool ? session.toolTimes : session.answerTimes).addTo(sum, OWN_WEIGHT);
    return sum;
  }

  /** The prompt of an idle session, of no other person, that begins most alike. */
  #nearestOf({ tenant, salt, adapter, tokens, names }: NamedPrompt): Nearest | null {
    return this.history.nearest(tenant, tokens, (past) => {
      const session = past.salt === salt && past.adapter === adapter ? this.#sessionOf(past) : null;
      return session !== null && session.running === 0 && agree(session.names.person, names.person);
    });
  }

  #continued({ names }: NamedPrompt, { past, shared }: Nearest): Session | null {
    const session = this.#sessionOf(past)!;
    const continues = shared === past.tokens.length || agree(session.names.session, names.session);
    return continues && shared >= session.stemTokens ? session : null;
  }

  /** The session whose awaited tool call a new session may be: the agent of a subagent. Null: none. */
  #parentOf(prompt: NamedPrompt): { readonly id: number; readonly by: SessionSign } | null {
    const { tenant, salt, adapter, tokens, names } = prompt;
    const waits = (session: Session | null): boolean =>
      session !== null &&
      session.waiting?.awaitsTool === true &&
      session.tenant === tenant &&
      session.salt === salt &&
      session.adapter === adapter &&
      agree(session.names.session, names.session) &&
      agree(session.names.person, names.person);
    const nearest = this.history.nearest(tenant, tokens, (past) => waits(this.#sessionOf(past)));
    if (nearest !== null && nearest.shared >= STEM_TOKENS)
      return { id: nearest.past.session!, by: "branched" };
    if (names.session === null) return null;
    const named = [...this.#sessions.values()].filter(
      (one) => waits(one) && one.names.session === names.session,
    );
    // The agent itself rather than another of its subagents.
    const parent = named.find(({ place }) => place.parent === null) ?? named[0];
    return parent === undefined ? null : { id: parent.place.id, by: "named" };
  }

  #sessionOf({ session }: PastPrompt): Session | null {
    return session === null ? null : this.find(session);
  }

  #open({ tenant, salt, adapter, tokens, names }: NamedPrompt, parent: number | null): Session {
    const { length } = tokens;
    const session: Session = {
      place: { id: this.#nextId, parent },
      tenant,
      salt,
      adapter,
      names,
      stemTokens: Math.max(1, length - Math.min(OPENING_TOKENS, Math.floor(length / OPENING_PART))),
      toolTimes: new ReturnTimes(),
      answerTimes: new ReturnTimes(),
      running: 0,
      lastTokens: tokens,
      engine: null,
      waiting: null,
    };
    this.#nextId += 1;
    return session;
  }

  #learn(session: Session, { awaitsTool, hasChild, times }: Waiting, timeMs: number): void {
    if (hasChild) {
      this.#timesOf(`${session.tenant} parent`).add(timeMs);
      return;
    }
    times.add(timeMs);
    (awaitsTool ? session.toolTimes : session.answerTimes).add(timeMs);
  }

  /** Makes a session the most recently used one. A session that is evicted while it waits counts as not returned. */
  #touch(session: Session): void {
    const { id } = session.place;
    this.#sessions.delete(id);
    this.#sessions.set(id, session);
    if (this.#sessions.size <= this.#sessionsMax) return;
    const [oldest] = this.#sessions.values();
    this.#sessions.delete(oldest!.place.id);
    oldest!.waiting?.times.add(2 * RETURN_MAX_MS);
    oldest!.waiting = null;
  }

  #timesOf(kind: string): ReturnTimes {
    const times = this.#times.get(kind) ?? new ReturnTimes();
    this.#times.delete(kind);
    this.#times.set(kind, times);
    if (this.#times.size > KINDS_MAX) this.#times.delete(this.#times.keys().next().value!);
    return times;
  }
}

/** Tenants hold no spaces. */
function kindOf({ place }: Session, tools: readonly string[]): string {
  if (tools.length > 0) return `calls ${[...new Set(tools)].sort().join(" ")}`;
  return place.parent === null ? "answer" : "done";
}

function guessFor({ place }: Session, awaitsTool: boolean): ReturnTimes {
  if (awaitsTool) return TOOL_GUESS;
  return place.parent === null ? ANSWER_GUESS : DONE_GUESS;
}

/** True unless both names are given and differ. */
function agree(one: string | null, other: string | null): boolean {
  return one === null || other === null || one === other;
}

/** The names that are given. */
function given({ session, person }: SessionNames): Partial<SessionNames> {
  return { ...(session === null ? {} : { session }), ...(person === null ? {} : { person }) };
}
