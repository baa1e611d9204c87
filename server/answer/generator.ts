import { assert } from "../../base/assert.ts";
import { yieldIfSpent } from "../../base/time-slice.ts";
import type { Constraint } from "../../grammar/constraint.ts";
import { ConstraintError } from "../../grammar/error.ts";
import type { ConstraintSource } from "../../grammar/source.ts";
import type { SessionKeeper } from "../../scheduler/session/session-keeper.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import type { Compiled } from "../grammar/compiler.ts";
import type { CacheAccount } from "./cache-account.ts";
import type { AnswerFailure } from "./events.ts";
import {
  type AnswerListener,
  type Generation,
  type GenerationRequest,
  type ModelFacts,
  type RequestedConstraint,
  RunningGeneration,
  type SequenceRunner,
  type Submission,
} from "./generation.ts";
import { heldTo, thoughtsLimit } from "./held-to.ts";

/** Prompt tokens submitted between two yields to other work on this thread. */
const TOGETHER_TOKENS = 65_536;
/** Cost of submitting one choice, in prompt tokens, besides its own prompt. */
const CHOICE_TOKENS = 512;

/**
 * Starts requests: compiles the constraint of the answer, and submits one sequence per choice to the fleet.
 */
export class Generator {
  readonly #fleet: SequenceRunner;
  readonly #tokenizer: Tokenizer;
  readonly #facts: ModelFacts;
  readonly #compile: (source: ConstraintSource) => Promise<Compiled>;
  readonly #account: CacheAccount;
  readonly #sessions: SessionKeeper | null;
  #active = 0;
  #taskGroups = 0;

  /**
   * `compile` rejects with ConstraintError for a constraint that no text can meet. `sessions`: null, if prompts
   * belong to none.
   */
  constructor(
    fleet: SequenceRunner,
    tokenizer: Tokenizer,
    facts: ModelFacts,
    compile: (source: ConstraintSource) => Promise<Compiled>,
    account: CacheAccount,
    sessions: SessionKeeper | null = null,
  ) {
    this.#fleet = fleet;
    this.#tokenizer = tokenizer;
    this.#facts = facts;
    this.#compile = compile;
    this.#account = account;
    this.#sessions = sessions;
  }

  /** Stops keeping the pages of sessions, before the engines end. */
  close(): void {
    this.#sessions?.close();
  }

  /** Tokens of the longest sequence, prompt and output together. */
  get contextMax(): number {
    return this.#facts.contextMax;
  }

  /** Requests in flight. */
  get active(): number {
    return this.#active;
  }

  /** Number of a new task group; unique for the life of the process. */
  nextTaskGroup(): number {
    return this.#taskGroups++;
  }

  /**
   * Starts a request asynchronously, after the caller holds the result. Refusals arrive as events like
   * everything else. `onSettled` is called once none of its sequences runs any more.
   */
  generate(
    request: GenerationRequest,
    listener: AnswerListener,
    onSettled: () => void = () => {},
  ): Generation {
    const generation = this.#open(request, listener, onSettled);
    const start = async (constraint: Constraint | null): Promise<void> => {
      let carried = 0;
      for (const submission of generation.submissions(() => this.nextTaskGroup(), constraint)) {
        this.#submit(submission);
        const { specs } = submission;
        carried += specs.length * (specs[0]!.promptTokens.length + CHOICE_TOKENS);
        if (carried < TOGETHER_TOKENS) continue;
        carried = 0;
        await yieldIfSpent();
      }
    };
    if (this.#facts.isHeadless === true) {
      queueMicrotask(() => generation.refuse({ kind: "writesNoText" }));
      return generation;
    }
    let held: RequestedConstraint | null;
    try {
      held = heldTo(request, this.#tokenizer);
    } catch (error) {
      queueMicrotask(() => generation.refuse(refusalOf(error as Error, "tool_choice")));
      return generation;
    }
    if (held === null) queueMicrotask(() => void start(null));
    else {
      const { source, param } = held;
      const thoughts = thoughtsLimit(request, this.#tokenizer);
      this.#compile(source).then(
        ({ constraint, ignored }) => {
          generation.ignored = ignored;
          void start(thoughts === null ? constraint : { ...constraint, thoughts });
        },
        (error: Error) => generation.refuse(refusalOf(error, param)),
      );
    }
    return generation;
  }

  /**
   * Starts requests without constraints, as `generate` does, and has the fleet place them together as one
   * task group.
   */
  generateTogether(
    requests: readonly GenerationRequest[],
    listeners: readonly AnswerListener[],
    onSettled: readonly (() => void)[],
  ): readonly Generation[] {
    assert(
      requests.every(({ constraint, calls }) => constraint === undefined && calls === undefined),
      "what begins together has no constraints to compile",
    );
    const generations = requests.map((request, index) =>
      this.#open(request, listeners[index]!, onSettled[index]!),
    );
    queueMicrotask(() => {
      if (this.#facts.isHeadless === true) {
        for (const generation of generations) generation.refuse({ kind: "writesNoText" });
      }
      const all = generations.flatMap((generation) => [
        ...generation.submissions(() => this.nextTaskGroup(), null),
      ]);
      if (all.length === 0) return;
      const ids = this.#fleet.submitTaskGroup(
        all.flatMap(({ specs }) => specs),
        all.flatMap(({ listeners: theirs }) => theirs),
      );
      let from = 0;
      for (const { specs, onSubmitted } of all) {
        onSubmitted(ids.slice(from, from + specs.length));
        from += specs.length;
      }
    });
    return generations;
  }

  #open(request: GenerationRequest, listener: AnswerListener, onSettled: () => void): RunningGeneration {
    this.#active++;
    const onEnd = (): void => {
      this.#active--;
    };
    const links = { listener, onEnd, onSettled, account: this.#account, sessions: this.#sessions };
    return new RunningGeneration(this.#fleet, this.#tokenizer, this.#facts, request, links);
  }

  /** Submits the choices of one prompt, which the fleet places together. */
  #submit({ specs, listeners, onSubmitted }: Submission): void {
    onSubmitted(
      specs.length === 1
        ? [this.#fleet.submit(specs[0]!, listeners[0]!)]
        : this.#fleet.submitTaskGroup(specs, listeners),
    );
  }
}

function refusalOf(error: Error, param: string): AnswerFailure {
  if (!(error instanceof ConstraintError)) return { kind: "engineFailed", message: error.message };
  const { message, pointer } = error;
  const place = pointer === "" || pointer === "#" ? param : `${param}${pointer}`;
  return { kind: "badConstraint", message: `${param} cannot be enforced: ${message}`, param: place };
}
