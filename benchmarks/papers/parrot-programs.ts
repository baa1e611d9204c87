/**
 * Programs of Parrot's evaluation as graphs: shapes from the paper's §8, lengths from the authors' artifact.
 */

import { SeededRandom } from "../../base/random.ts";
import { greedySampling } from "../../scheduler/core.ts";
import type {
  CallSpec,
  Criteria,
  OutputPart,
  ProgramPart,
  PromptPart,
} from "../../scheduler/program/spec.ts";
import { type ProgramArrival, uniqueText } from "../../simulation/workloads/programs.ts";

export const soon: Criteria = { objective: "latency", ttftMs: null, tbtMs: null };

/**
 * Tokens of each of the ten articles, derived from the authors' times of chains with chunks of 1,024. An
 * article's number of chunks follows from the extra time of 75 more output tokens per call, at 27 ms a token.
 * It is 36 to 81.
 */
export const articleTokens: readonly number[] = [58, 37, 41, 36, 48, 46, 81, 78, 38, 49].map(
  (chunks) => chunks * 1024,
);

export interface Summary {
  readonly random: SeededRandom;
  readonly articleTokens: number;
  readonly chunkTokens: number;
  readonly outputTokens: number;
}

/** Makes a chain: one chunk after another, each with the summary so far. */
export function chain({ random, articleTokens: tokens, chunkTokens, outputTokens }: Summary): ProgramPart {
  const count = Math.max(2, Math.floor(tokens / chunkTokens));
  const head = uniqueText(new SeededRandom(1), 40);
  const nodes = Array.from({ length: count }, (_, index): CallSpec => {
    const chunk = text(uniqueText(random, chunkTokens));
    const before: PromptPart[] = index === 0 ? [] : [input(`summary${index - 1}`)];
    return call(`call${index}`, [text(head), ...before, chunk, output(`summary${index}`, outputTokens)]);
  });
  return { nodes, variables: [] };
}

/** Returns the last variable of a chain, the only awaited one. */
export function lastOf({ nodes }: ProgramPart): string {
  return `summary${nodes.length - 1}`;
}

/** Makes a map-reduce: each chunk separately, then one call over all results. */
export function mapReduce({
  random,
  articleTokens: tokens,
  chunkTokens,
  outputTokens,
}: Summary): ProgramPart {
  const count = Math.max(2, Math.floor(tokens / chunkTokens));
  const head = uniqueText(new SeededRandom(2), 40);
  const nodes = Array.from(
    { length: count },
    (_, index): CallSpec =>
      call(`map${index}`, [
        text(head),
        text(uniqueText(random, chunkTokens)),
        output(`part${index}`, outputTokens),
      ]),
  );
  const parts = nodes.map((_, index) => input(`part${index}`));
  const reduce = call("reduce", [
    text(uniqueText(new SeededRandom(3), 40)),
    ...parts,
    output("final", outputTokens),
  ]);
  return { nodes: [...nodes, reduce], variables: [] };
}

/** Makes a program of a single call: a constant text, a unique one, an answer. */
export function single(constant: string, own: string, outputTokens: number): ProgramPart {
  return {
    nodes: [call("call", [text(constant), text(own), output("answer", outputTokens)])],
    variables: [],
  };
}

/** Makes calls of one kind at random times, with a given rate and duration. */
export function stream(
  random: SeededRandom,
  {
    perSecond,
    untilMs,
    kind,
  }: { readonly perSecond: number; readonly untilMs: number; readonly kind: string },
  make: () => ProgramPart,
): ProgramArrival[] {
  const arrivals: ProgramArrival[] = [];
  for (let atMs = gap(random, perSecond); atMs < untilMs; atMs += gap(random, perSecond)) {
    arrivals.push({ atMs, kind, part: make(), wants: { answer: soon } });
  }
  return arrivals;
}

/**
 * Makes MetaGPT's shape (figure 1d): an architect, then a coder per file. Three times, a reviewer reads all
 * files and a coder revises.
 */
export function multiAgent(random: SeededRandom, files: number): { part: ProgramPart; wants: string[] } {
  const role = (seed: number, tokens: number): PromptPart => text(uniqueText(new SeededRandom(seed), tokens));
  const each = <Item>(make: (file: number) => Item): Item[] =>
    Array.from({ length: files }, (_, file) => make(file));
  const nodes: CallSpec[] = [
    call("architect", [role(11, 700), text(uniqueText(random, 30)), output("design", 500)]),
  ];
  for (const file of each((index) => index)) {
    const own = text(uniqueText(random, 10));
    nodes.push(call(`code${file}`, [role(12, 350), input("design"), own, output(`code0_${file}`, 400)]));
  }
  for (let round = 1; round <= 3; round++) {
    const all = each((file) => input(`code${round - 1}_${file}`));
    for (const file of each((index) => index)) {
      const own = text(uniqueText(random, 10));
      nodes.push(
        call(`review${round}_${file}`, [
          role(13, 300),
          input("design"),
          ...all,
          own,
          output(`review${round}_${file}`, 150),
        ]),
        call(`revise${round}_${file}`, [
          role(14, 300),
          input("design"),
          ...all,
          own,
          input(`review${round}_${file}`),
          output(`code${round}_${file}`, 400),
        ]),
      );
    }
  }
  return { part: { nodes, variables: [] }, wants: each((file) => `code3_${file}`) };
}

/** Applications of figure 17, as in the artifact. */
const gpts = [
  { prompt: 7437, query: 7, output: 704 },
  { prompt: 1116, query: 8, output: 89 },
  { prompt: 1694, query: 4, output: 631 },
  { prompt: 2031, query: 4, output: 416 },
];

/** Makes a call of one of the four applications, all equally likely. */
export function gptsCall(random: SeededRandom): ProgramPart {
  const index = random.below(gpts.length);
  const { prompt, query, output: tokens } = gpts[index]!;
  return single(uniqueText(new SeededRandom(20 + index), prompt), uniqueText(random, query), tokens);
}

function gap(random: SeededRandom, perSecond: number): number {
  return (-Math.log(1 - random.unit()) * 1000) / perSecond;
}

function call(name: string, parts: readonly PromptPart[]): CallSpec {
  return { kind: "call", name, prompt: { kind: "text", parts } };
}

function text(value: string): PromptPart {
  return { kind: "text", text: value };
}

function input(variable: string): PromptPart {
  return { kind: "input", variable, transforms: [] };
}

function output(variable: string, tokensMax: number): OutputPart {
  return { kind: "output", variable, transforms: [], sampling: greedySampling, tokensMax, stop: [] };
}
