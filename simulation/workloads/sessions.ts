/**
 * Sessions whose prompts continue the completions before them, token by token: chats, agents with subagents,
 * and questions on documents. Unlike in the other workloads, prefix caching finds completions too.
 */

import { SeededRandom } from "../../base/random.ts";
import { chatService, type Service } from "../../scheduler/core.ts";
import type { Answer, Arrival, Workload } from "../workload.ts";
import { drawNormal, exponentialGapMs, nameOf, promptOf, workloadOf } from "./parts.ts";

/** A call of a session, and the calls that follow its answer. */
export interface SessionCall {
  readonly prompt: Int32Array;
  readonly outputTokens: number;
  /** Milliseconds from the completion before, or from the start of the session. */
  readonly afterMs: number;
  /** Kind of its completion's end; absent: not known. */
  readonly ending?: "calls" | "answer";
  /** Tenant and session; absent: that of a plain chat. */
  readonly service?: Service;
  /** Absent: the workload's. */
  readonly kind?: string;
  readonly next?: (context: Int32Array) => readonly SessionCall[];
}

/** Load of a workload of sessions. */
export interface SessionLoad {
  readonly seed: number;
  readonly sessions: number;
  /** Mean milliseconds between the beginnings of sessions. */
  readonly gapMs: number;
}

const THINK_MS = 20_000;
const TOOL_MS = 1000;

/** Text of `tokens` tokens, equal for equal names. */
export function text(tokens: number, ...names: number[]): Int32Array {
  return promptOf([{ name: nameOf(...names), tokens }])();
}

/** Joins texts. */
export function joined(...parts: readonly Int32Array[]): Int32Array {
  const all = new Int32Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function drawAnswer(random: SeededRandom): number {
  return drawNormal(random, { mean: 250, deviation: 120, least: 20, most: 800 });
}

/**
 * Chats of 20 turns after a common instruction. `dropsThoughts`: a later prompt has only the last third of a
 * completion.
 */
export function chatSessions(load: SessionLoad, dropsThoughts = false): Workload {
  const instruction = text(400, load.seed, 0);
  return sessionWorkload(dropsThoughts ? "chats that drop thoughts" : "chats", load, (random, session) => {
    const turn = (index: number, context: Int32Array): SessionCall => {
      const prompt = joined(context, text(30 + random.below(170), load.seed, 1, session, index));
      const kept = (whole: Int32Array): Int32Array =>
        dropsThoughts
          ? joined(
              prompt,
              whole.subarray(prompt.length + Math.ceil(((whole.length - prompt.length) * 2) / 3)),
            )
          : whole;
      return {
        prompt,
        outputTokens: drawAnswer(random),
        afterMs: index === 0 ? 0 : exponentialGapMs(random, THINK_MS),
        ...(index < 19 ? { next: (whole) => [turn(index + 1, kept(whole))] } : {}),
      };
    };
    return [turn(0, instruction)];
  });
}

/**
 * Agents of 20 calls with tools. After the fifth call, two subagents of 8 calls run, which share the tools
 * but not the task; the agent continues when both are done.
 */
export function agentSessions(load: SessionLoad): Workload {
  const tools = text(3500, load.seed, 0);
  return sessionWorkload("agents", load, (random, session) => {
    const result = (...names: number[]): Int32Array =>
      text(50 + random.below(700), load.seed, 2, session, ...names);
    const chain = (
      agent: number,
      calls: number,
      prompt: Int32Array,
      atEnd: () => readonly SessionCall[],
    ): SessionCall => ({
      prompt,
      outputTokens: drawNormal(random, { mean: 120, deviation: 60, least: 10, most: 400 }),
      afterMs: TOOL_MS,
      ending: calls === 1 ? "answer" : "calls",
      next: (whole) =>
        calls === 1 ? atEnd() : [chain(agent, calls - 1, joined(whole, result(agent, calls)), atEnd)],
    });
    const begin = (agent: number): Int32Array =>
      joined(
        tools,
        text(300 + 400 * Math.min(1, agent), load.seed, 1, Math.min(1, agent)),
        text(200, load.seed, 3, session, agent),
      );
    const main: SessionCall = {
      prompt: begin(0),
      outputTokens: 120,
      afterMs: 0,
      ending: "calls",
      next: (whole) => {
        const fifth = (left: number, context: Int32Array): SessionCall => ({
          prompt: joined(context, result(0, left)),
          outputTokens: 120,
          afterMs: TOOL_MS,
          ending: "calls",
          next: (more) => {
            if (left > 1) return [fifth(left - 1, more)];
            let running = 2;
            const goOn = (): readonly SessionCall[] => {
              running -= 1;
              return running > 0 ? [] : [chain(0, 15, joined(more, result(0, 100)), () => [])];
            };
            return [1, 2].map((agent) => chain(agent, 8, begin(agent), goOn));
          },
        });
        return [fifth(4, whole)];
      },
    };
    return [main];
  });
}

/** Eight questions on one document, one after the other, after a common instruction. */
export function documentSessions(load: SessionLoad): Workload {
  const instruction = text(300, load.seed, 0);
  return sessionWorkload("documents", load, (random, session) => {
    const document = joined(instruction, text(10_000 + random.below(10_000), load.seed, 1, session));
    let atMs = 0;
    return Array.from({ length: 8 }, (_, question) => {
      atMs += question === 0 ? 0 : exponentialGapMs(random, THINK_MS);
      const prompt = joined(document, text(20 + random.below(100), load.seed, 2, session, question));
      return { prompt, outputTokens: drawAnswer(random), afterMs: atMs };
    });
  });
}

/** Makes a workload of sessions that begin by a Poisson process; `open` returns the first calls of one. */
export function sessionWorkload(
  kind: string,
  { seed, sessions, gapMs }: SessionLoad,
  open: (random: SeededRandom, session: number) => readonly SessionCall[],
): Workload {
  const random = new SeededRandom(seed).child(kind);
  const calls = new Map<Arrival, SessionCall>();
  const arrivalOf = (call: SessionCall, sinceMs: number): Arrival => {
    const arrival: Arrival = {
      atMs: sinceMs + call.afterMs,
      promptTokens: () => call.prompt,
      outputTokens: call.outputTokens,
      tokensMax: Math.max(1024, call.outputTokens),
      cacheSalt: "",
      service: call.service ?? chatService,
      kind: call.kind ?? kind,
      ...(call.ending === undefined ? {} : { ending: call.ending }),
    };
    calls.set(arrival, call);
    return arrival;
  };
  let atMs = 0;
  const first = Array.from({ length: sessions }, (_, session) => {
    atMs += exponentialGapMs(random, gapMs);
    return open(random.child(`${session}`), session).map((call) => arrivalOf(call, atMs));
  });
  const inOrder = first.flat().sort((a, b) => a.atMs - b.atMs);
  const after = (arrival: Arrival, { finishedMs, tokens }: Answer): readonly Arrival[] => {
    const call = calls.get(arrival)!;
    calls.delete(arrival);
    const next = call.next?.(joined(call.prompt, Int32Array.from(tokens))) ?? [];
    return next.map((one) => arrivalOf(one, finishedMs));
  };
  return workloadOf(kind, inOrder, after);
}
