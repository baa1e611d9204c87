/**
 * Questions about videos: Preble's VideoQA (arXiv:2407.00023, A.4 and §4.1). A video is a long prefix, a
 * question a short suffix, an answer a few tokens; no other prefix is shared.
 */

import { SeededRandom } from "../../base/random.ts";
import { chatService } from "../../scheduler/core.ts";
import type { Workload } from "../workload.ts";
import { drawNormal, exponentialGapMs, nameOf, promptOf, shuffled, workloadOf } from "./parts.ts";

/** Video: its length, and the lengths of the questions about it. */
export interface Video {
  readonly tokens: number;
  readonly questionTokens: readonly number[];
}

const FRAMES_PER_IMAGE = 30;
const TOKENS_PER_IMAGE = 256;
/** Longest video: longer ones are cut, as in Preble. */
export const VIDEO_TOKENS_MAX = 8192;
/**
 * Tokens of the random number that Preble puts before every question, so that equal questions share no
 * prefix.
 */
const QUESTION_HEAD_TOKENS = 12;

/**
 * Parses the table of NExT-QA: one line per question, with its video, the video's frames, and five answers to
 * choose from. A question's tokens are a fourth of its characters.
 */
export function parseNextQa(csv: string): readonly Video[] {
  const [head = "", ...lines] = csv.split("\n");
  const columns = cellsOf(head);
  const column = (name: string): number => columns.indexOf(name);
  const [video, frames] = [column("video"), column("frame_count")];
  const texts = ["question", "a0", "a1", "a2", "a3", "a4"].map(column);
  const videos = new Map<string, { tokens: number; questionTokens: number[] }>();
  for (const line of lines) {
    const cells = cellsOf(line);
    const frameCount = Number(cells[frames]);
    const id = cells[video];
    if (id === undefined || !(frameCount > 0)) continue;
    const tokens = Math.floor((frameCount / FRAMES_PER_IMAGE) * TOKENS_PER_IMAGE);
    const entry = videos.get(id) ?? { tokens: Math.min(VIDEO_TOKENS_MAX, tokens), questionTokens: [] };
    const characters = texts.reduce((sum, index) => sum + (cells[index]?.length ?? 0), 0);
    entry.questionTokens.push(QUESTION_HEAD_TOKENS + Math.ceil(characters / 4));
    videos.set(id, entry);
  }
  return [...videos.values()];
}

/** Splits a line into cells, which may be in double quotes. */
function cellsOf(line: string): string[] {
  const cells: string[] = [];
  for (const [, quoted, plain] of line.trim().matchAll(/(?:"((?:[^"]|"")*)"|([^,]*))(?:,|$)/g)) {
    cells.push(quoted?.replaceAll('""', '"') ?? plain ?? "");
  }
  return cells;
}

/**
 * Draws videos from the table's statistics: half are cut to the longest, the others have 2,660 tokens and
 * more; eight or nine questions each.
 */
export function videos(count: number, seed: number): readonly Video[] {
  const random = new SeededRandom(seed).child("videos");
  return Array.from({ length: count }, () => ({
    tokens: random.below(2) === 0 ? VIDEO_TOKENS_MAX : 2660 + random.below(VIDEO_TOKENS_MAX - 2660),
    questionTokens: Array.from({ length: 6 + random.below(6) }, () =>
      drawNormal(random, { mean: 44, deviation: 10, least: 24, most: 80 }),
    ),
  }));
}

/** Tokens of an answer: a letter and a few words around it. */
const ANSWER_TOKENS = 10;

/**
 * Makes a workload of `calls` calls by a Poisson process about `videosMax` of the videos, drawn in proportion
 * to their length, as Preble does.
 */
export function videoWorkload(
  all: readonly Video[],
  options: {
    readonly seed: number;
    readonly callsPerSecond: number;
    readonly calls: number;
    readonly videosMax: number;
  },
): Workload {
  const random = new SeededRandom(options.seed);
  const chosen = shuffled(all, random.child("videos")).slice(0, options.videosMax);
  const ends: number[] = [];
  let total = 0;
  for (const { tokens } of chosen) {
    total += tokens;
    ends.push(total);
  }
  const [gaps, draws] = [random.child("arrivals"), random.child("questions")];
  let atMs = 0;
  const arrivals = Array.from({ length: options.calls }, (_, index) => {
    atMs += exponentialGapMs(gaps, 1000 / options.callsPerSecond);
    const point = draws.below(total);
    const video = ends.findIndex((end) => point < end);
    const { tokens, questionTokens } = chosen[video]!;
    return {
      atMs,
      promptTokens: promptOf([
        { name: nameOf(options.seed, 1, video), tokens },
        { name: nameOf(options.seed, 2, index), tokens: questionTokens[draws.below(questionTokens.length)]! },
      ]),
      outputTokens: ANSWER_TOKENS,
      tokensMax: ANSWER_TOKENS,
      cacheSalt: "",
      service: chatService,
      kind: "video",
    };
  });
  return workloadOf("videos", arrivals);
}
