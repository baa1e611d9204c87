/** Held sequences: another continues one as if it had never ended. */

import { expect, test } from "bun:test";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness } from "../../tests/support/engine-harness.ts";
import { chatService, type SequenceId, type SequenceSpec } from "../core.ts";
import { ours } from "../policies.ts";
import { servedAdmission } from "./admission-rule.ts";

const policy = { batch: ours().batch, queue: ours().queue };
const prompt = tokensFrom(0, 37);

/** Lets a held sequence end, and others wait meanwhile. */
function heldBeside(
  harness: EngineHarness,
  others: readonly Omit<SequenceSpec, "id">[],
): { readonly id: SequenceId; readonly known: readonly number[] } {
  const id = harness.submit(sequenceSpec(prompt, 10, { isHeld: true }));
  harness.step();
  for (const other of others) harness.submit(other);
  while (harness.outcomes[id]!.finish === null) harness.step();
  return { id, known: [...prompt, ...harness.outcomes[id]!.tokens] };
}

/** All steps of one sequence. */
function stepsOf({ steps }: EngineHarness, id: SequenceId) {
  return steps.flatMap(({ number, chunks, moves }) =>
    chunks
      .filter(({ sequence }) => sequence === id)
      .map(({ start, tokens }) => ({ number, start, count: tokens.length, copies: moves.length })),
  );
}

test("a continuation computes only its new tokens, in the next step, ahead of the waiting queue", () => {
  const harness = new EngineHarness({
    spec: { pages: 64 },
    engine: { ...policy, admission: { sequencesMax: 2 } },
    isStallFree: false,
  });
  const waiting = Array.from({ length: 20 }, (_, index) =>
    sequenceSpec(tokensFrom(100 + 30 * index, 25), 40),
  );
  const { id, known } = heldBeside(harness, waiting);
  const added = [900, 901, 902];
  const inFlight = harness.steps.at(-1)!.number;
  const next = harness.submit(sequenceSpec([...known, ...added], 4, { continues: id }));
  harness.finish();
  const [first] = stepsOf(harness, next);
  // The last token that was drawn was never computed. The two slots may be taken until an answer ends.
  expect(first).toMatchObject({ start: known.length - 1, count: added.length + 1, copies: 1 });
  const begun = harness.steps
    .filter(({ number }) => number > inFlight && number < first!.number)
    .flatMap(({ chunks }) => chunks.filter(({ start }) => start === 0));
  expect(begun).toEqual([]);
  expect(harness.outcomes[next]!.cachedTokens).toBe(known.length - 1);
});

test("held pages are evicted for running sequences, but not for waiting ones", () => {
  const run = (isHeld: boolean): number => {
    const harness = new EngineHarness({
      spec: { pages: 10 },
      engine: { ...policy, admission: { watermark: 0, rule: { ...servedAdmission, headroom: () => 0 } } },
      isStallFree: false,
    });
    const first = harness.submit(sequenceSpec(prompt, 12, { isHeld }));
    const other = harness.submit(sequenceSpec(tokensFrom(500, 20), 60));
    harness.submit(sequenceSpec(tokensFrom(700, 90), 4));
    while (harness.outcomes[first]!.finish === null) harness.step();
    for (let step = 0; step < 10; step++) harness.step();
    const known = [...prompt, ...harness.outcomes[first]!.tokens];
    expect(harness.outcomes[other]!.finish).toBeNull();
    const next = harness.submit(sequenceSpec([...known, 1], 2, { continues: first }));
    harness.finish();
    return harness.outcomes[next]!.cachedTokens!;
  };
  expect(run(true)).toBe(48);
  expect(run(false)).toBeLessThan(48);
});

test("no sequence waits forever for held pages; released pages are ordinary cached ones", () => {
  const harness = new EngineHarness({
    spec: { pages: 8 },
    engine: { ...policy, admission: { watermark: 0 } },
    isStallFree: false,
  });
  const { id } = heldBeside(harness, []);
  expect(harness.load).toMatchObject({ pagesFree: 5, pagesCached: 1 });
  harness.release(id);
  harness.finish();
  expect(harness.load.pagesFree + harness.load.pagesCached).toBe(8);

  const again = heldBeside(harness, []);
  const large = harness.submit(sequenceSpec(tokensFrom(400, 110), 4));
  harness.finish();
  expect(harness.outcomes[large]!.finish).toEqual({ kind: "length" });
  const late = harness.submit(sequenceSpec([...again.known, 5], 2, { continues: again.id }));
  harness.finish();
  expect(harness.outcomes[late]!.finish).toEqual({ kind: "length" });
});

test("an aborted sequence is held too, until its release, in either order of the two messages", () => {
  const harness = new EngineHarness({ spec: { pages: 8 }, engine: policy, isStallFree: false });
  const ids = [0, 200].map((first) =>
    harness.submit(sequenceSpec(tokensFrom(first, 16), 50, { isHeld: true, service: chatService })),
  );
  for (let step = 0; step < 4; step++) harness.step();
  harness.release(ids[0]!);
  for (const id of ids) harness.send("abort", id);
  harness.finish();
  expect(harness.load.pagesTotal - harness.load.pagesFree - harness.load.pagesCached).toBe(1);
  harness.release(ids[1]!);
  harness.finish();
  expect(harness.load.pagesFree + harness.load.pagesCached).toBe(8);
});

test("a continuation that is rejected, or aborted before its predecessor ends, holds nothing", () => {
  const harness = new EngineHarness({ spec: { pages: 8 }, engine: policy, isStallFree: false });
  const refused = harness.submit(sequenceSpec(prompt, 4, { isHeld: true }));
  harness.finish();
  const known = [...prompt, ...harness.outcomes[refused]!.tokens];
  const tooLong = harness.submit(sequenceSpec([...known, ...tokensFrom(0, 100)], 4, { continues: refused }));
  harness.finish();
  expect(harness.outcomes[tooLong]!.finish).toMatchObject({ kind: "rejected" });
  expect(harness.load.pagesFree + harness.load.pagesCached).toBe(8);

  const before = harness.submit(sequenceSpec(tokensFrom(500, 20), 50, { isHeld: true }));
  harness.step();
  const next = harness.submit(sequenceSpec(tokensFrom(500, 30), 4, { continues: before }));
  harness.send("abort", before); // while it is in a step: it ends after the next message
  harness.send("abort", next);
  harness.finish();
  expect(harness.load.pagesFree + harness.load.pagesCached).toBe(8);
});
