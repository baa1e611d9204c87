/**
 * Agent sessions. Every call's prompt is the last call's prompt plus its result, and the client sends it when
 * the last one is answered. (LMCache agent trace: sessions of a coding agent.)
 */

import { SeededRandom } from "../../base/random.ts";
import { chatService } from "../../scheduler/core.ts";
import type { Answer, Arrival, Workload } from "../workload.ts";
import { drawNormal, exponentialGapMs, nameOf, promptOf, tokensOfText, workloadOf } from "./parts.ts";

/** Call of a session. */
export interface AgentCall {
  readonly promptTokens: () => Int32Array;
  readonly outputTokens: number;
}

/**
 * Parses one session's JSON lines with timestamp, input and output as text. Tokens are four characters each.
 */
export function parseAgentSession(jsonLines: string): readonly AgentCall[] {
  const rows = jsonLines
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => JSON.parse(line) as { timestamp: number; input: string; output: string });
  rows.sort((a, b) => a.timestamp - b.timestamp);
  return rows.map(({ input, output }) => ({
    promptTokens: () => Int32Array.from(tokensOfText(input)),
    outputTokens: Math.max(1, Math.ceil(output.length / 4)),
  }));
}

/**
 * Draws sessions of about twenty calls: a common instruction, a task, and some hundred more tokens each time.
 */
export function agentSessions(count: number, seed: number): readonly (readonly AgentCall[])[] {
  const random = new SeededRandom(seed).child("agents");
  return Array.from({ length: count }, (_, session) => {
    const parts = [
      { name: nameOf(seed, 0), tokens: 800 },
      { name: nameOf(seed, 1, session), tokens: 400 + random.below(1600) },
    ];
    return Array.from({ length: 8 + random.below(25) }, (_, turn) => {
      const promptTokens = promptOf([...parts]);
      const outputTokens = drawNormal(random, { mean: 120, deviation: 60, least: 10, most: 400 });
      parts.push({ name: nameOf(seed, 2, session, turn), tokens: outputTokens + 50 + random.below(700) });
      return { promptTokens, outputTokens };
    });
  });
}

/** Milliseconds of a tool between an answer and the next call. */
const TOOL_MS = 1000;

/**
 * Makes a workload: sessions begin by a Poisson process; a session's next call comes `TOOL_MS` after its last
 * answer.
 */
export function agentWorkload(
  sessions: readonly (readonly AgentCall[])[],
  options: { readonly seed: number; readonly sessionsPerSecond: number },
): Workload {
  const gaps = new SeededRandom(options.seed).child("arrivals");
  const nextOf = new Map<Arrival, (answer: Answer) => Arrival>();
  const arrivalOf = (calls: readonly AgentCall[], turn: number, atMs: number): Arrival => {
    const { promptTokens, outputTokens } = calls[turn]!;
    const tokensMax = Math.max(2048, outputTokens);
    const arrival = {
      atMs,
      promptTokens,
      outputTokens,
      tokensMax,
      cacheSalt: "",
      service: chatService,
      kind: "agent",
    };
    if (turn + 1 < calls.length) {
      nextOf.set(arrival, (answer) => arrivalOf(calls, turn + 1, answer.finishedMs + TOOL_MS));
    }
    return arrival;
  };
  let atMs = 0;
  const first = sessions
    .filter((calls) => calls.length > 0)
    .map((calls) => {
      atMs += exponentialGapMs(gaps, 1000 / options.sessionsPerSecond);
      return arrivalOf(calls, 0, atMs);
    });
  return workloadOf("agents", first, (arrival, answer) => {
    const next = nextOf.get(arrival);
    nextOf.delete(arrival);
    return next === undefined ? [] : [next(answer)];
  });
}
