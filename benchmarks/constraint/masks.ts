/** Mask times at every place of real values under real schemas. */

import { fullGC, heapStats } from "bun:jsc";
import { PARSERS_MAX, WORK_STEPS } from "../../gpu/constrained-device.ts";
import { ConstraintError } from "../../grammar/error.ts";
import { allAtOnce, Job } from "../../grammar/mask/job.ts";
import { Masks } from "../../grammar/mask/masks.ts";
import { Matcher, parserOf } from "../../grammar/mask/matcher.ts";
import { childOf, type Mask, tokenBytes, type Vocabulary } from "../../grammar/mask/vocabulary.ts";
import { warmUp } from "../../grammar/mask/warm-up.ts";
import type { Parser } from "../../grammar/parser/parser.ts";
import { ConstraintCompiler } from "../../server/grammar/compiler.ts";
import { written } from "../../tests/support/any-order.ts";
import { type Case, quantiles } from "./cases.ts";
import { threadMs } from "./thread-clock.ts";

/** Bytes of a value to walk at most; the rest is left out. */
const BYTES_MAX = 4000;
/** Time of a mask in microseconds: thread time and wall time. */
interface TimedMask {
  readonly threadUs: number;
  readonly wallUs: number;
  /** Longest piece of its work, in thread time. */
  readonly pieceThreadUs: number;
  readonly pieceWallUs: number;
  /** Steps of work, the same each time. */
  readonly steps: number;
}

const clocks = ["threadUs", "wallUs", "pieceThreadUs", "pieceWallUs"] as const;
type Clock = (typeof clocks)[number];

/** Mask with its position, for the list of slow ones. */
interface SlowMask extends TimedMask {
  readonly name: string;
  /** Text before it. */
  readonly text: string;
}

/**
 * Reads each valid value token by token, longest first, and times the mask at each position. Lists the
 * `slowest` masks.
 */
export async function measureMasks(
  cases: Iterable<Case>,
  vocabulary: Vocabulary,
  slowest: number,
): Promise<void> {
  const startedMs = threadMs();
  const masks = new Masks(vocabulary);
  const warmAtMs = threadMs();
  allAtOnce(warmUp(masks));
  const warmedAtMs = threadMs();
  Bun.gc(true); // garbage from making the vocabulary, which the server leaves on another thread
  const [readMs, warmMs] = [warmAtMs - startedMs, warmedAtMs - warmAtMs];
  console.log(
    `vocabulary of ${vocabulary.size}: read in ${readMs.toFixed(0)} ms, then warmed up in ${warmMs.toFixed(0)}`,
  );
  const compiler = new ConstraintCompiler(new URL("../../server/grammar/worker.ts", import.meta.url).href);
  /** Columns, so that garbage collections mark few objects. */
  const times = { threadUs: [], wallUs: [], pieceThreadUs: [], pieceWallUs: [] } as Record<Clock, number[]>;
  const givenUp: string[] = [];
  let slow: SlowMask[] = [];
  let schemas = 0;
  /** Latest parsers, as many as an engine keeps. */
  const parsers: Parser[] = [];
  for (const { name, schema, tests } of cases) {
    const compiled = await compiler
      .compile({ kind: "schema", schema, layout: "compact" })
      .catch((error: unknown) => {
        if (error instanceof ConstraintError) return null;
        throw error;
      });
    if (compiled === null) continue;
    schemas++;
    const parser = parserOf(compiled.constraint.grammar, masks);
    if (parsers.push(parser) > PARSERS_MAX) parsers.shift();
    for (const { data, valid } of tests) {
      if (!valid) continue;
      const matcher = new Matcher(parser, masks);
      const text = Buffer.from(written(data)).subarray(0, BYTES_MAX);
      for (let at = 0; at < text.length; ) {
        const token = longestToken(vocabulary, text, at);
        const timed = timedMask(matcher);
        if (timed === null) {
          givenUp.push(`${name} after ${JSON.stringify(before(text, at))}`);
          break;
        }
        const { mask, ...time } = timed;
        for (const clock of clocks) times[clock].push(time[clock]);
        if (slow.length < slowest || time.threadUs > slow.at(-1)!.threadUs)
          slow = slowestOf([...slow, { ...time, name, text: before(text, at) }], slowest);
        const isAllowed = ((mask[token >>> 5]! >>> (token & 31)) & 1) === 1;
        if (!isAllowed || !matcher.accept(token)) break;
        at += tokenBytes(vocabulary, token).length;
      }
    }
  }
  compiler.close();
  Bun.gc(true);
  for (const place of givenUp) console.log(`too much work: ${place}`);
  console.log(`masks of ${schemas} schemas, ${times.wallUs.length} of them, µs`);
  console.log(`  by the thread's clock ${quantiles(times.threadUs)}`);
  console.log(`  the longest piece of each ${quantiles(times.pieceThreadUs)}`);
  console.log(`  by the wall's clock ${quantiles(times.wallUs)}`);
  console.log(`  the longest piece of each ${quantiles(times.pieceWallUs)}`);
  const kept = heapStats().objectCount;
  const [beganThreadMs, beganMs] = [threadMs(), performance.now()];
  fullGC();
  const [threadTook, took] = [threadMs() - beganThreadMs, performance.now() - beganMs];
  console.log(
    `  ${parsers.length} grammars kept: ${kept} objects, all of which a collection at once marks in ${took.toFixed(1)} ms, ${threadTook.toFixed(1)} of the thread's`,
  );
  for (const one of slow) {
    const [threadUs, wallUs, pieceUs] = [one.threadUs, one.wallUs, one.pieceThreadUs].map(Math.round);
    console.log(
      `  ${threadUs} (wall ${wallUs}, piece ${pieceUs}, steps ${one.steps}) ${one.name} after ${JSON.stringify(one.text)}`,
    );
  }
}

