/** Orders by session: attained service in levels, and sessions in order of their first arrival. */

import { expect, test } from "bun:test";
import { chatService, type SequenceId, type Service, type SessionPlace } from "../../scheduler/core.ts";
import { Sequence } from "../../scheduler/engine/sequence.ts";
import type { QueueBaseline } from "../../scheduler/policy.ts";
import { sequenceSpec } from "../factories.ts";
import { attainedService, firstCome, firstSession, highestRatio } from "./session-orders.ts";

/** Two engines' orders of one baseline. */
function waitingRooms(baseline: QueueBaseline) {
  const orders = [baseline.open(() => 0), baseline.open(() => 0)];
  let arrivals = 0;
  const add = (
    session: SessionPlace | null,
    nowMs = 0,
    service: Partial<Service> = {},
    engine = 0,
  ): Sequence => {
    const given = { ...chatService, ...service, session };
    const spec = { ...sequenceSpec([1, 2, 3], 9, { service: given }), id: arrivals as SequenceId };
    const sequence = new Sequence(spec, arrivals, nowMs);
    arrivals += 1;
    orders[engine]!.add(sequence);
    return sequence;
  };
  const take = (nowMs = 0, computedTokens = 1, engine = 0): Sequence | null => {
    const sequence = orders[engine]!.peek(nowMs);
    if (sequence !== null) orders[engine]!.take(sequence, computedTokens);
    return sequence;
  };
  /** Runs one sequence of a session on its own. */
  const serve = (session: SessionPlace, computedTokens: number, drawn: number, engine = 0): void => {
    const sequence = add(session, 0, {}, engine);
    expect(take(1e9, computedTokens, engine)).toBe(sequence);
    for (let token = 0; token < drawn; token++) sequence.append(7);
    sequence.state = "ended";
  };
  return { orders, add, take, serve };
}

const session = (id: number, parent: number | null = null): SessionPlace => ({ id, parent });

test("a session with little service goes first, on whichever engine it got it; a level is first come, first served", () => {
  const { add, take, serve } = waitingRooms(attainedService());
  serve(session(1), 5000, 0);
  serve(session(2), 100, 1500, 1);
  const [one, two, first, second] = [add(session(1)), add(session(2)), add(session(3)), add(null)];
  expect([take(), take(), take(), take(), take()]).toEqual([first, second, two, one, null]);
});

test("a subagent has its agent's service", () => {
  const { add, take, serve } = waitingRooms(attainedService());
  serve(session(1), 5000, 0);
  const [subagent, other] = [add(session(2, 1)), add(session(3))];
  expect([take(), take()]).toEqual([other, subagent]);
});

test("nobody starves: a wait as long as its service takes a session to the first level", () => {
  const { add, take, serve } = waitingRooms(attainedService());
  serve(session(1), 5000, 0);
  const long = add(session(1), 0);
  const news = [add(session(2), 4000), add(session(3), 4900), add(session(4), 5000)];
  expect([take(4999), take(5000), take(5000), take(5000)]).toEqual([news[0]!, long, news[1]!, news[2]!]);
});

test("sessions in order of their first arrival, subagents with their agent", () => {
  const { add, take } = waitingRooms(firstSession());
  add(session(1), 0);
  take();
  const [two, one, child] = [add(session(2), 10), add(session(1), 20), add(session(5, 1), 30)];
  expect([take(), take(), take()]).toEqual([one, child, two]);
});

test("tenants keep their shares: the one that has used least is next", () => {
  for (const baseline of [firstCome(), firstSession(), attainedService()]) {
    const { add, take } = waitingRooms(baseline);
    for (let i = 0; i < 4; i++) for (const tenant of ["a", "b"]) add(session(i), 0, { tenant });
    const computed = { a: 0, b: 0 };
    for (let i = 0; i < 6; i++) {
      const tenant = take(0, i === 0 ? 900 : 300)!.service.tenant as "a" | "b";
      computed[tenant] += i === 0 ? 900 : 300;
      expect(Math.abs(computed.a - computed.b)).toBeLessThanOrEqual(900);
    }
    expect(computed.a).toBe(computed.b);
  }
});

test("an order that is passed over has no sequence", () => {
  const { orders, add } = waitingRooms(firstCome());
  const sequence = add(null);
  expect(orders[0]!.peek(0, new Set(["latency"]))).toBeNull();
  expect(orders[0]!.peek(0, new Set())).toBe(sequence);
});

test("the highest ratio of the wait to the tokens to compute is next, across tenants", () => {
  const order = highestRatio().open(({ id }) => (id === (1 as SequenceId) ? 90 : 0));
  const add = (id: number, tokens: number, arrivedMs: number): Sequence => {
    const spec = { ...sequenceSpec(new Int32Array(tokens), 9), id: id as SequenceId };
    const sequence = new Sequence(spec, id, arrivedMs);
    order.add(sequence);
    return sequence;
  };
  const [long, cached, late] = [add(0, 100, 0), add(1, 100, 50), add(2, 10, 90)];
  const take = (nowMs: number): Sequence => {
    const sequence = order.peek(nowMs)!;
    order.take(sequence, 1);
    return sequence;
  };
  expect([take(100), take(1000), take(1000)]).toEqual([cached, late, long]);
  expect(order.peek(1000)).toBeNull();
});
