import type { TokenId } from "../../base/token.ts";
import type { KvCacheManager } from "../cache/kv-cache-manager.ts";
import type { CostModel } from "../cost/cost-model.ts";
import type { DeviceSpec } from "../device.ts";
import type { DraftTimes } from "../draft/draft-times.ts";
import { headSource } from "../draft/head.ts";
import { EngineDrafts, type OfferedDraft, type SequenceDrafts } from "../draft/sequence-drafts.ts";
import { openSuffixSource } from "../draft/suffix.ts";
import type { DraftPolicy } from "../policy.ts";
import { lengthLimit } from "./refusal.ts";
import type { Sequence } from "./sequence.ts";
import { NOTICED } from "./step/draft-rule.ts";
import type { PlannedChunk, StepBuilder } from "./step/step-builder.ts";

/** Longest draft. */
const DRAFT_MAX = 16;
/**
 * Most sequences of a step whose drafters are asked, which takes some microseconds each: those that drew the
 * most tokens a step of late, and a few others in turn.
 */
const ASKED_MAX = 16;
const ASKED_IN_TURN = 4;

/** A draft for one of a step's chunks. */
interface ChunkDraft extends OfferedDraft {
  readonly index: number;
  readonly sequence: Sequence;
  readonly goesBack: boolean;
}

/**
 * Adds drafts to the decodes of a step: tokens that are likely to follow, each with a row that tells what is
 * drawn in its place (speculation). The engine keeps the draws up to the first that differs from its draft.
 * Every row is that of a single step after the same tokens, so that the text does not depend on drafts.
 *
 * The budget decides how many are worth their time (step/draft-rule.ts). The device cuts a draft that leaves
 * its grammar (gpu/constrained-device.ts). A recurrent state goes back to the one before a draft that was not all
 * right. Sequences that pool, or ask for log probabilities of their prompt, have none.
 */
export class DraftPlanner {
  readonly #spec: DeviceSpec;
  readonly #kvCache: KvCacheManager;
  readonly #drafts: EngineDrafts | null;
  readonly #costs: CostModel;
  readonly #times: DraftTimes;
  #turn = 0;
  /** Sequences whose drafter has failed. */
  readonly #failed = new WeakSet<Sequence>();
  /** Share of a step that a drafted token takes, with its row; null: rows could not have paid in the last step. */
  #share: number | null = null;

  /** `drafts`: those of the engine; null: it has none. */
  constructor(
    spec: DeviceSpec,
    drafts: EngineDrafts | null,
    kvCache: KvCacheManager,
    costs: CostModel,
    times: DraftTimes,
  ) {
    this.#spec = spec;
    this.#kvCache = kvCache;
    this.#drafts = drafts;
    this.#costs = costs;
    this.#times = times;
  }

  /**
   * Numbers of tokens that the device is to draft behind the last draws of a step's chunks, within `leftMs`. None
   * where drafts could not have paid in this step. Beside streams without drafts they lengthen it as little as rows
   * may (step/draft-rule.ts).
   */
  wantedOf(chunks: readonly PlannedChunk[], leftMs: number): readonly number[] {
    const { draftsMax = 0 } = this.#spec;
    const share = this.#share;
    if (share === null || draftsMax === 0) return chunks.map(() => 0);
    const passMs = this.#passMs();
    const inTime = draftsMax * passMs <= leftMs ? draftsMax : Math.floor(Math.max(0, leftMs) / passMs);
    const wanted = chunks.map(({ sequence, count }) => {
      // The next step draws a token anyway.
      const most = Math.min(inTime, this.#mostOf(sequence, sequence.length + 1));
      if (most <= 0 || count < sequence.behind || !drawsOnce(sequence)) return 0;
      return this.#asking(sequence, (drafts) => drafts.wanted(most, share), 0);
    });
    const besides = chunks.filter(
      ({ sequence }, i) => wanted[i] === 0 && sequence.isDecoding && sequence.objective.isInteractive,
    );
    const least = (slowest: number, { sequence }: PlannedChunk): number =>
      Math.min(slowest, sequence.pacing.advance);
    const longest = (1 + NOTICED) * besides.reduce(least, Number.POSITIVE_INFINITY) - 1;
    return wanted.map((count) => {
      return count * this.#times.share <= longest ? count : Math.floor(longest / this.#times.share);
    });
  }

  /** Adds drafts to a step whose other chunks are complete. */
  add(step: StepBuilder): void {
    const { chunks, budget } = step;
    this.#share = null;
    if (this.#drafts === null || chunks.length === 0) return;
    // Rows of prompts share the device's room for rows.
    if (chunks.some(({ sequence }) => !drawsOnce(sequence))) return;
    const { stepChunksMax, stepDrawsMax = stepChunksMax, stepTokensMax } = this.#spec;
    const tokens = chunks.reduce((sum, { count }) => sum + count, 0);
    const rowsMax = Math.min(stepDrawsMax - chunks.length, stepTokensMax - tokens);
    if (rowsMax <= 0 || !budget.wantsDrafts(rowsMax)) return;
    this.#share = this.#times.share + this.#rowShare(chunks);
    const goesBack = this.#spec.states !== undefined;
    const offers = this.#asked(chunks).flatMap((index): ChunkDraft | [] => {
      const { sequence, count } = chunks[index]!;
      const offer = count === sequence.behind ? this.#offer(sequence) : null;
      return offer === null ? [] : { ...offer, index, sequence, goesBack };
    });
    if (offers.length === 0) return;
    const counts = budget.takeDrafts(offers, rowsMax);
    for (const [i, { index, sequence, tokens, isPredicted }] of offers.entries()) {
      const { behind } = sequence;
      const room = counts[i]! > 0 ? this.#kvCache.roomFor(sequence, behind + counts[i]!) - behind : 0;
      if (room <= 0) continue;
      if (this.#kvCache.readyDraft(sequence)) step.draft(index, tokens.slice(0, room), isPredicted);
      else this.#kvCache.dropDrafts(sequence);
    }
  }

  /** Time of a drafted token, as measured, or expected of a decode's. */
  #passMs(): number {
    const { passMs, share } = this.#times;
    return passMs > 0 ? passMs : share * this.#costs.stepMs({ prompts: [], decodes: 1, decodeContext: 0 });
  }

