import type { Objective } from "../core.ts";
import { type ObjectiveRules, objectiveOrder, objectives } from "../objective.ts";
import type { LanesPolicy } from "../policy.ts";
import type { IndexNode } from "./index-node.ts";

const OBJECTIVES = objectiveOrder.length;
/** Number of online objectives, which come before offline work. */
const ONLINE_OBJECTIVES = objectiveOrder.filter(({ isOffline }) => !isOffline).length;
/**
 * Weight of the remaining tokens of answers against their number. With the remaining tokens alone an engine
 * with new answers looks free, and crowds gather there. With the number alone an engine whose answers are
 * nearly done looks full.
 */
const REMAINING_WEIGHT = 1 / 3;
/** With more tenants than this on an engine each is a small part, and none is left out of the sum. */
const TENANTS_MAX = 32;

/** Remaining work of a placed sequence, until it ends. */
export interface Work {
  readonly engine: number;
  objective: Objective;
  readonly tenant: string;
  /** True if it has a TBT target. */
  hasTarget: boolean;
  /** Prefill cost of the uncached part, in whole microseconds; 0 from the first token on. */
  promptUs: number;
  /** Number of pages that it will take, until its engine has reported them. */
  pages: number;
  /** Number of tokens of prompt and output. */
  context: number;
  drawn: number;
  /** True after its first token from its engine. */
  isDecoding: boolean;
  /** Expected output tokens at its end, ≥ drawn. */
  expected: number;
  readonly tokensMax: number;
  /** Hash of the prompt's first page. */
  readonly prefix: number | undefined;
  /** The last node of its path in the prefix index; null: it has none. */
  readonly end: IndexNode | null;
}

/** Work of a new sequence, whose prompt takes `workUs`. */
interface Arriving extends Pick<Work, "objective" | "tenant"> {
  readonly workUs: number;
  readonly turnUs: number;
}

/**
 * Live work of every engine: sequences that were placed there and have not ended. It follows events (placed,
 * first token, each token, ended) instead of estimating from windows. Sums are of integers, so that they are
 * exactly 0 when no work is left.
 */
export class Outstanding {
  /**
   * Share of another objective's work that comes before a new sequence, by the new one's objective and the
   * other.
   */
  readonly #shares: Float64Array;
  /** Prefill microseconds by engine and objective. */
  readonly #promptUs: Float64Array;
  /** The same by tenant; tenants without work are left out. */
  readonly #tenants: readonly Map<string, number>[];
  /** The tenant of all these prompts; null: none or several. Saves looking it up for every engine. */
  readonly #onlyTenant: (string | null)[];
  readonly #decodeTokens: Float64Array;
  readonly #sequences: Float64Array;
  readonly #decoding: Float64Array;
  readonly #contexts: Float64Array;
  /** Sequences with a target, by engine. */
  readonly #targets: Int32Array;
  readonly #pages: Int32Array;
  readonly #changes: Float64Array;

