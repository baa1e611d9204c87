/**
 * Mixed workload of three tenants: chats that clients read as they come (target of 100 ms between tokens),
 * map-reduce applications, and offline work without a deadline.
 */

import { SeededRandom } from "../../base/random.ts";
import { chatService, type Objective, type Service } from "../../scheduler/core.ts";
import type { Answer, Arrival, Workload } from "../workload.ts";
import { CHAT_TOKENS_MAX, type Lengths } from "./chat.ts";
import { exponentialGapMs, nameOf, promptOf, workloadOf } from "./parts.ts";

const CHAT_TBT_MS = 100;
const MAP_CALLS = 16;
const MAP = { sharedTokens: 300, ownTokens: 1024, outputTokens: 50 };
const BULK = { sharedTokens: 1100, ownTokens: 400, outputTokens: 96 };

/**
 * Makes `calls` chats at `callsPerSecond`; every 8 s an application of 16 calls and one more; and at the
 * start an offline job of a fourth as many calls as chats.
 */
export function mixedWorkload(
  lengths: readonly Lengths[],
  options: { readonly seed: number; readonly callsPerSecond: number; readonly calls: number },
): Workload {
  const { seed, callsPerSecond, calls } = options;
  const random = new SeededRandom(seed);
  const [gaps, rows] = [random.child("arrivals"), random.child("lengths")];
  const arrivals: Arrival[] = [];
  let atMs = 0;
  for (let index = 0; index < calls; index++) {
    atMs += exponentialGapMs(gaps, 1000 / callsPerSecond);
    const { promptTokens, outputTokens } = lengths[rows.below(lengths.length)]!;
    arrivals.push({
      ...bare("chat", service("latency", "chat", CHAT_TBT_MS)),
      atMs,
      promptTokens: promptOf([{ name: nameOf(seed, 0, index), tokens: promptTokens }]),
      outputTokens,
      tokensMax: Math.max(outputTokens, CHAT_TOKENS_MAX),
    });
  }
  const endMs = atMs;
  const joinOf = new Map<number, { left: number; arrival: (atMs: number) => Arrival }>();
  let taskGroup = 0;
  for (let atMs = 2000; atMs < endMs; atMs += 8000) {
    taskGroup += 1;
    const app = service("gang", "applications", null, taskGroup);
    const instruction = { name: nameOf(seed, 1), tokens: MAP.sharedTokens };
    for (let member = 0; member < MAP_CALLS; member++) {
      const own = { name: nameOf(seed, 2, taskGroup, member), tokens: MAP.ownTokens };
      arrivals.push({
        ...bare("map", app),
        ...fixed(MAP.outputTokens),
        atMs,
        promptTokens: promptOf([instruction, own]),
      });
    }
    const joined = { name: nameOf(seed, 3, taskGroup), tokens: MAP_CALLS * MAP.outputTokens + 100 };
    joinOf.set(taskGroup, {
      left: MAP_CALLS,
      arrival: (atMs) => ({
        ...bare("reduce", service("latency", "applications", null)),
        ...fixed(4 * MAP.outputTokens),
        atMs,
        promptTokens: promptOf([instruction, joined]),
      }),
    });
  }
  for (let index = 0; index < calls / 4; index++) {
    const shared = { name: nameOf(seed, 4, index % 8), tokens: BULK.sharedTokens };
    const own = { name: nameOf(seed, 5, index), tokens: BULK.ownTokens };
    arrivals.push({
      ...bare("bulk", service("throughput", "bulk", null)),
      ...fixed(BULK.outputTokens),
      atMs: 1000,
      promptTokens: promptOf([shared, own]),
    });
  }
  arrivals.sort((a, b) => a.atMs - b.atMs);
  return workloadOf("mixed", arrivals, (arrival: Arrival, answer: Answer) => {
    const join = arrival.kind === "map" ? joinOf.get(arrival.service.taskGroup!) : undefined;
    if (join === undefined) return [];
    join.left -= 1;
    return join.left === 0 ? [join.arrival(answer.finishedMs)] : [];
  });
}

function service(
  objective: Objective,
  tenant: string,
  tbtMs: number | null,
  taskGroup: number | null = null,
): Service {
  return { ...chatService, objective, tenant, tbtMs, taskGroup };
}

function bare(kind: string, service: Service): Pick<Arrival, "kind" | "service" | "cacheSalt"> {
  return { kind, service, cacheSalt: "" };
}

function fixed(outputTokens: number): Pick<Arrival, "outputTokens" | "tokensMax"> {
  return { outputTokens, tokensMax: outputTokens };
}
