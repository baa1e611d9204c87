/** The order of programs' calls, and their place beside others. */

import { expect, test } from "bun:test";
import { sequenceSpec, tokensFrom } from "../../../simulation/factories.ts";
import { chatService, type ProgramPlace, type SequenceId } from "../../core.ts";
import { Sequence } from "../sequence.ts";
import { FirstCome } from "./first-come.ts";
import { Programs } from "./programs.ts";

let count = 0;

function sequence(arrivedMs: number, program: ProgramPlace | null = null): Sequence {
  const service = { ...chatService, program };
  const spec = { ...sequenceSpec(tokensFrom(0, 4), 4, { service }), id: count as SequenceId };
  count += 1;
  return new Sequence(spec, count, arrivedMs);
}

function orderOf(sequences: readonly Sequence[]): Sequence[] {
  const order = new Programs(new FirstCome());
  for (const one of sequences) order.add(one);
  return sequences.map(() => {
    const next = order.peek(1000)!;
    order.take(next, 1);
    return next;
  });
}

test("the last call of a program goes before the first of a later one, and longer paths before shorter", () => {
  const later = sequence(10, { id: 2, ageMs: 0, remainingMs: 900 });
  const short = sequence(20, { id: 1, ageMs: 20, remainingMs: 5 });
  const long = sequence(30, { id: 1, ageMs: 30, remainingMs: 50 });
  expect(orderOf([later, short, long])).toEqual([long, short, later]);
});

test("a call comes before those that arrived after its program", () => {
  const chats = [sequence(100), sequence(300)];
  const call = sequence(400, { id: 1, ageMs: 250, remainingMs: 5 });
  expect(orderOf([...chats, call])).toEqual([chats[0]!, call, chats[1]!]);
});

test("what is taken out is not in the order any more, and the rest keeps it", () => {
  const order = new Programs(new FirstCome());
  const calls = [3, 1, 2].map((id) => sequence(0, { id, ageMs: 0, remainingMs: 1 }));
  for (const call of calls) order.add(call);
  expect([order.remove(calls[1]!), order.remove(calls[1]!), order.size]).toEqual([true, false, 2]);
  expect(order.peek(0)).toBe(calls[2]!);
});