/**
 * Returns the longest token that continues the text; every byte is a token. Looks it up in the trie, so that
 * this thread keeps no more objects than an engine's: each garbage collection marks all of them.
 */
function longestToken({ trie }: Vocabulary, text: Uint8Array, from: number): number {
  let [longest, node] = [-1, 0];
  for (let at = from; at < text.length; at++) {
    node = childOf(trie, node, text[at]!);
    if (node < 0) break;
    const own = trie.firstTokens[node]!;
    if (own < trie.firstTokens[node + 1]!) longest = trie.tokens[own]!;
  }
  return longest;
}

function before(text: Buffer, at: number): string {
  return text.toString("latin1", Math.max(0, at - 40), at);
}

function slowestOf(masks: readonly SlowMask[], most: number): SlowMask[] {
  return masks.toSorted((a, b) => b.threadUs - a.threadUs).slice(0, most);
}

/** Computes a mask in pieces, as the constrained device does; null: too much work. */
function timedMask(matcher: Matcher): (TimedMask & { readonly mask: Mask }) | null {
  let [threadUs, wallUs, pieceThreadUs, pieceWallUs] = [0, 0, 0, 0];
  const piece = <Value>(work: () => Value): Value => {
    const [beganThreadMs, beganMs] = [threadMs(), performance.now()];
    const value = work();
    const wall = 1000 * (performance.now() - beganMs);
    const thread = 1000 * (threadMs() - beganThreadMs);
    threadUs += thread;
    wallUs += wall;
    pieceThreadUs = Math.max(pieceThreadUs, thread);
    pieceWallUs = Math.max(pieceWallUs, wall);
    return value;
  };
  let mask: Mask | null = null;
  let steps = 0;
  try {
    while (mask === null) {
      mask = piece(() => {
        const found = matcher.findMask();
        if (!(found instanceof Job)) return found;
        const before = found.spent;
        found.run(WORK_STEPS);
        steps += found.spent - before;
        return null;
      });
    }
  } catch (error) {
    if (error instanceof ConstraintError) return null;
    throw error;
  }
  return { mask, threadUs, wallUs, pieceThreadUs, pieceWallUs, steps };
}
