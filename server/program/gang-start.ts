import type { AnswerListener, Generation, GenerationRequest } from "../answer/generation.ts";
import type { Generator } from "../answer/generator.ts";

interface Member {
  readonly request: GenerationRequest;
  readonly listener: AnswerListener;
  readonly onStarted: (generation: Generation) => void;
}

/** Calls of one gang that became ready together: those whose prompts are made wait for the others, so that all are placed together. */
export class GangStart {
  readonly #generator: Generator;
  readonly #members: Member[] = [];
  /** Members that have neither joined nor left. */
  #left: number;

  constructor(generator: Generator, members: number) {
    this.#generator = generator;
    this.#left = members;
  }

  /** The member's prompt is made. Its generation is told as soon as all begin. */
  join(member: Member): void {
    this.#members.push(member);
    this.leave();
  }

  /** The member will not begin, or has joined. */
  leave(): void {
    this.#left--;
    if (this.#left > 0 || this.#members.length === 0) return;
    const generations = this.#generator.generateTogether(
      this.#members.map(({ request }) => request),
      this.#members.map(({ listener }) => listener),
    );
    for (const [index, { onStarted }] of this.#members.entries()) onStarted(generations[index]!);
  }
}
