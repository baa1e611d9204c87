/**
 * Offline jobs: all prompts are there before the first one runs, and many begin alike. Shapes are those of BatchLLM's evaluation
 * (arXiv:2412.03594 §6).
 */

import { SeededRandom } from "../../base/random.ts";
import type { BatchAdmission } from "../../scheduler/batch/batch-admission.ts";
import { chatService, type Service } from "../../scheduler/core.ts";
import type { Arrival, Workload } from "../workload.ts";
import { drawNormal, nameOf, type PromptPiece, promptOf, shuffled, workloadOf } from "./parts.ts";

/** One prompt of a job, and how long its answer will be. */
export interface JobPrompt {
  readonly parts: readonly PromptPiece[];
  readonly outputTokens: number;
}

/** How many prompts share a prefix: always as many, or a geometric number with a mean of so many. */
export type Sharers = { readonly exactly: number } | { readonly geometric: number };

/** A job's prompts. Lengths are means in tokens; prefixes and what follows vary by a quarter, unless `varies` is false. */
export interface JobShape {
  readonly prompts: number;
  readonly sharers: Sharers;
  /** What all prompts begin with. */
  readonly instructionTokens: number;
  /** Shared, without the instruction. */
  readonly prefixTokens: number;
  readonly ownTokens: number;
  readonly outputTokens: number;
  readonly varies: boolean;
}

/** The prompts in an order that the seed decides: nobody sorts them beforehand. */
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

/** Nobody waits for any one answer. */
export const jobService: Service = { ...chatService, objective: "throughput", tenant: "job" };

/** A job's prompts in the order `places`: all at once, or as many at a time as a feed gives. */
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
