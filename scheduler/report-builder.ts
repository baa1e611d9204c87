import type { Finish, SequenceId, TokenId, TokenLogprobs } from "./core.ts";
import type { EngineLoad, EngineReport } from "./messages.ts";

/** Collects what an engine has to tell until it tells it. */
export class ReportBuilder {
  #started: { sequence: SequenceId; cachedTokens: number }[] = [];
  #sequences: SequenceId[] = [];
  #tokens: TokenId[] = [];
  #logprobs: (TokenLogprobs | null)[] | null = null;
  #finished: { sequence: SequenceId; finish: Finish }[] = [];

  get isEmpty(): boolean {
    return this.#started.length + this.#sequences.length + this.#finished.length === 0;
  }

  started(sequence: SequenceId, cachedTokens: number): void {
    this.#started.push({ sequence, cachedTokens });
  }

  token(sequence: SequenceId, token: TokenId, logprobs: TokenLogprobs | null): void {
    if (logprobs !== null && this.#logprobs === null) this.#logprobs = this.#tokens.map(() => null);
    this.#sequences.push(sequence);
    this.#tokens.push(token);
    this.#logprobs?.push(logprobs);
  }

  finished(sequence: SequenceId, finish: Finish): void {
    this.#finished.push({ sequence, finish });
  }

  /** Hands out what was collected and begins anew. */
  take(load: EngineLoad): EngineReport {
    const report: EngineReport = {
      started: this.#started,
      sequences: this.#sequences,
      tokens: this.#tokens,
      logprobs: this.#logprobs,
      finished: this.#finished,
      load,
    };
    this.#started = [];
    this.#sequences = [];
    this.#tokens = [];
    this.#logprobs = null;
    this.#finished = [];
    return report;
  }
}
