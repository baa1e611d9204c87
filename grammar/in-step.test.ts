/**
 * Constrained answers in the engine's steps. Other tests cover the rest: any order and company of commands
 * (engine/engine.prop.test.ts), forced tokens as one chunk (engine.test.ts), and logprobs of the raw logits
 * (gpu/conformance.ts).
 */
import { expect, test } from "bun:test";
import { ConstrainedDevice } from "../gpu/constrained-device.ts";
import {
  greedySampling,
  type Sampled,
  type SampleRow,
  type Sampling,
  type SequenceId,
  type SequenceSpec,
  type Step,
  type StopRule,
} from "../scheduler/core.ts";
import type { Device, DeviceSpec } from "../scheduler/device.ts";
import { staticBudget } from "../simulation/baselines/static-budget.ts";
import { sequenceSpec, tokensFrom } from "../simulation/factories.ts";
import { EngineHarness, type Outcome, tokensAlone } from "../tests/support/engine-harness.ts";
import { compileConstraint } from "./compile.ts";
import type { Constraint } from "./constraint.ts";
import { vocabularyOf } from "./mask/vocabulary.ts";

/** Tokens 0 … 25 are letters, 26 … 51 pairs of them, and 60 ends a text. */
const END = 60;
const letter = (index: number): string => String.fromCharCode(97 + (index % 26));
const textOf = (token: number): string =>
  token < 26 ? letter(token) : token < 52 ? letter(token) + letter(3 * token) : "";
const spec = { vocabSize: 64 };
const vocabulary = vocabularyOf(spec.vocabSize, (token) => new TextEncoder().encode(textOf(token)));

const held = (pattern: string): Constraint => ({
  id: pattern,
  grammar: compileConstraint({ kind: "regex", pattern }).grammar,
});
const words = held("([a-f]{2,5}[x-z]){3}");
const any = held("[a-z]*");

function spoken({ tokens }: Outcome): string {
  return tokens
    .filter((token) => token !== END)
    .map(textOf)
    .join("");
}

interface Asked {
  readonly prompt?: number;
  readonly constraint?: Constraint | null;
  readonly tokensMax?: number;
  readonly sampling?: Partial<Sampling>;
  readonly stop?: Partial<StopRule>;
}

function asked({
  prompt = 8,
  constraint = words,
  tokensMax = 40,
  sampling,
  stop,
}: Asked = {}): Omit<SequenceSpec, "id"> {
  return sequenceSpec(
    tokensFrom(0, prompt).map((token) => token % 50),
    tokensMax,
    {
      sampling: { temperature: 1, ...sampling },
      stop: { stopTokens: [END], ...stop },
      ...(constraint === null ? {} : { constraint }),
    },
  );
}

function together(
  specs: readonly Omit<SequenceSpec, "id">[],
  options: ConstructorParameters<typeof EngineHarness>[0] = {},
) {
  const harness = new EngineHarness({ ...options, vocabulary, spec: { ...spec, ...options.spec } });
  for (const one of specs) harness.submit(one);
  harness.finish();
  return harness;
}

const alone = (one: Omit<SequenceSpec, "id">): Outcome => tokensAlone(one, spec, vocabulary);
const tokensOf = ({ tokens, finish }: Outcome) => ({ tokens, finish });
const seeded = (count: number, more: Asked = {}) =>
  Array.from({ length: count }, (_, seed) =>
    asked({ ...more, sampling: { seed: [seed, 0], ...more.sampling } }),
  );

test("rows that are held and free ones share steps, and each is as it is alone", () => {
  const specs = [...seeded(3), ...seeded(3, { constraint: null }), ...seeded(2, { constraint: any })];
  const { outcomes, steps } = together(specs);
  expect(outcomes.map(tokensOf)).toEqual(specs.map((one) => tokensOf(alone(one))));
  for (const one of outcomes.slice(0, 3)) expect(spoken(one)).toMatch(/^([a-f]{2,5}[x-z]){3}$/);
  const isMixed = steps.some(({ chunks }) => {
    const rows = chunks.flatMap(({ samples }) => samples as readonly SampleRow[]);
    return (
      rows.some((row) => row.constraint !== undefined) && rows.some((row) => row.constraint === undefined)
    );
  });
  expect(isMixed).toBe(true);
});

test("a prompt in many chunks, and preemption, change no token", () => {
  const long = seeded(3, { prompt: 100 });
  const chunked = together(long, { engine: { batch: staticBudget(16) } });
  expect(
    chunked.steps.filter(({ chunks }) => chunks.some(({ samples }) => samples.length === 0)).length,
  ).toBeGreaterThan(4);
  expect(chunked.outcomes.map(tokensOf)).toEqual(long.map((one) => tokensOf(alone(one))));

  const many = seeded(3, { prompt: 10, constraint: any, tokensMax: 100, stop: { tokensMin: 100 } });
  const crowded = together(many, { spec: { pages: 11 }, engine: { admission: { watermark: 0 } } });
  const preempted = crowded.traces.flatMap(({ notes }) => notes.filter(({ kind }) => kind === "preempted"));
  expect(preempted.length).toBeGreaterThan(0);
  expect(crowded.outcomes.map(tokensOf)).toEqual(many.map((one) => tokensOf(alone(one))));
});

