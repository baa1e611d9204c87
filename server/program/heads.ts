import type { TokenId } from "../../base/token.ts";
import type { SequenceId } from "../../scheduler/core.ts";
import type { Fleet } from "../../scheduler/fleet/fleet.ts";
import type { ValuePart } from "../../scheduler/program/rendering.ts";
import type { Prompt, TextPart } from "../../scheduler/program/spec.ts";
import type { PromptServices } from "../request/prompt.ts";
import { headTokens } from "./prompt.ts";
import { Turns } from "./turns.ts";

/** What is told to the fleet of calls that wait. */
export type ProspectFleet = Pick<Fleet, "expect" | "extend" | "forget">;

interface Head {
  /** null: its tokens are being made, or there are too few. */
  id: SequenceId | null;
  tokens: readonly TokenId[];
  /** Computed ahead. */
  warmed: number;
  /** What is known of it is all there is to tell: the call is ready, or will never be. */
  isComplete: boolean;
}

/** Fewer tokens are not worth a message. */
const tokensMin = 16;

/** Different heads that are remembered: as many as the stages of a graph have that read the same value. */
const recentMax = 8;

/** The beginnings of prompts of one program's calls that wait for values: told to the fleet, so that they are kept or computed ahead. */
export class Heads {
  readonly #fleet: ProspectFleet;
  readonly #services: PromptServices;
  readonly #facts: { readonly program: number; readonly cacheSalt: string };
  readonly #headsMax: number;
  /** One at a time, so that calls that are ready go before. */
  readonly #turns = new Turns(1);
  /** Tokens of the heads that were made last. */
  readonly #recent = new Map<string, readonly TokenId[]>();
  readonly #heads = new Map<string, Head>();

  constructor(
    fleet: ProspectFleet,
    services: PromptServices,
    facts: { readonly program: number; readonly cacheSalt: string },
    headsMax: number,
  ) {
    this.#fleet = fleet;
    this.#services = services;
    this.#facts = facts;
    this.#headsMax = headsMax;
  }

  /** More is known of a call's prompt. Never rejects: a head that cannot be made is not told. */
  async grew(call: string, prompt: Prompt<TextPart | ValuePart>): Promise<void> {
    let head = this.#heads.get(call);
    if (head === undefined) {
      if (this.#heads.size >= this.#headsMax) return;
      head = { id: null, tokens: [], warmed: 0, isComplete: false };
      this.#heads.set(call, head);
    }
    const grown = head;
    const make = async (): Promise<readonly TokenId[]> => {
      // What is ready, and tokens on their way to clients, go before.
      await new Promise((resolve) => setImmediate(resolve));
      return grown.isComplete ? [] : this.#tokensOf(prompt);
    };
    const tokens = await this.#turns.run(make).catch(() => []);
    // A shorter one may have taken longer.
    if (head.isComplete || tokens.length < Math.max(tokensMin, head.tokens.length)) return;
    this.#tell(head, tokens);
  }

  /** Many calls begin alike. */
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
      head.id = this.#fleet.expect({ ...this.#facts, tokens, adapter: 0, isWarmed: true }, (warmed) => {
        head.warmed += warmed;
      });
    }
    head.tokens = tokens;
  }

  /** Tokens of the call's prompt that were computed ahead. */
  warmedOf(call: string): number {
    return this.#heads.get(call)?.warmed ?? 0;
  }

  /** The call is ready: nothing more is told of its prompt, whose tokens are made now. */
  complete(call: string): void {
    const head = this.#heads.get(call);
    if (head !== undefined) head.isComplete = true;
  }

  /** The call was submitted, or (`givesUp`) never will be. */
  forget(call: string, givesUp: boolean): void {
    const head = this.#heads.get(call);
    if (head === undefined) return;
    this.#heads.delete(call);
    head.isComplete = true;
    if (head.id !== null) this.#fleet.forget(head.id, givesUp);
  }

  /** No call comes any more. */
  close(): void {
    for (const call of [...this.#heads.keys()]) this.forget(call, true);
  }
}