  /** Time of one more row for each decode of a step, as a share of its own. */
  #rowShare(chunks: readonly PlannedChunk[]): number {
    const decodes = chunks.filter(({ sequence }) => sequence.isDecoding);
    const decodeContext = decodes.reduce((sum, { sequence }) => sum + sequence.computed, 0);
    const alone = { prompts: [], decodes: Math.max(1, decodes.length), decodeContext };
    const checked = { ...alone, decodes: 2 * alone.decodes, draftPairs: decodeContext };
    return this.#costs.stepMs(checked) / this.#costs.stepMs(alone) - 1;
  }

  /** Indices of the chunks whose drafters are asked. */
  #asked(chunks: readonly PlannedChunk[]): readonly number[] {
    const all = chunks.map((_, index) => index);
    if (all.length <= ASKED_MAX) return all;
    const advanceOf = (index: number): number => chunks[index]!.sequence.pacing.advance;
    all.sort((a, b) => advanceOf(b) - advanceOf(a));
    const rest = all.splice(ASKED_MAX - ASKED_IN_TURN);
    this.#turn += ASKED_IN_TURN;
    for (let i = 0; i < ASKED_IN_TURN; i++) all.push(rest[(this.#turn + i) % rest.length]!);
    return all;
  }

  #offer(sequence: Sequence): OfferedDraft | null {
    const { spec, length, isDecoding, tokens } = sequence;
    const most = isDecoding ? this.#mostOf(sequence, length) : 0;
    if (most <= 0) return null;
    const device = sequence.deviceDraft?.length === length ? sequence.deviceDraft.draft : null;
    const offer = this.#asking(sequence, (drafts) => drafts.offer(tokens, length, most, device), null);
    return offer === null ? null : beforeEnd(offer, spec.stop.stopTokens);
  }

  /** Most tokens of a draft behind the first `length` of a sequence. */
  #mostOf({ spec }: Sequence, length: number): number {
    const left = spec.stop.tokensMax - (length - spec.promptTokens.length);
    // The row after the last known token draws one as well.
    const room = Math.min(left, lengthLimit(this.#spec) - length) - 1;
    return Math.min(spec.draftTokensMax ?? DRAFT_MAX, DRAFT_MAX, room);
  }

  /** Asks a sequence's drafters. One that fails costs its drafts, not the answer. */
  #asking<Result>(sequence: Sequence, ask: (drafts: SequenceDrafts) => Result, otherwise: Result): Result {
    if (this.#failed.has(sequence)) return otherwise;
    try {
      sequence.drafts ??= this.#drafts!.open(sequence.spec);
      return ask(sequence.drafts);
    } catch {
      this.#failed.add(sequence);
      sequence.drafts = null;
      return otherwise;
    }
  }
}

/** The part of a draft before its first end token, after which no draw counts. Null: nothing. */
function beforeEnd(offer: OfferedDraft, endTokens: readonly TokenId[]): OfferedDraft | null {
  const end = offer.tokens.findIndex((token) => endTokens.includes(token));
  if (end < 0) return offer;
  return end === 0
    ? null
    : { ...offer, tokens: offer.tokens.slice(0, end), chances: offer.chances.slice(0, end) };
}

/** Opens the drafts of an engine; null: it has none. */
export function openDrafts({ draftsMax = 0 }: DeviceSpec, policy: DraftPolicy): EngineDrafts | null {
  if (policy.kind === "off") return null;
  if (policy.kind === "baseline") return new EngineDrafts(policy.open());
  const hasHead = policy.kind !== "suffix" && draftsMax > 0;
  if (policy.kind === "head") return hasHead ? new EngineDrafts(headSource) : null;
  return new EngineDrafts(openSuffixSource(), ...(hasHead ? [headSource] : []));
}

/** True if a sequence has one row in a step without drafts, or none. */
function drawsOnce({ pool, spec }: Sequence): boolean {
  return pool === null && spec.promptLogprobs === undefined;
}
