import type { TokenId } from "../../base/token.ts";
import type { AdapterId, SequenceId } from "../../scheduler/core.ts";
import type { Fleet } from "../../scheduler/fleet/fleet.ts";
import type { ValuePart } from "../../scheduler/program/rendering.ts";
import type { Prompt, TextPart } from "../../scheduler/program/spec.ts";
import type { PromptServices } from "../request/prompt.ts";
import { Turns } from "./limits.ts";
import { headTokens } from "./prompt.ts";

/** Part of the fleet that accepts prefix hints: prompt prefixes of calls that wait. */
export type HintFleet = Pick<Fleet, "expect" | "extend" | "forget">;

interface Head {
  /** Prefix hint id at the fleet; null while tokens are being made, or if there are too few. */
  id: SequenceId | null;
  tokens: readonly TokenId[];
  /** Tokens computed ahead. */
  warmed: number;
  /** True if no more tokens will be sent: the call is ready, or never will be. */
  isComplete: boolean;
}

/** Facts that the heads of a program share. */
interface HeadFacts {
  readonly program: number;
  readonly cacheSalt: string;
  readonly adapter: AdapterId;
}

/** Minimum tokens of a prefix hint; fewer are not worth a message. */
const tokensMin = 16;

/** Maximum cached heads, about the number of graph stages that read the same value. */
const recentMax = 8;

/**
 * Heads of one program: known prompt prefixes of calls that wait for values. The fleet keeps them cached or
 * computes them ahead.
 */
export class Heads {
  readonly #fleet: HintFleet;
  readonly #services: PromptServices;
  readonly #facts: HeadFacts;
  readonly #headsMax: number;
  /** Admits one tokenisation at a time, so that ready calls go first. */
  readonly #turns = new Turns(1);
  /** Tokens of the most recent heads. */
  readonly #recent = new Map<string, readonly TokenId[]>();
  readonly #heads = new Map<string, Head>();

  constructor(fleet: HintFleet, services: PromptServices, facts: HeadFacts, headsMax: number) {
    this.#fleet = fleet;
    this.#services = services;
    this.#facts = facts;
    this.#headsMax = headsMax;
  }

  /**
   * Handles a longer known prefix of a call's prompt. Never rejects: a head that cannot be tokenised is
   * skipped.
   */
  async grew(call: string, prompt: Prompt<TextPart | ValuePart>): Promise<void> {
    let head = this.#heads.get(call);
    if (head === undefined) {
      if (this.#heads.size >= this.#headsMax) return;
      head = { id: null, tokens: [], warmed: 0, isComplete: false };
      this.#heads.set(call, head);
    }
    const grown = head;
    const make = async (): Promise<readonly TokenId[]> => {
      // Ready calls, and tokens on their way to clients, go first.
      await new Promise((resolve) => setImmediate(resolve));
      return grown.isComplete ? [] : this.#tokensOf(prompt);
    };
    const tokens = await this.#turns.run(make).catch(() => []);
    // A shorter head may have finished later.
    if (head.isComplete || tokens.length < Math.max(tokensMin, head.tokens.length)) return;
    this.#tell(head, tokens);
  }

  /** Tokens of a head, cached because many calls begin alike. */
  async #tokensOf(prompt: Prompt<TextPart | ValuePart>): Promise<readonly TokenId[]> {
    const key = JSON.stringify(prompt);
    const known = this.#recent.get(key);
    if (known !== undefined) return known;
    const tokens = await headTokens(prompt, this.#services);
    this.#recent.set(key, tokens);
    if (this.#recent.size > recentMax) this.#recent.delete(this.#recent.keys().next().value!);
    return tokens;
  }

  #tell(head: Head, tokens: readonly TokenId[]): void {
    const goesOn = head.tokens.every((token, index) => token === tokens[index]);
    if (head.id !== null && goesOn) this.#fleet.extend(head.id, tokens);
    else {
      if (head.id !== null) this.#fleet.forget(head.id);
      head.id = this.#fleet.expect({ ...this.#facts, tokens, isWarmed: true }, (warmed) => {
        head.warmed += warmed;
      });
    }
    head.tokens = tokens;
  }

  /** Tokens of the call's prompt that were computed ahead. */
  warmedOf(call: string): number {
    return this.#heads.get(call)?.warmed ?? 0;
  }

  /** Stops updates of a ready call, whose full prompt is tokenised now. */
  complete(call: string): void {
    const head = this.#heads.get(call);
    if (head !== undefined) head.isComplete = true;
  }

  /** Forgets a call that was submitted, or (`givesUp`) never will be. */
  forget(call: string, givesUp: boolean): void {
    const head = this.#heads.get(call);
    if (head === undefined) return;
    this.#heads.delete(call);
    head.isComplete = true;
    if (head.id !== null) this.#fleet.forget(head.id, givesUp);
  }

  /** Forgets all calls. */
  close(): void {
    for (const call of [...this.#heads.keys()]) this.forget(call, true);
  }
}
