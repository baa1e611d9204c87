/**
 * Questions about documents, in general. The load sets shared prefixes, their popularity, all lengths, and
 * the number and shares of tenants. Every other workload is a corner case of this one; a search draws from
 * all.
 */

import { SeededRandom } from "../../base/random.ts";
import { chatService } from "../../scheduler/core.ts";
import type { Arrival, Workload } from "../workload.ts";
import { exp, ln } from "./elementary.ts";
import { burstyGapMs, exponentialGapMs, nameOf, type PromptPiece, promptOf, workloadOf } from "./parts.ts";

/** Range of token counts, drawn uniformly; least ≤ most. */
export interface TokenRange {
  readonly least: number;
  readonly most: number;
}

/** Load of calls about documents: their prefixes, lengths, times and tenants. */
export interface DocumentLoad {
  /** Tokens that all prompts begin with; 0: none. */
  readonly rootTokens: number;
  readonly documents: number;
  /** Tokens of a document, the same in each of its calls. */
  readonly documentTokens: TokenRange;
  /** Exponent of the popularity: that of the k-th document is k to the power of minus this; 0: all equal. */
  readonly skew: number;
  /** Sections that may follow a document, one per prompt; 0: none. */
  readonly sections: number;
  readonly sectionTokens: TokenRange;
  /** Tokens that are unique to a call, ≥ 1. */
  readonly suffixTokens: TokenRange;
  readonly outputTokens: TokenRange;
  /** Token limit that each client sends; null: exactly the answer's length. */
  readonly tokensMax: number | null;
  readonly calls: number;
  readonly callsPerSecond: number;
  /**
   * Coefficient of variation of the times between calls: 1 is a Poisson process, more has pauses and bursts.
   */
  readonly variation: number;
  /** Number of tenants, with equal shares of the calls, each about all documents. */
  readonly tenants: number;
}

/**
 * Makes a workload. The same load and seed give the same arrivals; only the times scale with
 * `callsPerSecond`.
 */
export function documentWorkload(load: DocumentLoad, seed: number): Workload {
  return workloadOf("documents", documentArrivals(load, seed));
}

/** Returns the arrivals of that workload. */
export function documentArrivals(load: DocumentLoad, seed: number): readonly Arrival[] {
  const random = new SeededRandom(seed);
  const [lengths, gaps, draws] = [random.child("lengths"), random.child("arrivals"), random.child("calls")];
  const documents = Array.from({ length: load.documents }, () => ({
    tokens: draw(load.documentTokens, lengths),
    sections: Array.from({ length: load.sections }, () => draw(load.sectionTokens, lengths)),
  }));
  const popularity = cumulated(load.documents, load.skew);
  const meanMs = 1000 / load.callsPerSecond;
  let atMs = 0;
  return Array.from({ length: load.calls }, (_, index): Arrival => {
    atMs += load.variation > 1 ? burstyGapMs(gaps, meanMs, load.variation) : exponentialGapMs(gaps, meanMs);
    const point = draws.unit() * popularity.at(-1)!;
    const document = popularity.findIndex((end) => point < end);
    const { tokens, sections } = documents[document]!;
    const section = sections.length === 0 ? null : draws.below(sections.length);
    const parts: PromptPiece[] = [
      { name: nameOf(seed, 0), tokens: load.rootTokens },
      { name: nameOf(seed, 1, document), tokens },
      ...(section === null ? [] : [{ name: nameOf(seed, 2, document, section), tokens: sections[section]! }]),
      { name: nameOf(seed, 3, index), tokens: draw(load.suffixTokens, draws) },
    ];
    const outputTokens = draw(load.outputTokens, draws);
    return {
      atMs,
      promptTokens: promptOf(parts),
      outputTokens,
      tokensMax: Math.max(outputTokens, load.tokensMax ?? 0),
      cacheSalt: "",
      service: load.tenants === 1 ? chatService : { ...chatService, tenant: `${draws.below(load.tenants)}` },
      kind: "document",
    };
  });
}

function draw({ least, most }: TokenRange, random: SeededRandom): number {
  return least + random.below(most - least + 1);
}

/** Cumulative sums of k to the power of −skew. */
function cumulated(count: number, skew: number): number[] {
  let sum = 0;
  return Array.from({ length: count }, (_, index) => {
    sum += exp(-skew * ln(index + 1));
    return sum;
  });
}
