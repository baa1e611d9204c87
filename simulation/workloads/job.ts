/**
 * Offline jobs: all prompts are known before the first one runs, and many share prefixes. Shapes are those of
 * BatchLLM's evaluation (arXiv:2412.03594 §6).
 */

import { SeededRandom } from "../../base/random.ts";
import type { BatchAdmission } from "../../scheduler/batch/batch-admission.ts";
import { chatService, type Service } from "../../scheduler/core.ts";
import type { Arrival, Workload } from "../workload.ts";
import { drawNormal, nameOf, type PromptPiece, promptOf, shuffled, workloadOf } from "./parts.ts";

/** Prompt of a job, with the length of its answer. */
export interface JobPrompt {
  readonly parts: readonly PromptPiece[];
  readonly outputTokens: number;
}

/** Number of prompts per prefix: a constant, or geometric with the given mean. */
export type Sharers = { readonly exactly: number } | { readonly geometric: number };

/**
 * Shape of a job's prompts. Lengths are means in tokens; prefixes and suffixes vary by a quarter, unless
 * `varies` is false.
 */
export interface JobShape {
  readonly prompts: number;
  readonly sharers: Sharers;
  /** Tokens that all prompts begin with. */
  readonly instructionTokens: number;
  /** Tokens of a shared prefix, without the instruction. */
  readonly prefixTokens: number;
  readonly ownTokens: number;
  readonly outputTokens: number;
  readonly varies: boolean;
}

/** Makes the prompts in a seeded random order, as clients do not sort them. */
export function jobPrompts(shape: JobShape, seed: number): readonly JobPrompt[] {
  const { prompts, instructionTokens, prefixTokens, ownTokens, outputTokens, varies } = shape;
  const random = new SeededRandom(seed).child("job");
  const lengthOf = (mean: number): number => {
    if (!varies) return mean;
    const [deviation, least, most] = [mean / 4, Math.ceil(mean / 4), 2 * mean];
    return drawNormal(random, { mean, deviation, least, most });
  };
  const instruction = { name: nameOf(seed, 0), tokens: instructionTokens };
  const all: JobPrompt[] = [];
  for (let group = 1; all.length < prompts; group++) {
    const prefix = { name: nameOf(seed, 1, group), tokens: lengthOf(prefixTokens) };
    const sharers = Math.min(sharersOf(shape.sharers, random), prompts - all.length);
    for (let member = 0; member < sharers; member++) {
      const own = { name: nameOf(seed, 2, group, member), tokens: lengthOf(ownTokens) };
      all.push({ parts: [instruction, prefix, own], outputTokens: lengthOf(outputTokens) });
    }
  }
  return shuffled(all, random);
}

function sharersOf(sharers: Sharers, random: SeededRandom): number {
  if ("exactly" in sharers) return sharers.exactly;
  let count = 1;
  while (random.uint32() >= 2 ** 32 / sharers.geometric) count += 1;
  return count;
}

/** Service of a job: no client waits for a single answer. */
export const jobService: Service = { ...chatService, objective: "throughput", tenant: "job" };

/**
 * Makes a workload of a job's prompts in the order `places`: all at once, or as batch admission gives them.
 */
export function jobWorkload(
  prompts: readonly JobPrompt[],
  places: ArrayLike<number>,
  feed: BatchAdmission | null,
  service = jobService,
): Workload {
  const placeOf = new Map<Arrival, number>();
  const arrivalOf = (place: number, atMs: number): Arrival => {
    const { parts, outputTokens } = prompts[places[place]!]!;
    const arrival = {
      atMs,
      promptTokens: promptOf(parts),
      outputTokens,
      tokensMax: outputTokens,
      cacheSalt: "",
      service,
      kind: "job",
    };
    placeOf.set(arrival, place);
    return arrival;
  };
  const given = function* (atMs: number): Generator<Arrival> {
    for (let place = feed?.next() ?? null; place !== null; place = feed!.next()) yield arrivalOf(place, atMs);
  };
  const atOnce = function* (): Generator<Arrival> {
    for (let place = 0; place < places.length; place++) yield arrivalOf(place, 0);
  };
  return workloadOf("job", feed === null ? atOnce() : given(0), (arrival, { finishedMs, tokens }) => {
    if (feed === null) return [];
    feed.ended(placeOf.get(arrival)!, tokens.length);
    placeOf.delete(arrival);
    return [...given(finishedMs)];
  });
}
