/**
 * Agents with tools beside chats, of several tenants. An agent's next prompt is its last completion with a
 * tool's result. Half of the longer agents start subagents, whose prompts begin with the agents' common
 * instruction, and wait for all of them. Lengths, tool times and numbers of turns have long tails.
 */

import type { SeededRandom } from "../../base/random.ts";
import { chatService, type Service } from "../../scheduler/core.ts";
import type { Workload } from "../workload.ts";
import { exp } from "./elementary.ts";
import { drawNormal, exponentialGapMs } from "./parts.ts";
import { joined, type SessionCall, type SessionLoad, sessionWorkload, text } from "./sessions.ts";

/** Load of agents and chats. */
export interface ToolAgentLoad extends SessionLoad {
  readonly tenants: number;
  /** Share of the sessions that are agents, 0 … 1. */
  readonly agentShare: number;
  /** Median number of an agent's turns. */
  readonly turns: number;
  /** Context in tokens at which a session ends. */
  readonly contextMax: number;
}

/** Log-normal distribution between two bounds; `spread` is the standard deviation of the logarithm. */
interface LongTail {
  readonly median: number;
  readonly spread: number;
  readonly least: number;
  readonly most: number;
}

interface Tool {
  /** Cumulated percent of the calls: of this tool and those before it in the list. */
  readonly upTo: number;
  readonly ms: LongTail;
  readonly resultTokens: LongTail;
}

/**
 * Tools of a coding agent: milliseconds to minutes, as Continuum reports them (arXiv:2511.02230 §3). In turn:
 * read a file, edit one, run a command, run tests, read a page of the web, ask a person.
 */
const tools: readonly Tool[] = [
  tool(40, [60, 1, 5, 5000], [700, 0.9, 30, 4000]),
  tool(60, [40, 0.6, 5, 1000], [60, 0.5, 10, 300]),
  tool(85, [800, 1.6, 10, 120_000], [150, 1.2, 5, 4000]),
  tool(93, [9000, 1.2, 200, 300_000], [400, 1, 20, 4000]),
  tool(98, [1800, 0.9, 100, 30_000], [1500, 0.8, 100, 6000]),
  tool(100, [25_000, 1.3, 1000, 600_000], [20, 0.5, 1, 100]),
];

const ANSWER: LongTail = { median: 100, spread: 0.6, least: 10, most: 1200 };
const CHAT_ANSWER: LongTail = { median: 220, spread: 0.7, least: 10, most: 1200 };
const CHAT_TURNS: LongTail = { median: 3, spread: 0.8, least: 1, most: 20 };
const SUBAGENT_TURNS: LongTail = { median: 4, spread: 0.7, least: 1, most: 30 };
const QUESTION: LongTail = { median: 80, spread: 1.2, least: 5, most: 4000 };
const THINK_MS = 20_000;
const INSTRUCTION_TOKENS = 3500;
const SUBAGENTS_MAX = 3;

function tool(
  upTo: number,
  ms: readonly [number, number, number, number],
  resultTokens: readonly [number, number, number, number],
): Tool {
  return { upTo, ms: longTail(...ms), resultTokens: longTail(...resultTokens) };
}

function longTail(median: number, spread: number, least: number, most: number): LongTail {
  return { median, spread, least, most };
}

function draw(random: SeededRandom, { median, spread, least, most }: LongTail): number {
  const normal = drawNormal(random, { mean: 0, deviation: 1000, least: -4000, most: 4000 }) / 1000;
  return Math.round(Math.min(most, Math.max(least, median * exp(spread * normal))));
}

function drawTool(random: SeededRandom): Tool {
  const percent = random.below(100);
  return tools.find(({ upTo }) => percent < upTo)!;
}

/** Maximum threads of a session: an agent and its subagents. */
const THREADS_MAX = 1 + SUBAGENTS_MAX;

