/** Hosting rules, on a device whose steps the test completes. */

import { expect, test } from "bun:test";
import { deviceSpec, sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import type { SequenceId, Step, StepResult } from "../core.ts";
import { linearCost } from "../cost/linear.ts";
import { OnlineCostModel } from "../cost/online.ts";
import type { EngineMessage, EngineReport } from "../messages.ts";
import { EngineHost } from "./engine-host.ts";

/** Makes an engine host with an engine; records all its reports. */
function bench() {
  const clock = new ManualClock();
  const host = new EngineHost();
  const inbox: EngineMessage[] = [];
  const reports: EngineReport[] = [];
  /** Times of reports that had learnt costs. */
  const learntMs: number[] = [];
  let flying: { readonly step: Step; readonly done: (result: StepResult) => void } | null = null;
  const spec = deviceSpec({ pages: 64 });
  const costs = new OnlineCostModel(linearCost(5, 0.1));
  const open = (epoch = 0): void =>
    host.open(
      {
        link: {
          next: () => inbox.shift() ?? null,
          report: (report, learnt) => {
            reports.push(report);
            if (learnt !== null) learntMs.push(clock.nowMs());
          },
        },
        device: {
          spec,
          start: (step, done) => {
            flying = { step, done };
          },
          close: () => {},
        },
        clock,
      },
      { epoch, settings: { integrity: "always" }, costs },
    );
  const submit = (id: number, tokensMax = 1000): void => {
    const sequence = { ...sequenceSpec(tokensFrom(id, 20), tokensMax), id: id as SequenceId };
    inbox.push({ kind: "submit", sequence });
  };
  /** Ends the step in flight after `ms`. */
  const answer = (ms = 1): void => {
    clock.advance(ms);
    const { step, done } = flying!;
    flying = null;
    const sampled = step.chunks.flatMap(({ sequence, samples }) =>
      samples.map(() => ({ kind: "token" as const, sequence, token: 7, logprobs: null })),
    );
    done({ kind: "done", sampled, deviceMs: ms });
  };
  const lose = (): void => flying!.done({ kind: "lost", reason: "The device was lost." });
  const inStep = (): SequenceId[] => flying?.step.chunks.map(({ sequence }) => sequence) ?? [];
  return { host, inbox, reports, learntMs, open, submit, answer, lose, inStep };
}

const ids = (...numbers: number[]): SequenceId[] => numbers as SequenceId[];

test("all messages that have arrived are received before a step is planned", () => {
  const { host, open, submit, inStep } = bench();
  open();
  submit(1);
  submit(2);
  host.turn();
  expect(inStep()).toEqual(ids(1, 2));
});

test("messages that arrive during a step come before its result", () => {
  const { host, inbox, reports, open, submit, answer, inStep } = bench();
  open();
  submit(1);
  host.turn();
  submit(2);
  inbox.push({ kind: "abort", sequence: 1 as SequenceId });
  answer();
  expect(reports.flatMap(({ tokens }) => tokens)).toEqual([]);
  expect(reports.flatMap(({ finished }) => finished)).toEqual([
    { sequence: 1 as SequenceId, finish: { kind: "aborted" } },
  ]);
  expect(inStep()).toEqual(ids(2));
});

test("an engine never hears that its device is lost, and another takes its engine host", () => {
  const { host, reports, open, submit, lose, answer } = bench();
  open();
  submit(1);
  host.turn();
  const before = reports.length;
  expect(lose).toThrow("The device was lost.");
  expect(reports.length).toBe(before);
  expect(() => open()).toThrow("only a lost engine is replaced");
  host.close();
  expect(host.engine).toBeNull();
  host.turn(); // no engine lives here, so the turn has no effect
  open(1);
  submit(2, 1);
  host.turn();
  answer();
  expect(reports.at(-1)).toMatchObject({ tokens: [7], finished: [{ finish: { kind: "length" } }] });
});

test("what an engine learns goes with a report, once a second", () => {
  const { host, learntMs, open, submit, answer } = bench();
  open();
  submit(1);
  host.turn();
  for (let step = 0; step < 8; step++) answer(300);
  expect(learntMs).toEqual([1200, 2400]);
});
