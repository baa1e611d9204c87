import type { TokenId } from "../../base/token.ts";
import type { KvEvents } from "../cache/kv-event-log.ts";
import type { Finish, SequenceId, Step, TokenLogprobs } from "../core.ts";
import type {
  CheckedDraft,
  EngineLoad,
  EngineReport,
  PromptLogprobs,
  SequenceAccount,
  StartedSequence,
} from "../messages.ts";
import type { Sequence } from "./sequence.ts";
import type { StepNote, StepTrace } from "./trace.ts";

/** Fields of a load that only grow, or are about the last step. */
type Totals = Pick<
  EngineLoad,
  | "stepsTotal"
  | "promptTokensTotal"
  | "generatedTokensTotal"
  | "prefixQueriedTotal"
  | "prefixHitTotal"
  | "preemptionsTotal"
  | "stepsOverTarget"
  | "skippedDecodesTotal"
  | "draftsTotal"
  | "draftTokensTotal"
  | "acceptedTokensTotal"
  | "acceptedByPlace"
  | "stepTokens"
  | "deviceMs"
  | "stepMs"
>;

/** Fields of a load that are about this moment. */
export type LoadNow = Omit<EngineLoad, keyof Totals>;

/** Times of a step, and the pages in use. */
export interface StepTimes {
  readonly startMs: number;
  readonly endMs: number;
  readonly deviceMs: number;
  readonly pagesUsed: number;
  readonly pagesTotal: number;
}

