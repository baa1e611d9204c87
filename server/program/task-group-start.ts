import type { AnswerListener, Generation, GenerationRequest } from "../answer/generation.ts";
import type { Generator } from "../answer/generator.ts";

interface Member {
  readonly request: GenerationRequest;
  readonly listener: AnswerListener;
  /** Called once no sequence of it runs any more. */
  readonly onSettled: () => void;
  readonly onStarted: (generation: Generation) => void;
}

/**
 * Joint start of a task group's calls that became ready together. Tokenised members wait for the others, so that
 * the fleet places all at once.
 */
export class TaskGroupStart {
  readonly #generator: Generator;
  readonly #members: Member[] = [];
  /** Members that have neither joined nor left. */
  #left: number;

  constructor(generator: Generator, members: number) {
    this.#generator = generator;
    this.#left = members;
  }

  /** Adds a member with a tokenised prompt. It receives its generation when all begin. */
  join(member: Member): void {
    this.#members.push(member);
    this.leave();
  }

  /** Counts a member that has joined or will not begin. */
  leave(): void {
    this.#left--;
    if (this.#left > 0 || this.#members.length === 0) return;
    const generations = this.#generator.generateTogether(
      this.#members.map(({ request }) => request),
      this.#members.map(({ listener }) => listener),
      this.#members.map(({ onSettled }) => onSettled),
    );
    for (const [index, { onStarted }] of this.#members.entries()) onStarted(generations[index]!);
  }
}