/** Makes the workload. */
export function toolAgentWorkload(load: ToolAgentLoad): Workload {
  const { seed, tenants, agentShare } = load;
  return sessionWorkload("agents and chats", load, (random, number) => {
    const isAgent = random.unit() < agentShare;
    const tenant = tenants === 1 ? "" : `tenant ${random.below(tenants)}`;
    const place = { id: number * THREADS_MAX, parent: null };
    const thread = new Thread(load, random, { ...chatService, tenant, session: place });
    return [isAgent ? thread.agent() : thread.chat(text(400, seed, 0))];
  });
}

/**
 * Calls that follow each other's completions. A thread has its own random stream, so that its calls do not
 * depend on when others end.
 */
class Thread {
  readonly #load: ToolAgentLoad;
  readonly #random: SeededRandom;
  readonly #service: Service;
  readonly #id: number;
  #texts = 0;

  constructor(load: ToolAgentLoad, random: SeededRandom, service: Service) {
    this.#load = load;
    this.#random = random;
    this.#service = service;
    this.#id = service.session!.id;
  }

  chat(instruction: Int32Array): SessionCall {
    const turn = (left: number, context: Int32Array, afterMs: number): SessionCall => ({
      service: this.#service,
      ending: "answer",
      kind: "chat",
      prompt: joined(context, this.#text(draw(this.#random, QUESTION))),
      outputTokens: draw(this.#random, CHAT_ANSWER),
      afterMs,
      next: (whole) =>
        left === 1 || whole.length > this.#load.contextMax
          ? []
          : [turn(left - 1, whole, exponentialGapMs(this.#random, THINK_MS))],
    });
    return turn(draw(this.#random, CHAT_TURNS), instruction, 0);
  }

  agent(): SessionCall {
    const { turns } = this.#load;
    const count = draw(this.#random, { median: turns, spread: 0.9, least: 1, most: 8 * turns });
    const splits = count >= 4 && this.#random.below(2) === 0;
    const splitsAt = splits ? 2 + this.#random.below(count - 2) : null;
    return this.#turn("agent", count, splitsAt, this.#opening(), 0, () => []);
  }

  /**
   * A turn and the `left - 1` after it, with a tool's time between them. Subagents begin after the turn with
   * `splitsAt` left; null: there are none. `atEnd` returns what follows the last turn.
   */
  #turn(
    kind: string,
    left: number,
    splitsAt: number | null,
    prompt: Int32Array,
    afterMs: number,
    atEnd: () => readonly SessionCall[],
  ): SessionCall {
    const goOn = (whole: Int32Array): SessionCall => {
      const { ms, resultTokens } = drawTool(this.#random);
      const next = joined(whole, this.#text(draw(this.#random, resultTokens)));
      return this.#turn(kind, left - 1, splitsAt, next, draw(this.#random, ms), atEnd);
    };
    return {
      service: this.#service,
      ending: left === 1 ? "answer" : "calls",
      kind,
      prompt,
      outputTokens: draw(this.#random, ANSWER),
      afterMs,
      next: (whole) => {
        if (left === 1 || whole.length > this.#load.contextMax) return atEnd();
        return left === splitsAt ? this.#subagents(() => [goOn(whole)]) : [goOn(whole)];
      },
    };
  }

  /** First calls of the subagents; `join` returns what follows when the last of them ends. */
  #subagents(join: () => readonly SessionCall[]): readonly SessionCall[] {
    let running = 1 + this.#random.below(SUBAGENTS_MAX);
    const atEnd = (): readonly SessionCall[] => {
      running -= 1;
      return running > 0 ? [] : join();
    };
    return Array.from({ length: running }, (_, index) => {
      const random = this.#random.child(`subagent ${index}`);
      const session = { id: this.#id + 1 + index, parent: this.#id };
      const thread = new Thread(this.#load, random, { ...this.#service, session });
      return thread.#turn("subagent", draw(random, SUBAGENT_TURNS), null, thread.#opening(), 0, atEnd);
    });
  }

  /** The agents' common instruction, and a task. */
  #opening(): Int32Array {
    return joined(text(INSTRUCTION_TOKENS, this.#load.seed, 1), this.#text(200 + this.#random.below(2000)));
  }

  #text(tokens: number): Int32Array {
    this.#texts += 1;
    return text(tokens, this.#load.seed, 2, this.#id, this.#texts);
  }
}
