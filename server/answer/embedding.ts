import type { Pooling, TokenId } from "../../base/token.ts";
import { type AdapterId, greedySampling, type SequenceId } from "../../scheduler/core.ts";
import { ownMs } from "../../scheduler/explain/causes.ts";
import type { Story } from "../../scheduler/explain/sequence-story.ts";
import type { Fleet } from "../../scheduler/fleet/fleet.ts";
import { failureOf } from "./choice.ts";
import type { AbortedBy, AnswerFailure } from "./events.ts";
import type { RequestedService } from "./generation.ts";

/**
 * Pools the hidden states of tokenised texts: each text is a sequence on the fleet that generates no token.
 */

export interface EmbeddingRequest {
  /** At least one input, each of at least one token. */
  readonly inputs: readonly (readonly TokenId[])[];
  readonly pooling: Pooling;
  /** True if the model is an encoder (bidirectional attention), whose texts are each computed in one step. */
  readonly isWhole: boolean;
  /** Index of the first token of each pair's second text; absent: the inputs are single texts. */
  readonly secondAt?: readonly number[];
  readonly service: RequestedService;
  readonly tenant: string;
  readonly cacheSalt: string;
  readonly adapter: AdapterId;
}

export interface Pooled {
  /** [hidden size] of each input, in their order; not normalised. */
  readonly states: readonly Float32Array[];
  readonly cachedTokens: number;
}

/** Error that carries the reason why a request has no states. */
export class EmbeddingFailure extends Error {
  override readonly name = "EmbeddingFailure";
  readonly failure: AnswerFailure;

  constructor(failure: AnswerFailure) {
    super(failure.kind);
    this.failure = failure;
  }
}

/**
 * Concurrent sequences of a request: enough to fill steps, and few enough to leave room in the fleet's
 * queues.
 */
const SUBMITTED_MAX = 256;

/** An embedding request in flight. */
export class Embedding {
  /** Rejects with EmbeddingFailure. */
  readonly done: Promise<Pooled>;
  readonly #fleet: Pick<Fleet, "submit" | "abort">;
  readonly #request: EmbeddingRequest;
  readonly #states: Float32Array[] = [];
  readonly #settle: PromiseWithResolvers<Pooled> = Promise.withResolvers();
  readonly #running = new Map<number, SequenceId>();
  #submitted = 0;
  #pooled = 0;
  #cachedTokens = 0;
  #isEnded = false;
  /** Time by cause of the sequence that ended last. */
  #story: Story | null = null;

  constructor(fleet: Pick<Fleet, "submit" | "abort">, request: EmbeddingRequest) {
    this.#fleet = fleet;
    this.#request = request;
    this.done = this.#settle.promise;
    for (let i = 0; i < SUBMITTED_MAX; i++) this.#submitNext();
  }

  /** Device time attributed to the texts that have ended: the steps' milliseconds as if each ran alone. */
  deviceMs = 0;

  /** Time by cause of the text that ended last; null: none has. */
  get story(): Story | null {
    return this.#story;
  }

  get cachedTokens(): number {
    return this.#cachedTokens;
  }

  /** Aborts the sequences; has no effect once it is done. */
  abort(by: AbortedBy): void {
    this.#fail({ kind: "aborted", by });
  }

  #submitNext(): void {
    const { inputs, pooling, isWhole, secondAt, service, tenant, cacheSalt, adapter } = this.#request;
    const index = this.#submitted;
    const promptTokens = inputs[index];
    if (promptTokens === undefined || this.#isEnded) return;
    this.#submitted += 1;
    let isOpen = true;
    const id = this.#fleet.submit(
      {
        promptTokens,
        pooling,
        ...(isWhole ? { isWhole } : {}),
        ...(secondAt === undefined ? {} : { secondAt: secondAt[index]! }),
        sampling: greedySampling,
        stop: { tokensMax: 1, tokensMin: 0, stopTokens: [] },
        cacheSalt,
        adapter,
        service: { ...service, tenant, taskGroup: null, program: null, session: null },
      },
      {
        onStarted: (cachedTokens) => {
          this.#cachedTokens += cachedTokens;
        },
        onToken: () => {},
        onFinish: (finish, _, story) => {
          isOpen = false;
          this.#story = story;
          this.deviceMs += ownMs(story.ms);
          this.#running.delete(index);
          if (finish.kind === "pooled") this.#note(index, finish.hidden);
          else this.#fail(failureOf(finish) ?? { kind: "engineFailed", message: "the text was not pooled" });
        },
      },
    );
    if (isOpen) this.#running.set(index, id); // else it was refused from within the call
  }

  #note(index: number, hidden: Float32Array): void {
    if (this.#isEnded) return;
    this.#states[index] = hidden;
    this.#pooled += 1;
    if (this.#pooled < this.#request.inputs.length) {
      this.#submitNext();
      return;
    }
    this.#isEnded = true;
    this.#settle.resolve({ states: this.#states, cachedTokens: this.#cachedTokens });
  }

  #fail(failure: AnswerFailure): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#settle.reject(new EmbeddingFailure(failure));
    for (const id of this.#running.values()) this.#fleet.abort(id);
  }
}
