/** Several workloads at once. */

import { expect, test } from "bun:test";
import { agentSessions, agentWorkload } from "./agents.ts";
import { chatLengths, chatWorkload } from "./chat.ts";
import { merged } from "./merge.ts";

test("parts keep their order and their own clock, and a conversation goes on in its own part", () => {
  const chats = chatWorkload(chatLengths(50, 1), { seed: 1, callsPerSecond: 2, calls: 40 });
  const agents = agentWorkload(agentSessions(5, 1), { seed: 1, sessionsPerSecond: 1 });
  const both = merged("both", [{ workload: chats }, { workload: agents, startMs: 5000, kind: "late" }]);
  const arrivals = [];
  for (let next = both.next(); next !== null; next = both.next()) arrivals.push(next);
  expect(arrivals.length).toBe(45);
  expect(arrivals.map((arrival) => arrival.atMs)).toEqual(
    arrivals.map((arrival) => arrival.atMs).sort((a, b) => a - b),
  );
  const late = arrivals.filter((arrival) => arrival.kind === "late");
  expect(late.length).toBe(5);
  expect(late[0]!.atMs).toBeGreaterThan(5000);
  const [next] = both.after(late[0]!, { finishedMs: 20_000, tokens: [] });
  expect(next).toMatchObject({ kind: "late", atMs: 21_000 });
  expect(both.after(next!, { finishedMs: 30_000, tokens: [] })[0]?.atMs).toBe(31_000);
  const chat = arrivals.find((arrival) => arrival.kind === "chat")!;
  expect(both.after(chat, { finishedMs: 20_000, tokens: [] })).toEqual([]);
});
