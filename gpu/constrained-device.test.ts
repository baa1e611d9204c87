import { expect, test } from "bun:test";
import { compileConstraint } from "../grammar/compile.ts";
import { allAtOnce } from "../grammar/mask/job.ts";
import { vocabularyOf } from "../grammar/mask/vocabulary.ts";
import {
  type Chunk,
  greedySampling,
  type RowConstraint,
  type Sampled,
  type SampleRow,
  type SequenceId,
  type StateSlot,
  type StepResult,
} from "../scheduler/core.ts";
import type { Device, DeviceSpec } from "../scheduler/device.ts";
import { ConstrainedDevice } from "./constrained-device.ts";

const texts = ["", "y", "ye", "yes", "e", "s", "n", "no", "o", "q"];
const end = 0;
const spec = { vocabSize: texts.length, pageTokens: 16 } as DeviceSpec;
const vocabulary = vocabularyOf(texts.length, (token) => new TextEncoder().encode(texts[token]!));

/** Device that samples the lowest token that is allowed and not banned. */
const lowest: Device = {
  spec,
  start: ({ chunks }, done) => {
    const sampled = chunks.flatMap(({ sequence, samples: [row] }): Sampled[] => {
      if (row === undefined || row.wants === "hidden") return [];
      const isFree = (token: number): boolean =>
        (row.allowed === null || ((row.allowed[token >>> 5]! >>> (token & 31)) & 1) === 1) &&
        !row.banned.includes(token);
      const token = texts.findIndex((_, one) => isFree(one));
      return token < 0
        ? [{ kind: "failed", sequence, reason: "nothing allowed" }]
        : [{ kind: "token", sequence, token, logprobs: null }];
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
  tokens: readonly number[] | null = null,
): SampleRow {
  const position = drawn.length;
  const allowed =
    tokens === null ? null : Uint32Array.of(tokens.reduce((bits, token) => bits | (1 << token), 0));
  const free = { afterIndex: 0, sampling: greedySampling, position, banned, seen: null, allowed };
  if (of === null) return free;
  return { ...free, constraint: { of, drawn: Int32Array.from(drawn), endTokens: [end] } };
}

function sampled(device: Device, rows: readonly SampleRow[]): readonly Sampled[] {
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
  return (result! as StepResult & { readonly kind: "done" }).sampled;
}

/** Sampled tokens, or the reasons why there are none. */
function draw(device: Device, rows: readonly SampleRow[]): (number | string)[] {
  return sampled(device, rows).map((one) => {
    if (one.kind === "token") return one.token;
    return one.kind === "failed" ? one.reason : one.kind;
  });
}

test("a mask allows the same tokens whether the matcher saw the text from its start or replayed it", () => {
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
  // The sequence was preempted; another one with the same number starts from fewer tokens.
  expect(draw(followed, [row(answer, [6])])).toEqual([8]);
});

test("warm-up does not change the tokens drawn", () => {
  const device = new ConstrainedDevice(lowest, vocabulary);
  allAtOnce(device.warmUp());
  const answer = choice("yes", "no");
  expect(draw(device, [row(answer, [])])).toEqual(
    draw(new ConstrainedDevice(lowest, vocabulary), [row(answer, [])]),
  );
});

test("unconstrained rows are unaffected, and a row without an allowed token fails alone", () => {
  const device = new ConstrainedDevice(lowest, vocabulary);
  const [free, held, lost, wrong] = draw(device, [
    row(null, [], [0]),
    row(choice("no"), []),
    row(choice("xyz"), []),
    row(choice("no"), [1]),
  ]);
  expect([free, held]).toEqual([1, 7]);
  expect(lost).toBe("constraint_unsatisfiable: no token of the model's vocabulary continues the text");
  expect(wrong).toBe("constraint_unsatisfiable: the tokens drawn so far violate it");
});

test("a complete text may end; one that cannot continue ends even below the minimum number of tokens", () => {
  const device = new ConstrainedDevice(lowest, vocabulary);
  expect(draw(device, [row(choice("n", "no"), [6])])).toEqual([end]);
  expect(draw(device, [row(choice("n", "no"), [6], [end])])).toEqual([8]);
  expect(draw(device, [row(choice("no"), [7], [end])])).toEqual([end]);
});

const noneLeft =
  "constraint_unsatisfiable: allowed tokens, bad words and the minimum number of tokens leave no token to draw";

test("a row draws from the allowed, unbanned tokens that continue its text; with none left it fails alone", () => {
  const device = new ConstrainedDevice(lowest, vocabulary);
  const answer = choice("yes", "no");
  expect(
    draw(device, [
      row(null, [], [2], [2, 5]),
      row(null, [], [2, 5], [2, 5]),
      row(answer, [], [1, 2]),
      row(answer, [], [], [3, 8]),
      row(answer, [], [], [8, 9]),
      row(answer, [], [1, 2, 3, 6, 7]),
      row(choice("xyz"), [], [], [8]),
    ]),
  ).toEqual([
    5,
    noneLeft,
    3,
    3,
    noneLeft,
    noneLeft,
    "constraint_unsatisfiable: no token of the model's vocabulary continues the text",
  ]);
});

test("a complete text can end whatever the allowed tokens are", () => {
  const device = new ConstrainedDevice(lowest, vocabulary);
  expect(draw(device, [row(choice("no"), [7], [], [7])])).toEqual([end]);
  expect(draw(device, [row(choice("n", "no"), [6], [end], [6])])).toEqual([end]);
  expect(draw(device, [row(choice("n", "no"), [6], [end], [8])])).toEqual([8]);
});

test("jump-forward tokens override bad words, but not the allowed tokens", () => {
  const said = choice("noyes", "noyo", "yesyes");
  const device = new ConstrainedDevice(lowest, vocabulary);
  const [free] = sampled(device, [row(said, [])]);
  expect(free).toEqual({
    kind: "token",
    sequence: 0 as SequenceId,
    token: 1,
    logprobs: null,
    forced: [4, 5, 3],
  });
  expect(draw(device, [row(said, [1], [4])])).toEqual([4]);
  expect(sampled(device, [row(said, [], [], [1, 4, 3])])).toEqual([{ ...free!, forced: [4] } as Sampled]);
  // "es" has no other tokenisation.
  expect(draw(device, [row(said, [1], [], [1, 5])])).toEqual([noneLeft]);
});

test("memory stays bounded over successive answers with a grammar each", () => {
  const device = new ConstrainedDevice(lowest, vocabulary);
  const one = (sequence: number): readonly Sampled[] => {
    let result: readonly Sampled[] = [];
    const samples = [row(choice(`yes${"y".repeat(sequence)}`), [])];
    const chunk = { start: 0, tokens: Int32Array.of(1), pages: new Int32Array(0), samples, adapter: 0 };
    device.start(
      { number: 1, moves: [], chunks: [{ sequence: sequence as SequenceId, ...chunk }] },
      (given) => {
        if (given.kind === "done") result = given.sampled;
      },
    );
    return result;
  };
  const first = one(0);
  for (let sequence = 1; sequence < 500; sequence++) one(sequence);
  const { grammars, texts, maskBytes } = device.kept;
  expect([grammars, texts]).toEqual([64, 66]);
  expect(maskBytes).toBeLessThanOrEqual(64 * 2 ** 20);
  expect(one(0)).toEqual(first);
});

test("rows in equal grammar states share one mask, whatever their texts", () => {
  const said = choice("yes", "no", "noyes", "nono");
  const keptOf = (rows: readonly SampleRow[]): number => {
    const device = new ConstrainedDevice(lowest, vocabulary);
    draw(device, rows);
    return device.kept.maskBytes;
  };
  const one = keptOf([row(said, [])]);
  expect(one).toBeGreaterThan(0);
  expect(keptOf([row(said, []), row(said, []), row(said, [])])).toBe(one);
  expect(keptOf([row(said, []), row(said, [7])])).toBe(2 * one);
});

test("a token comes with its jump-forward tokens, the same as drawn one by one", () => {
  const said = choice("noyes", "noyo", "yesyes");
  const device = new ConstrainedDevice(lowest, vocabulary);
  // "y" and "ye" extend past the end of the forced text.
  expect(sampled(device, [row(said, [])])).toEqual([
    { kind: "token", sequence: 0 as SequenceId, token: 1, logprobs: null, forced: [4, 5, 3] },
  ]);
});

test("a long text is replayed in pieces after a preemption; other rows are not delayed, and a text that violates the grammar fails alone", () => {
  const said = choice("yesno".repeat(100));
  const drawn = Array.from({ length: 190 }, (_, index) => (index % 2 === 0 ? 3 : 7));
  const rows = [row(said, drawn), row(null, [], [0]), row(said, [...drawn, 7])];
  const device = new ConstrainedDevice(lowest, vocabulary, 1000);
  const steps: (number | string)[][] = [];
  while (steps.at(-1)?.includes("deferred") ?? true) steps.push(draw(device, rows));
  expect(steps.at(-1)).toEqual([3, 1, "constraint_unsatisfiable: the tokens drawn so far violate it"]);
  // 381 tokens of 48 work units each. The device works up to 1,000 units before each step, and as many while
  // it computes.
  expect(steps.length).toBeGreaterThanOrEqual(6);
  expect(steps.slice(0, -1).every(([, free]) => free === 1)).toBe(true);
});

test("a row whose mask takes long is deferred and then draws the same token; other rows are not delayed", () => {
  const texts = Array.from(
    { length: 40 },
    (_, index) => "yesno".repeat(1 + (index % 7)) + "no".repeat(index),
  );
  const rows = [row(choice(...texts), []), row(null, [], [0])];
  const [wanted] = draw(new ConstrainedDevice(lowest, vocabulary), rows);
  const device = new ConstrainedDevice(lowest, vocabulary, 40);
  const seen: (number | string)[] = [];
  while (typeof seen.at(-1) !== "number") {
    const [held, free] = draw(device, rows);
    expect(free).toBe(1);
    seen.push(held!);
  }
  expect(seen.at(-1)).toBe(wanted!);
  expect(seen.length).toBeGreaterThan(2);
  expect(seen.slice(0, -1).every((one) => one === "deferred")).toBe(true);
});

test("a deferred row takes the last token off its chunk, and the checkpoint after it", () => {
  const started: Chunk[] = [];
  const recording: Device = {
    ...lowest,
    start: (step, done) => {
      started.push(...step.chunks);
      lowest.start(step, done);
    },
  };
  const device = new ConstrainedDevice(recording, vocabulary, 1);
  const slot = (id: number): StateSlot => id as StateSlot;
  const saves = [1, 2, 3].map((count) => ({ count, slot: slot(count) }));
  const chunk: Chunk = {
    sequence: 0 as SequenceId,
    start: 0,
    tokens: Int32Array.of(1, 1, 1),
    pages: Int32Array.of(0),
    samples: [{ ...row(choice("yes", "no"), []), afterIndex: 2 }],
    adapter: 0,
    state: { slot: slot(0), from: null, saves },
  };
  device.start({ number: 1, moves: [], chunks: [chunk] }, () => {});
  expect(started).toMatchObject([
    { tokens: Int32Array.of(1, 1), samples: [], state: { slot: slot(0), saves: saves.slice(0, 2) } },
  ]);
});
