import { assert } from "../../base/assert.ts";
import type { SeededRandom } from "../../base/random.ts";
import type { TokenId } from "../../base/token.ts";
import { chatService, type Service } from "../../scheduler/core.ts";
import type { Expected } from "../../scheduler/fleet/fleet.ts";
import type { ExpectedMs } from "../../scheduler/program/critical-path.ts";
import type { Variable } from "../../scheduler/program/graph.ts";
import { Program, type ProgramListener, type ReadyCall } from "../../scheduler/program/program.ts";
import type { RenderedPart, ValuePart } from "../../scheduler/program/rendering.ts";
import {
  type Criteria,
  type ProgramPart,
  type Prompt,
  partsOf,
  type TextPart,
} from "../../scheduler/program/spec.ts";
import type { Answer, Arrival, HintChange, Workload } from "../workload.ts";

/** Program that a client submits. */
export interface ProgramArrival {
  /** Time at which the client sends it, or its first calls. */
  readonly atMs: number;
  readonly kind: string;
  readonly part: ProgramPart;
  /** Awaited values with their criteria; the program is done when all of them are ready. */
  readonly wants: Readonly<Record<string, Criteria>>;
}

/** Mode in which clients run their programs, and the server's use of them. */
export interface ProgramSetup {
  readonly name: string;
  /** graph: the server runs it. calls: the client sends each call as a chat when its inputs are ready. */
  readonly sends: "graph" | "calls";
  /** Range of the client's round trip to the server in milliseconds, drawn for each message. */
  readonly roundTripMs: readonly [number, number];
  readonly random: SeededRandom;
  readonly expectedMs: ExpectedMs;
  /** Uses of the graph by the server; for `graph` only. */
  readonly uses: ProgramUses;
}

/** Uses of a graph by a server; each can be switched off. */
export interface ProgramUses {
  /** True if objectives are deduced from the criteria; else every call is awaited like a chat. */
  readonly objectives: boolean;
  /** True if task groups are placed together and served as such. */
  readonly taskGroups: boolean;
  /** True if programs keep the order of their arrival. */
  readonly order: boolean;
  /** True if prefixes of waiting calls are protected and warmed. */
  readonly hints: boolean;
  readonly warming: boolean;
}

/** All uses. */
export const allUses: ProgramUses = {
  objectives: true,
  taskGroups: true,
  order: true,
  hints: true,
  warming: true,
};

/** Record of a program, as its client saw it. */
export interface ProgramRecord {
  readonly kind: string;
  readonly arrivedMs: number;
  readonly doneMs: number;
  /** Output tokens of all its calls. */
  readonly outputTokens: number;
}

/** Offset of characters, one per token, so that texts are cut and joined like tokens. */
const FIRST_CHAR = 0x100;
/** Vocabulary size: tokens that characters below the surrogates can represent. */
export const PROGRAM_VOCABULARY = 0xd000;

/** Returns the text of some tokens. */
export function textOf(tokens: Iterable<TokenId>): string {
  let text = "";
  for (const token of tokens) text += String.fromCharCode(token + FIRST_CHAR);
  return text;
}

/** Makes a text of `tokens` random tokens, unique to its caller. */
export function uniqueText(random: SeededRandom, tokens: number): string {
  return textOf(Array.from({ length: tokens }, () => random.below(PROGRAM_VOCABULARY)));
}

/** Call that was sent, with the output being drawn. */
interface Sent {
  readonly run: ProgramRun;
  readonly ready: ReadyCall;
  readonly output: number;
  /** Tokens before the answer. */
  readonly tokens: Int32Array;
}

/**
 * Programs as a workload. The serving executor runs on the server's side, or on the client's (as a client of
 * chat completions would). An answer is as long as its output's `tokensMax`.
 */
export class ProgramWorkload implements Workload {
  readonly name: string;
  readonly vocabSize = PROGRAM_VOCABULARY;
  readonly records: ProgramRecord[] = [];
  readonly setup: ProgramSetup;
  /** Programs by the time at which the server receives them. */
  readonly #programs: { readonly program: ProgramArrival; readonly heardMs: number }[];
  readonly #sent = new Map<Arrival, Sent>();
  #coming: Arrival[] = [];
  #changes: HintChange[] = [];
  #started = 0;
  #taskGroups = 0;