test("what a lost engine had drawn is all that another needs to go on, wherever it was", () => {
  for (const one of [
    ...seeded(2),
    asked({ constraint: held("(abcabc)+x"), sampling: { presencePenalty: 1 } }),
  ]) {
    const { tokens, finish } = alone(one);
    expect(tokens.length).toBeGreaterThan(2);
    for (let told = 1; told < tokens.length; told++) {
      const rest = alone({ ...one, drawnTokens: tokens.slice(0, told) });
      expect([...tokens.slice(0, told), ...rest.tokens]).toEqual(tokens);
      expect(rest.finish).toEqual(finish);
    }
  }
});

test("several answers to one prompt each obey, and go ways of their own", () => {
  const { outcomes } = together(seeded(6));
  const texts = outcomes.map(spoken);
  for (const text of texts) expect(text).toMatch(/^([a-f]{2,5}[x-z]){3}$/);
  expect(new Set(texts).size).toBeGreaterThan(3);
});

test("penalties count what is drawn and what is forced, and biases choose among what is allowed", () => {
  const said = held("(abcabc)+");
  const rows: Record<number, number>[] = [];
  const fault = ({ chunks }: Step): null => {
    const { seen } = chunks[0]!.samples[0] as SampleRow;
    const { tokens, counts, length } = seen!;
    rows.push(Object.fromEntries(Array.from({ length }, (_, i) => [tokens[i]!, counts[i]!])));
    return null;
  };
  const letters = [0, 1, 2, END].map((token) => 1 << (token & 31));
  const only = Uint32Array.of(letters[0]! | letters[1]! | letters[2]!, letters[3]!);
  const sampling = { presencePenalty: 1, allowedTokens: only };
  const { outcomes } = together(
    [asked({ prompt: 1, constraint: said, tokensMax: 12, sampling, stop: { tokensMin: 12 } })],
    { fault },
  );
  expect(spoken(outcomes[0]!)).toBe("abcabcabcabc");
  const last = rows.at(-1)!;
  expect([last[0], last[1], last[2]].reduce((sum, count) => sum! + count!, 0)).toBeGreaterThanOrEqual(6);
  // The mask forbids "q" despite its bias; "y" is allowed in its place.
  const wanted = {
    logitBias: [
      [16, 100],
      [24, 100],
    ] as const,
    temperature: 0,
  };
  expect(spoken(alone(asked({ constraint: held("[a-f]{2}[x-z]"), sampling: wanted })))).toMatch(
    /^[a-f]{2}y$/,
  );
});

test("the fewest tokens that are asked for give way to a text that must end, and not to one that may", () => {
  const must = alone(asked({ constraint: held("ab"), stop: { tokensMin: 20 } }));
  expect([spoken(must), must.finish]).toEqual(["ab", { kind: "stop", token: END }]);
  const may = alone(asked({ constraint: any, tokensMax: 30, stop: { tokensMin: 20 } }));
  expect(may.tokens.length).toBeGreaterThanOrEqual(20);
});

test("a text that is cut at its length ends with length, and nothing is added to it", () => {
  for (const tokensMax of [1, 2, 3]) {
    const { tokens, finish } = alone(asked({ tokensMax }));
    expect(finish).toEqual({ kind: "length" });
    expect(tokens).toEqual(alone(asked()).tokens.slice(0, tokensMax));
  }
});

test("a row that no token goes on with fails alone", () => {
  const specs = [asked({ constraint: held("[0-9]+") }), asked(), asked({ constraint: null })];
  const { outcomes } = together(specs);
  const reason = "constraint_unsatisfiable: no token of the model's vocabulary continues the text";
  expect(outcomes[0]).toEqual({ cachedTokens: 0, tokens: [], finish: { kind: "failed", reason } });
  expect(outcomes.slice(1).map(tokensOf)).toEqual(specs.slice(1).map((one) => tokensOf(alone(one))));
});

test("masks of the next step are prepared while the device computes", () => {
  /** True, for each of the two, if the mask was ready when the device started, and after it had. */
  const preparedWith = (workSteps: number): [atStart: boolean, after: boolean] => {
    let atStart = false;
    const busy: Device = {
      spec: spec as DeviceSpec,
      start: () => {
        atStart = device.kept.maskBytes > 0;
      },
      close: () => {},
    };
    const device = new ConstrainedDevice(busy, vocabulary, workSteps);
    const constraint = { of: words, drawn: new Int32Array(0), endTokens: [END] };
    const row = {
      afterIndex: 0,
      sampling: greedySampling,
      position: 0,
      banned: [],
      seen: null,
      allowed: null,
      constraint,
    };
    const chunk = {
      start: 0,
      tokens: Int32Array.of(1),
      pages: new Int32Array(0),
      samples: [row],
      adapter: 0,
    };
    device.start(
      { number: 1, moves: [], chunks: [{ sequence: 0 as SequenceId, ...chunk }] },
      (): readonly Sampled[] => [],
    );
    return [atStart, device.kept.maskBytes > 0];
  };
  const prepared = Array.from({ length: 200 }, (_, index) => preparedWith(1 + 2 * index).join());
  expect(new Set(prepared)).toEqual(new Set(["false,false", "false,true", "true,true"]));
});
