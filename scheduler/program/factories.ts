import { greedySampling } from "../core.ts";
import type { Variable } from "./graph.ts";
import { Program, type ProgramListener, type ProgramOptions, type ReadyCall } from "./program.ts";
import type {
  Body,
  CallSpec,
  Criteria,
  OutputPart,
  ProgramPart,
  Prompt,
  PromptPart,
  Transform,
} from "./spec.ts";

/** For tests: an input without transforms. */
export function input(variable: string, ...transforms: { kind: string }[]): PromptPart {
  return { kind: "input", variable, transforms };
}

/** For tests: an answer without transforms or limits. */
export function output(variable: string, ...transforms: { kind: string }[]): OutputPart {
  return { kind: "output", variable, transforms, sampling: greedySampling, tokensMax: null, stop: [] };
}

/** For tests: constant text. */
export function text(value: string): PromptPart {
  return { kind: "text", text: value };
}

/** For tests: a call that reads some variables and then writes others. */
export function call(name: string, reads: readonly string[], writes: readonly string[]): CallSpec {
  const parts = [
    text(`${name}:`),
    ...reads.map((variable) => input(variable)),
    ...writes.map((variable) => output(variable)),
  ];
  return { kind: "call", name, prompt: { kind: "text", parts } };
}

/** For tests: a body of one call that reads some variables. */
export function bodyOf(name: string, reads: readonly string[]): Body {
  return { nodes: [call(name, reads, ["result"])], result: "result" };
}

/** For tests: values that the client gives at once. */
export function given(...names: string[]): ProgramPart["variables"] {
  return names.map((name) => ({ name, value: name }));
}

/** Criteria of a user who reads the tokens as they come. */
export const soon: Criteria = { objective: "latency", ttftMs: null, tbtMs: null };
export const sometime: Criteria = { objective: "throughput", ttftMs: null, tbtMs: null };

/**
 * For tests: `lines` splits a text into its lines, `join` joins a list, `upper` accepts texts, all others
 * fail.
 */
export const transforms: Transform = (value, steps) => {
  let at = value;
  for (const { kind } of steps) {
    if (kind === "lines" && typeof at === "string") at = at.split("\n");
    else if (kind === "join" && typeof at !== "string") at = at.join("\n");
    else if (kind === "upper" && typeof at === "string") at = at.toUpperCase();
    else return { kind: "failed", message: `There is no ${kind} for this value.` };
  }
  return { kind: "value", value: at };
};

/** For tests: a program whose calls the test answers, with a log of its events. */
export class ManualProgram implements ProgramListener {
  readonly program: Program;
  nowMs = 0;
  /** Running calls by name, in order: announced and not ended. */
  readonly running = new Map<string, ReadyCall>();
  /** Names of calls that became ready together. */
  readonly batches: string[][] = [];
  /** Heads of the prompts of waiting calls, as announced. */
  readonly heads: string[] = [];
  readonly dropped: string[] = [];
  readonly settled: Variable[] = [];
  #taskGroups = 0;

  constructor(options: Partial<ProgramOptions> = {}) {
    const clock = { nowMs: () => this.nowMs };
    const nextTaskGroup = (): number => this.#taskGroups++;
    this.program = new Program(this, { clock, nextTaskGroup, transform: transforms, ...options });
  }

  onReady(calls: readonly ReadyCall[]): void {
    this.batches.push(calls.map((ready) => ready.call));
    for (const ready of calls) this.running.set(ready.call, ready);
  }

  onHead(name: string): void {
    this.heads.push(shown(this.program.headOf(name)));
  }

  onDropped(name: string): void {
    this.dropped.push(name);
    this.running.delete(name);
  }

  onSettled(variable: Variable): void {
    this.settled.push(variable);
  }

  /** Text of a running call, values in angle brackets. */
  promptOf(name: string): string {
    return shown(this.running.get(name)!.prompt);
  }

  /** Answers a running call: output i with `answers[i]`, or with the variable's name. */
  answer(name: string, ...answers: string[]): void {
    this.running.delete(name);
    const node = this.program.nodes.get(name)!;
    node.outputs.forEach((variable, index) => {
      this.program.wrote(name, index, answers[index] ?? variable.name);
    });
    this.program.ended(name);
  }

  /** Fails a running call. */
  break(name: string): void {
    this.running.delete(name);
    this.program.failed(name, "engine", "The device was lost.");
  }

  /** Formats a variable's state. */
  show(name: string): string {
    const { state, value, failure } = this.program.variables.get(name)!;
    if (state === "ready") return JSON.stringify(value);
    return failure === null ? state : `${failure.code} of ${failure.origin}`;
  }
}

/** Formats a prompt in one line: values in angle brackets, outputs in square ones. */
export function shown(
  prompt: Prompt<{ readonly kind: string; readonly text?: string; readonly variable?: string }>,
): string {
  const parts = prompt.kind === "text" ? prompt.parts : prompt.messages.flatMap((message) => message.parts);
  return parts
    .map(({ kind, text: own, variable }) =>
      kind === "text" ? own : kind === "value" ? `<${own}>` : `[${variable}]`,
    )
    .join("");
}
