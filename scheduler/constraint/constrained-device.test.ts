import { expect, test } from "bun:test";
import {
  type Chunk,
  greedySampling,
  type RowConstraint,
  type SampleRow,
  type SequenceId,
  type StepResult,
} from "../core.ts";
import type { Device, DeviceSpec } from "../device.ts";
import { compileConstraint } from "./compile.ts";
import { ConstrainedDevice } from "./constrained-device.ts";
import { vocabularyOf } from "./vocabulary.ts";

const texts = ["", "y", "ye", "yes", "e", "s", "n", "no", "o", "q"];
const end = 0;
const spec = { vocabSize: texts.length } as DeviceSpec;
const vocabulary = vocabularyOf(texts.length, (token) => new TextEncoder().encode(texts[token]!));

/** Draws the lowest token that is allowed and not banned. */
const lowest: Device = {
  spec,
  start: ({ chunks }, done) => {
    const sampled = chunks.map(({ sequence, samples: [row] }) => {
      const isFree = (token: number): boolean =>
        (row!.allowed === null || ((row!.allowed[token >>> 5]! >>> (token & 31)) & 1) === 1) &&
        !row!.banned.includes(token);
      const token = texts.findIndex((_, one) => isFree(one));
      return token < 0
        ? { kind: "failed" as const, sequence, reason: "nothing allowed" }
        : { kind: "token" as const, sequence, token, logprobs: null };
    });
    done({ kind: "done", sampled, deviceMs: 1 });
  },
  close: () => {},
};

const choice = (...given: string[]): RowConstraint["of"] => ({
  id: given.join(),
  grammar: compileConstraint({ kind: "choice", texts: given }).grammar,
});

function row(
  of: RowConstraint["of"] | null,
  drawn: readonly number[],
  banned: readonly number[] = [],
): SampleRow {
  const position = drawn.length;
  const free = { afterIndex: 0, sampling: greedySampling, position, banned, seen: null, allowed: null };
  if (of === null) return free;
  return { ...free, constraint: { of, drawn: Int32Array.from(drawn), endTokens: [end] } };
}

function draw(device: Device, rows: readonly SampleRow[]): (number | string)[] {
  const none = new Int32Array(0);
  const chunks = rows.map(
    (one, index): Chunk => ({
      sequence: index as SequenceId,
      start: 0,
      tokens: Int32Array.of(1),
      pages: none,
      samples: [one],
      adapter: 0,
    }),
  );
  let result: StepResult | null = null;
  device.start({ number: 1, moves: [], chunks }, (given) => {
    result = given;
  });
  const { sampled } = result! as StepResult & { readonly kind: "done" };
  return sampled.map((one) => (one.kind === "token" ? one.token : one.reason));
}

test("a row is drawn from what goes on with its text, whether it was followed from its beginning or not", () => {
  const answer = choice("yes", "no");
  const followed = new ConstrainedDevice(lowest, vocabulary);
  const drawn: number[] = [];
  for (let i = 0; i < 8 && drawn.at(-1) !== end; i++) {
    const [token] = draw(followed, [row(answer, drawn)]);
    expect(draw(new ConstrainedDevice(lowest, vocabulary), [row(answer, drawn)])).toEqual([token!]);
    drawn.push(token as number);
  }
  expect(drawn.map((token) => texts[token]).join("")).toBe("yes");
  expect(drawn.at(-1)).toBe(end);
  // Preempted, and begun again from fewer tokens by another sequence of the same number.
  expect(draw(followed, [row(answer, [6])])).toEqual([8]);
});

test("free rows beside it are as they were, and a row that cannot go on fails alone", () => {
  const device = new ConstrainedDevice(lowest, vocabulary);
  const [free, held, lost, wrong] = draw(device, [
    row(null, [], [0]),
    row(choice("no"), []),
    row(choice("xyz"), []),
    row(choice("no"), [1]),
  ]);
  expect([free, held]).toEqual([1, 6]);
  expect(lost).toBe("constraint_unsatisfiable: no token of the model's vocabulary goes on with the text");
  expect(wrong).toBe("constraint_unsatisfiable: what was drawn before does not obey it");
});

test("a text ends when it may, and when it must though more tokens were asked for", () => {
  const device = new ConstrainedDevice(lowest, vocabulary);
  expect(draw(device, [row(choice("n", "no"), [6])])).toEqual([end]);
  expect(draw(device, [row(choice("n", "no"), [6], [end])])).toEqual([8]);
  expect(draw(device, [row(choice("no"), [7], [end])])).toEqual([end]);
});