  /** `lanes`: by what shares engines compute prompts. */
  constructor(engines: number, lanes: LanesPolicy["lanes"]) {
    this.#shares = Float64Array.from(
      objectiveOrder.flatMap((own) => objectiveOrder.map((other) => shareBefore(other, own, lanes))),
    );
    this.#tenants = Array.from({ length: engines * OBJECTIVES }, () => new Map());
    this.#onlyTenant = this.#tenants.map(() => null);
    this.#promptUs = new Float64Array(engines * OBJECTIVES);
    this.#decodeTokens = new Float64Array(engines * OBJECTIVES);
    this.#sequences = new Float64Array(engines * OBJECTIVES);
    this.#decoding = new Float64Array(engines * OBJECTIVES);
    this.#contexts = new Float64Array(engines * OBJECTIVES);
    this.#targets = new Int32Array(engines);
    this.#pages = new Int32Array(engines);
    this.#changes = new Float64Array(engines);
  }

  /**
   * Sequences that have not ended, and with which one of `objective` shares the engine: online ones do not count
   * offline work, which makes way.
   */
  sequences(engine: number, objective: Objective = "throughput"): number {
    return sharing(this.#sequences, engine, objective);
  }

  /** Number of these that have a token. */
  decoding(engine: number, objective: Objective = "throughput"): number {
    return sharing(this.#decoding, engine, objective);
  }

  /** Number of all these with a TBT target. */
  targets(engine: number): number {
    return this.#targets[engine]!;
  }

  /** Mean context of these sequences, in tokens; 0 without any. */
  meanContext(engine: number, objective: Objective = "throughput"): number {
    return sharing(this.#contexts, engine, objective) / Math.max(1, this.sequences(engine, objective));
  }

  /** Number of tokens of offline sequences that make way for one of `objective`. */
  offlineContext(engine: number, objective: Objective): number {
    return sharing(this.#contexts, engine, "throughput") - sharing(this.#contexts, engine, objective);
  }

  /** Version of an engine's work: results hold as long as it is the same. */
  changes(engine: number): number {
    return this.#changes[engine]!;
  }

  /** Number of pages that in-flight sequences will take. */
  pages(engine: number): number {
    return this.#pages[engine]!;
  }

  /**
   * Milliseconds of prompts that come before a new sequence. Of earlier objectives it counts all prompts. Of
   * later ones it counts their share by credits, and offline work not at all. Of its own objective it counts
   * its tenant's prompts. As tenants take turns, each other tenant counts up to that amount plus `turnUs`. If
   * the objective is not first come, first served, shorter prompts than `workUs` overtake the new one, which
   * overtakes the others (`mutualDelayUs`).
   */
  promptsMs(engine: number, { objective, tenant, workUs, turnUs }: Arriving): number {
    let sumUs = 0;
    const own = objectives[objective];
    for (const other of objectiveOrder) {
      const at = indexOf(engine, other);
      if (other === own) {
        const turnsUs = this.#turnsUs(at, tenant, turnUs);
        const waiting = this.#sequences[at]! - this.#decoding[at]!;
        sumUs += own.isFirstCome ? turnsUs : mutualDelayUs(turnsUs, waiting * workUs);
      } else sumUs += this.#shares[indexOf(own.precedence, other)]! * this.#promptUs[at]!;
    }
    return sumUs / 1000;
  }

  /** Milliseconds of all prompts. */
  allPromptsMs(engine: number): number {
    let sumUs = 0;
    for (const objective of objectiveOrder) sumUs += this.#promptUs[indexOf(engine, objective)]!;
    return sumUs / 1000;
  }

  /**
   * Tokens that others draw while a new answer of `expected` tokens is generated. Later objectives count by
   * their credits, and offline work not at all. The result lies between two bounds (`REMAINING_WEIGHT`). The lower
   * one is the remaining tokens, as if no sequence followed one that ends. The upper one is `expected` tokens
   * for each, as if one followed at once.
   */
  tokensBeside(engine: number, objective: Objective, expected: number): number {
    let tokens = 0;
    const own = objectives[objective];
    for (const other of objectiveOrder) {
      const at = indexOf(engine, other);
      const drawn =
        REMAINING_WEIGHT * this.#decodeTokens[at]! + (1 - REMAINING_WEIGHT) * this.#sequences[at]! * expected;
      tokens += this.#shares[indexOf(own.precedence, other)]! * drawn;
    }
    return tokens;
  }

  /** Milliseconds of all answers. `decodeMs` is of one token. */
  allDecodesMs(engine: number, decodeMs: number): number {
    let tokens = 0;
    for (const objective of objectiveOrder) tokens += this.#decodeTokens[indexOf(engine, objective)]!;
    return tokens * decodeMs;
  }

  /** Milliseconds of all work. */
  workMs(engine: number, decodeMs: number): number {
    return this.allPromptsMs(engine) + this.allDecodesMs(engine, decodeMs);
  }

  /** Milliseconds of offline work. */
  offlineMs(engine: number, decodeMs: number): number {
    let sumMs = 0;
    for (const objective of objectiveOrder) {
      if (objective.isOffline) sumMs += this.#workMs(engine, objective, decodeMs);
    }
    return sumMs;
  }

  placed(work: Work): void {
    this.#count(work, 1);
  }

  /** Records an admission: the engine counts its pages now, and its prompt takes `promptUs`. */
  started(work: Work, promptUs: number): void {
    this.#changes[work.engine]! += 1;
    this.#pages[work.engine]! -= work.pages;
    work.pages = 0;
    this.#addPrompt(work, promptUs - work.promptUs);
    work.promptUs = promptUs;
  }

  /**
   * Records a token. An answer that outgrows its expected length is expected to become twice as long.
   */
  drew(work: Work): void {
    const at = indexOf(work.engine, objectives[work.objective]);
    this.#changes[work.engine]! += 1;
    this.#addPrompt(work, -work.promptUs);
    work.promptUs = 0;
    if (!work.isDecoding) this.#decoding[at]! += 1;
    work.isDecoding = true;
    work.drawn += 1;
    work.context += 1;
    this.#contexts[at]! += 1;
    this.#decodeTokens[at]! -= 1;
    if (work.drawn < work.expected) return;
    const expected = Math.max(work.drawn, Math.min(work.tokensMax, 2 * work.expected));
    this.#decodeTokens[at]! += expected - work.expected;
    work.expected = expected;
  }

  /** Changes the objective of a sequence. */
  raised(work: Work, objective: Objective, hasTarget: boolean): void {
    this.#count(work, -1);
    work.objective = objective;
    work.hasTarget = hasTarget;
    this.#count(work, 1);
  }

  ended(work: Work): void {
    this.#count(work, -1);
  }

  #workMs(engine: number, objective: ObjectiveRules, decodeMs: number): number {
    const at = indexOf(engine, objective);
    return this.#promptUs[at]! / 1000 + this.#decodeTokens[at]! * decodeMs;
  }

  #turnsUs(at: number, tenant: string, turnUs: number): number {
    if (this.#onlyTenant[at] === tenant) return this.#promptUs[at]!;
    const tenants = this.#tenants[at]!;
    if (tenants.size === 0 || tenants.size > TENANTS_MAX) return this.#promptUs[at]!;
    const ownUs = tenants.get(tenant) ?? 0;
    let sumUs = ownUs;
    for (const [other, us] of tenants) if (other !== tenant) sumUs += Math.min(us, ownUs + turnUs);
    return sumUs;
  }

  #addPrompt(work: Work, us: number): void {
    if (us === 0) return;
    const at = indexOf(work.engine, objectives[work.objective]);
    this.#promptUs[at]! += us;
    const tenants = this.#tenants[at]!;
    const left = (tenants.get(work.tenant) ?? 0) + us;
    const { size } = tenants;
    if (left === 0) tenants.delete(work.tenant);
    else tenants.set(work.tenant, left);
    if (tenants.size === size) return;
    const [first] = tenants.keys();
    this.#onlyTenant[at] = tenants.size === 1 ? first! : null;
  }

  #count(work: Work, sign: 1 | -1): void {
    const at = indexOf(work.engine, objectives[work.objective]);
    this.#changes[work.engine]! += 1;
    this.#addPrompt(work, sign * work.promptUs);
    if (work.isDecoding) this.#decoding[at]! += sign;
    this.#decodeTokens[at]! += sign * (work.expected - work.drawn);
    this.#sequences[at]! += sign;
    this.#contexts[at]! += sign * work.context;
    this.#targets[work.engine]! += sign * Number(work.hasTarget);
    this.#pages[work.engine]! += sign * work.pages;
  }
}