  constructor(programs: readonly ProgramArrival[], setup: ProgramSetup) {
    this.name = setup.name;
    this.setup = setup;
    this.#programs = programs
      .map((program) => ({ program, heardMs: program.atMs + this.oneWayMs() }))
      .sort((a, b) => a.heardMs - b.heardMs);
  }

  next(): Arrival | null {
    while (this.#coming.length === 0) {
      const next = this.#programs[this.#started];
      if (next === undefined) return null;
      const run = new ProgramRun(this, this.#started, next.program, next.heardMs);
      this.#started += 1;
      this.#coming = [...run.start()];
    }
    return this.#coming.shift()!;
  }

  after(arrival: Arrival, { finishedMs, tokens }: Answer): readonly Arrival[] {
    const sent = this.#sent.get(arrival);
    assert(sent !== undefined, "an answer is of a call that was sent");
    this.#sent.delete(arrival);
    return sent.run.answered(sent, finishedMs, tokens.slice(0, arrival.outputTokens));
  }

  takeHintChanges(): readonly HintChange[] {
    const changes = this.#changes;
    this.#changes = [];
    return changes;
  }

  /* ---- for its programs ---- */

  oneWayMs(): number {
    const [least, most] = this.setup.roundTripMs;
    return (least + (most - least) * this.setup.random.unit()) / 2;
  }

  nextTaskGroup(): number {
    this.#taskGroups += 1;
    return this.#taskGroups;
  }

  note(change: HintChange): void {
    this.#changes.push(change);
  }

  send(sent: Sent, atMs: number, service: Service, kind: string): Arrival {
    const part = outputsOf(sent.ready)[sent.output]!;
    const outputTokens = part.tokensMax ?? 1;
    const arrival: Arrival = {
      atMs,
      promptTokens: () => sent.tokens,
      outputTokens,
      tokensMax: outputTokens,
      cacheSalt: "",
      service,
      kind,
    };
    this.#sent.set(arrival, sent);
    return arrival;
  }
}

/** Running program. */
class ProgramRun implements ProgramListener {
  readonly #workload: ProgramWorkload;
  readonly #number: number;
  readonly #arrival: ProgramArrival;
  readonly #program: Program;
  readonly #ready: ReadyCall[] = [];
  readonly #expected = new Set<string>();
  #nowMs: number;
  #outputTokens = 0;
  #left: number;

  constructor(workload: ProgramWorkload, number: number, arrival: ProgramArrival, heardMs: number) {
    const { expectedMs } = workload.setup;
    this.#workload = workload;
    this.#number = number;
    this.#arrival = arrival;
    this.#left = Object.keys(arrival.wants).length;
    this.#nowMs = heardMs;
    this.#program = new Program(this, {
      clock: { nowMs: () => this.#nowMs },
      nextTaskGroup: () => workload.nextTaskGroup(),
      expectedMs,
    });
  }

  /** Returns the calls that depend on no answer. */
  start(): readonly Arrival[] {
    const { part, wants } = this.#arrival;
    const refusal = this.#program.add(part, wants);
    assert(refusal === null, refusal?.message ?? "");
    return this.#send(0);
  }