/** Collects what happens in an engine for reports, running totals and traces. */
export class ReportBuilder {
  readonly #trace: ((step: StepTrace) => void) | null;
  readonly #totals: { -readonly [Key in keyof Totals]: Totals[Key] } = {
    stepsTotal: 0,
    promptTokensTotal: 0,
    generatedTokensTotal: 0,
    prefixQueriedTotal: 0,
    prefixHitTotal: 0,
    preemptionsTotal: 0,
    stepsOverTarget: 0,
    skippedDecodesTotal: 0,
    draftsTotal: 0,
    draftTokensTotal: 0,
    acceptedTokensTotal: 0,
    acceptedByPlace: [],
    stepTokens: 0,
    deviceMs: 0,
    stepMs: 0,
  };
  #reports = 0;
  #hasLoadChanged = false;
  #notes: StepNote[] = [];
  #started: StartedSequence[] = [];
  #sequences: SequenceId[] = [];
  #tokens: TokenId[] = [];
  #logprobs: (TokenLogprobs | null)[] | null = null;
  #finished: { sequence: SequenceId; finish: Finish }[] = [];
  #returned: SequenceId[] = [];
  #warmed: { hint: SequenceId; tokens: number }[] = [];
  #prompts: PromptLogprobs[] = [];
  #progress: { sequence: SequenceId; tokens: number }[] = [];
  #checked: CheckedDraft[] = [];
  #accounts: SequenceAccount[] = [];

  /** `trace` is called with every step that is done. */
  constructor(trace: ((step: StepTrace) => void) | null) {
    this.#trace = trace;
  }

  get totals(): Totals {
    return this.#totals;
  }

  /** True if there is nothing to report. */
  get isEmpty(): boolean {
    return (
      this.#started.length + this.#sequences.length + this.#finished.length + this.#returned.length === 0
    );
  }

  /** True if a sequence was admitted that no report has named. */
  get hasStarted(): boolean {
    return this.#started.length > 0;
  }

  /** True if the load has changed enough for a report of its own. */
  get hasLoadChanged(): boolean {
    return this.#hasLoadChanged;
  }

  /** Records a change in the load or in the cache that no other entry of the next report shows. */
  loadChanged(): void {
    this.#hasLoadChanged = true;
  }

  /**
   * Records that a sequence was admitted, for the first time or again. `matched`: tokens with cached pages;
   * `tierTokens`: those loaded from the lower tier for it; `hostTokens`: those of them from the host's memory.
   */
  admitted(
    { id, computed, length, wasStarted }: Sequence,
    matched: number,
    tierTokens: number,
    hostTokens: number,
  ): void {
    if (computed > 0) this.#note({ kind: "cached", sequence: id, tokens: computed });
    if (wasStarted) return;
    const more = matched > computed ? { matchedTokens: matched } : {};
    const fromTier = tierTokens === 0 ? {} : { tierTokens };
    const fromHost = hostTokens === 0 ? {} : { hostTokens };
    this.#started.push({ sequence: id, cachedTokens: computed, ...more, ...fromTier, ...fromHost });
    this.#totals.promptTokensTotal += length;
    this.#totals.prefixQueriedTotal += length;
    this.#totals.prefixHitTotal += computed;
  }

  /** Records that a sequence is parked until `owner` has computed or loaded their common prefix. */
  waits(sequence: SequenceId, owner: SequenceId): void {
    this.#note({ kind: "waits", sequence, owner });
  }

  preempted(sequence: SequenceId): void {
    this.#totals.preemptionsTotal += 1;
    this.#note({ kind: "preempted", sequence });
  }

  drew({ id, generated }: Sequence, token: TokenId, logprobs: TokenLogprobs | null, nowMs: number): void {
    if (generated === 0) this.#note({ kind: "first", sequence: id, atMs: nowMs });
    this.#totals.generatedTokensTotal += 1;
    if (logprobs !== null && this.#logprobs === null) this.#logprobs = this.#tokens.map(() => null);
    this.#sequences.push(id);
    this.#tokens.push(token);
    this.#logprobs?.push(logprobs);
  }

  ended(sequence: SequenceId, finish: Finish): void {
    this.#finished.push({ sequence, finish });
    this.#note({ kind: "ended", sequence, how: finish.kind });
  }

  /** Records that a sequence is returned to the fleet. */
  returned(sequence: SequenceId): void {
    this.#returned.push(sequence);
  }

  /** Records tokens of a prefix hint that were computed ahead. */
  warmed(hint: SequenceId, tokens: number): void {
    this.#warmed.push({ hint, tokens });
  }

  /** Records log probabilities of a prompt's tokens from `start` on. */
  promptLogprobs(sequence: SequenceId, start: number, logprobs: readonly TokenLogprobs[]): void {
    this.#prompts.push({ sequence, start, logprobs });
  }

  /** Records the number of computed prompt tokens. */
  progressed(sequence: SequenceId, tokens: number): void {
    this.#progress.push({ sequence, tokens });
  }

  /** Records a draft that a step has verified, and the number of its accepted tokens. */
  checked(draft: CheckedDraft): void {
    const { tokens, accepted } = draft;
    this.#checked.push(draft);
    const totals = this.#totals;
    totals.draftsTotal += 1;
    totals.draftTokensTotal += tokens;
    totals.acceptedTokensTotal += accepted;
    const byPosition = [...totals.acceptedByPlace];
    for (let i = 0; i < accepted; i++) byPosition[i] = (byPosition[i] ?? 0) + 1;
    totals.acceptedByPlace = byPosition;
  }

  /** Records the account of a sequence. */
  account({ id, account }: Sequence, at: SequenceAccount["at"]): void {
    this.#accounts.push({ sequence: id, at, account: account.state(at === "ended") });
  }

  /** Records offline decodes that are left out of the next step. */
  skipped(decodes: number): void {
    this.#totals.skippedDecodesTotal += decodes;
  }

  /** Records that a stream has missed its target in the last step. */
  missedTarget(): void {
    this.#totals.stepsOverTarget += 1;
  }

  /** Number of the next step: steps are counted, with what they took, once they are done. */
  get nextStep(): number {
    return this.#totals.stepsTotal + 1;
  }

  /** Records a step that is done. `isDecode(i)`: true if chunk i computes output, false if it computes a prompt. */
  stepDone({ number, chunks }: Step, times: StepTimes, isDecode: (index: number) => boolean): void {
    this.#totals.stepsTotal = number;
    this.#totals.stepTokens = chunks.reduce((sum, chunk) => sum + chunk.tokens.length, 0);
    this.#totals.deviceMs = times.deviceMs;
    this.#totals.stepMs = times.endMs - times.startMs;
    if (this.#trace === null) return;
    const traced = chunks.map(({ sequence, start, tokens, drafted = 0 }, index) => {
      const count = tokens.length - drafted;
      return { sequence, start, count, drafted, isDecode: isDecode(index) };
    });
    this.#trace({ ...times, number, chunks: traced, notes: this.#notes });
    this.#notes = [];
  }

  /** Builds the report of all entries since the last one. */
  report(now: LoadNow, kvEvents: KvEvents | null): EngineReport {
    const report: EngineReport = {
      number: this.#reports,
      started: this.#started,
      sequences: this.#sequences,
      tokens: this.#tokens,
      logprobs: this.#logprobs,
      finished: this.#finished,
      returned: this.#returned,
      warmed: this.#warmed,
      prompts: this.#prompts,
      progress: this.#progress,
      checked: this.#checked,
      accounts: this.#accounts,
      load: { ...now, ...this.#totals },
      kvEvents,
    };
    this.#reports += 1;
    this.#hasLoadChanged = false;
    this.#started = [];
    this.#sequences = [];
    this.#tokens = [];
    this.#logprobs = null;
    this.#finished = [];
    this.#returned = [];
    this.#warmed = [];
    this.#prompts = [];
    this.#progress = [];
    this.#checked = [];
    this.#accounts = [];
    return report;
  }

  #note(note: StepNote): void {
    if (this.#trace !== null) this.#notes.push(note);
  }
}