/**
 * Estimates the mutual delay of a new sequence of work w and the n waiting ones, if the shorter of any two goes
 * first. Of each pair the shorter work delays the other. So the total exceeds neither the sum of the others' work
 * nor n w; their harmonic mean approximates it. It equals the sum if all have work w, and is twice the lesser if
 * the two are far apart. With the sum alone, which ignores w, cheap sequences would gather on one engine and
 * expensive ones on the others.
 */
function mutualDelayUs(othersUs: number, passedUs: number): number {
  return othersUs === 0 ? 0 : (2 * othersUs * passedUs) / (othersUs + passedUs);
}

/**
 * Sums over the objectives with which a sequence of `objective` shares one engine: all, or only the online ones if it
 * is online, since offline work makes way.
 */
function sharing(counts: Float64Array, engine: number, objective: Objective): number {
  let sum = 0;
  const first = engine * OBJECTIVES;
  const end = first + (objectives[objective].isOffline ? OBJECTIVES : ONLINE_OBJECTIVES);
  for (let at = first; at < end; at++) sum += counts[at]!;
  return sum;
}

/** Share of `other`'s work that comes before a new sequence of the objective `own`. */
function shareBefore(other: ObjectiveRules, own: ObjectiveRules, lanes: LanesPolicy["lanes"]): number {
  if (other.precedence <= own.precedence) return 1;
  if (other.isOffline) return 0;
  const { credits } = lanes[other.name];
  return credits / (credits + lanes[own.name].credits);
}

/** Index of an objective in the given row: an engine's, or another objective's. */
function indexOf(row: number, { precedence }: ObjectiveRules): number {
  return row * OBJECTIVES + precedence;
}
