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

/** Longest draft in tokens. */
const DRAFT_MAX = 16;
/**
 * Sequences per step whose drafters are asked at most, to bound planning time. Those with the most recent tokens
 * per step come first (`Pacing.advance`); the last `ASKED_IN_TURN` are others, round-robin.
 */
const ASKED_MAX = 16;
const ASKED_IN_TURN = 4;

/** A draft for one of a step's chunks. */
interface ChunkDraft extends OfferedDraft {
  readonly index: number;
  readonly sequence: Sequence;
  readonly rollsBack: boolean;
}

/**
 * Adds drafts to the decodes of a step (speculative decoding): likely next tokens, each verified by a row that draws
 * at its position. The engine keeps the draws up to and including the first that differs from its draft. Unlike
 * rejection sampling (arXiv:2211.17192 §2.3) a draft token is accepted only if the row draws the same token. A row
 * draws what a step of a single token would, so the output does not depend on drafts.
 *
 * The budget decides how many drafts pay (step/draft-rule.ts). The device cuts a draft that leaves its grammar
 * (gpu/constrained-device.ts). After a rejection the recurrent state from before the draft is restored. Sequences
 * that pool, or request prompt logprobs, get no drafts.
 */
export class DraftPlanner {
  readonly #spec: DeviceSpec;
  readonly #kvCache: KvCacheManager;
  readonly #drafts: EngineDrafts | null;
  readonly #costs: CostModel;
  readonly #times: DraftTimes;
  /** Round-robin offset of the sequences asked in turn. */
  #turn = 0;
  /** Sequences whose drafter has thrown. */
  readonly #failed = new WeakSet<Sequence>();
  /** Time to draft and verify one more token, as a share of the step; null: verifying could not have paid in it. */
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
   * Returns per chunk how many tokens the device shall draft behind its last draw, within `leftMs`. All 0 if drafts
   * could not have paid in this step. Drafting lengthens the step of streams without drafts by no more than
   * verifying may (`NOTICED`).
   */
  deviceDrafts(chunks: readonly PlannedChunk[], leftMs: number): readonly number[] {
    const { draftsMax = 0 } = this.#spec;
    const share = this.#share;
    if (share === null || draftsMax === 0) return chunks.map(() => 0);
    const passMs = this.#passMs();
    const inTime = draftsMax * passMs <= leftMs ? draftsMax : Math.floor(Math.max(0, leftMs) / passMs);
    const wanted = chunks.map(({ sequence, count }) => {
      // The draft begins one token later: behind the draw of this step.
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
    // Prompt logprobs and pooling use the device's rows, of which too few may be left.
    if (chunks.some(({ sequence }) => !drawsOnce(sequence))) return;
    const { stepChunksMax, stepDrawsMax = stepChunksMax, stepTokensMax } = this.#spec;
    const tokens = chunks.reduce((sum, { count }) => sum + count, 0);
    const rowsMax = Math.min(stepDrawsMax - chunks.length, stepTokensMax - tokens);
    if (rowsMax <= 0 || !budget.wantsDrafts(rowsMax)) return;
    this.#share = this.#times.share + this.#rowShare(chunks);
    const rollsBack = this.#spec.states !== undefined;
    const offers = this.#asked(chunks).flatMap((index): ChunkDraft | [] => {
      const { sequence, count } = chunks[index]!;
      const offer = count === sequence.behind ? this.#offer(sequence) : null;
      return offer === null ? [] : { ...offer, index, sequence, rollsBack };
    });
    if (offers.length === 0) return;
    const counts = budget.takeDrafts(offers, rowsMax);
    for (const [i, { index, sequence, tokens, isPredicted }] of offers.entries()) {
      const { behind } = sequence;
      const room = counts[i]! > 0 ? this.#kvCache.roomFor(sequence, behind + counts[i]!) - behind : 0;
      if (room <= 0) continue;
      if (this.#kvCache.prepareDraft(sequence)) step.draft(index, tokens.slice(0, room), isPredicted);
      else this.#kvCache.dropDrafts(sequence);
    }
  }

  /** Milliseconds of a drafting pass: measured, or a share of a decode step. */
  #passMs(): number {
    const { passMs, share } = this.#times;
    return passMs > 0 ? passMs : share * this.#costs.stepMs({ prompts: [], decodes: 1, decodeContext: 0 });
  }

  /** Time to verify one draft token per decode, as a share of a step with the decodes alone. */
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

  /** Longest useful draft behind the first `length` tokens of a sequence. */
  #mostOf({ spec }: Sequence, length: number): number {
    const left = spec.stop.tokensMax - (length - spec.promptTokens.length);
    // The row after the last known token draws one token without a draft.
    const room = Math.min(left, lengthLimit(this.#spec) - length) - 1;
    return Math.min(spec.draftTokensMax ?? DRAFT_MAX, DRAFT_MAX, room);
  }

  /** Asks a sequence's drafters. If one throws, the sequence gets no more drafts; its output is the same. */
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

/** Cuts a draft before its first stop token, behind which no draw counts. Null: nothing is left. */
function beforeEnd(offer: OfferedDraft, endTokens: readonly TokenId[]): OfferedDraft | null {
  const end = offer.tokens.findIndex((token) => endTokens.includes(token));
  if (end < 0) return offer;
  return end === 0
    ? null
    : { ...offer, tokens: offer.tokens.slice(0, end), chances: offer.chances.slice(0, end) };
}

/** Opens the draft sources of a policy; null: no speculative decoding. */
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