  /** Handles an answer; returns the arrivals that it causes. */
  answered(
    { ready, output, tokens }: Sent,
    finishedMs: number,
    drawn: readonly TokenId[],
  ): readonly Arrival[] {
    const isGraph = this.#workload.setup.sends === "graph";
    const heardMs = isGraph ? finishedMs : finishedMs + this.#workload.oneWayMs();
    this.#nowMs = Math.max(this.#nowMs, heardMs);
    this.#outputTokens += drawn.length;
    this.#program.wrote(ready.call, output, textOf(drawn));
    const sendMs = isGraph ? 0 : this.#workload.oneWayMs();
    if (output + 1 === outputsOf(ready).length) {
      this.#program.ended(ready.call);
      return this.#send(sendMs);
    }
    // The same sequence continues from its own tokens.
    const next = { run: this, ready, output: output + 1, tokens: tokensOf(ready, output + 1, tokens, drawn) };
    return [this.#arrivalOf(next, sendMs), ...this.#send(sendMs)];
  }

  onReady(calls: readonly ReadyCall[]): void {
    this.#ready.push(...calls);
  }

  onHead(call: string): void {
    const { sends, uses } = this.#workload.setup;
    if (sends === "calls" || !uses.hints) return;
    const tokens = tokensOfParts(partsOf(this.#program.headOf(call) as Prompt<TextPart | ValuePart>));
    if (tokens.length === 0) return;
    this.#expected.add(call);
    const hint: Expected = {
      tokens,
      cacheSalt: "",
      adapter: 0,
      program: this.#number,
      isWarmed: uses.warming,
    };
    this.#workload.note({ atMs: this.#nowMs, key: `${this.#number}/${call}`, hint });
  }

  onDropped(call: string): void {
    this.#forget(call);
  }

  onSettled(variable: Variable): void {
    if (!(variable.name in this.#arrival.wants)) return;
    this.#left -= 1;
    if (this.#left > 0) return;
    const { kind, atMs } = this.#arrival;
    const isGraph = this.#workload.setup.sends === "graph";
    const doneMs = this.#nowMs + (isGraph ? this.#workload.oneWayMs() : 0);
    this.#workload.records.push({ kind, arrivedMs: atMs, doneMs, outputTokens: this.#outputTokens });
  }

  #send(afterMs: number): Arrival[] {
    const ready = this.#ready.splice(0);
    const arrivals = ready.map((one) =>
      this.#arrivalOf({ run: this, ready: one, output: 0, tokens: tokensOf(one, 0) }, afterMs),
    );
    for (const { call } of ready) this.#forget(call);
    return arrivals;
  }

  #forget(call: string): void {
    if (!this.#expected.delete(call)) return;
    this.#workload.note({ atMs: this.#nowMs, key: `${this.#number}/${call}`, hint: null });
  }

  #arrivalOf(sent: Sent, afterMs: number): Arrival {
    return this.#workload.send(sent, this.#nowMs + afterMs, this.#serviceOf(sent.ready), this.#arrival.kind);
  }

  #serviceOf({ call }: ReadyCall): Service {
    const { sends, uses } = this.#workload.setup;
    if (sends === "calls") return chatService;
    const { objective, taskGroup, ttftMs, tbtMs, remainingMs } = this.#program.serviceOf(call);
    const isTaskGroup = objective === "gang" && uses.taskGroups;
    const program = { id: this.#number, ageMs: this.#nowMs - this.#program.arrivedMs, remainingMs };
    return {
      ...chatService,
      objective: !uses.objectives || (objective === "gang" && !uses.taskGroups) ? "latency" : objective,
      taskGroup: isTaskGroup ? taskGroup : null,
      ttftMs,
      tbtMs,
      program: uses.order ? program : null,
    };
  }
}

function outputsOf({ prompt }: ReadyCall) {
  return partsOf(prompt).filter((part) => part.kind === "output");
}

/**
 * Returns the tokens before output number `output`: after `before`, which ends with the output before it, or
 * from the start.
 */
function tokensOf(
  { prompt }: ReadyCall,
  output: number,
  before: Int32Array = new Int32Array(0),
  drawn: readonly TokenId[] = [],
): Int32Array {
  const parts = partsOf(prompt);
  const outputs = parts.flatMap((part, index) => (part.kind === "output" ? [index] : []));
  const from = output === 0 ? 0 : outputs[output - 1]! + 1;
  const texts = tokensOfParts(parts.slice(from, outputs[output]!));
  return Int32Array.from([...before, ...drawn, ...texts]);
}

function tokensOfParts(parts: readonly RenderedPart[]): Int32Array {
  const text = parts.map((part) => (part.kind === "output" ? "" : part.text)).join("");
  return Int32Array.from({ length: text.length }, (_, index) => text.charCodeAt(index) - FIRST_CHAR);
}
