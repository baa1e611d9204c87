import type { Clock } from "../../base/clock.ts";
import { inSlices, yieldIfSpent } from "../../base/time-slice.ts";
import type { CallEstimates } from "../../scheduler/program/call-estimates.ts";
import type { Refusal } from "../../scheduler/program/check.ts";
import { type Failure, pathOf, type Variable } from "../../scheduler/program/graph.ts";
import { Program, type ProgramListener, type ReadyCall } from "../../scheduler/program/program.ts";
import { type Criteria, type ProgramPart, partsOf, type Value } from "../../scheduler/program/spec.ts";
import { transformWith } from "../../scheduler/program/transforms/transform.ts";
import type { TextTools } from "../../scheduler/program/transforms/value.ts";
import { byteLength } from "../../scheduler/program/transforms/value.ts";
import type { Usage } from "../answer/events.ts";
import { type Traces, WholeTrace } from "../trace/traces.ts";
import { type CallListener, type CallOwner, type CallServices, RunningCall } from "./call.ts";
import type { ProgramEvent } from "./events.ts";
import { Heads, type HintFleet } from "./heads.ts";
import type { HostLimits } from "./limits.ts";
import { TaskGroupStart } from "./task-group-start.ts";

/** Services that a program uses. */
export interface HostServices extends CallServices {
  readonly clock: Pick<Clock, "nowMs">;
  readonly fleet: HintFleet;
  readonly textTools: TextTools;
  readonly estimates: CallEstimates;
  /** Number of engines. */
  readonly engines: number;
  readonly limits: HostLimits;
  /** null: programs are not traced. */
  readonly traces: Traces | null;
}

/** Client that owns a program. */
export type ProgramOwner = CallOwner;

/** Open program: connects the executor to tokeniser and fleet, and sends events to its listeners. */
export class HostedProgram {
  readonly id: string;
  readonly owner: ProgramOwner;
  readonly program: Program;
  /** Time of its opening, on the clock of the services. */
  readonly openedMs: number;
  /** Number that is unique for the life of the process; later programs have higher ones. */
  readonly #number: number;
  readonly #services: HostServices;
  readonly #running = new Map<string, RunningCall>();
  /** Ready calls that wait for a free place. */
  readonly #waiting = new Map<string, ReadyCall>();
  readonly #heads: Heads;
  readonly #watchers = new Set<(event: ProgramEvent) => void>();
  /** Text sent so far of outputs in progress, by variable. */
  readonly #texts = new Map<string, string>();
  #valuesBytes = 0;
  #usage: Usage = { promptTokens: 0, completionTokens: 0, reasoningTokens: 0, cachedTokens: 0 };
  /** null: programs are not traced. */
  readonly #trace: WholeTrace | null;
  #callsEnded = 0;
  #callsFailed = 0;
  #isEnded = false;
  #isBeginning = false;
  /** Resolves when the last change is complete. */
  #changed: Promise<unknown> = Promise.resolve();
  /** True while calls must not begin, because their criteria are not known yet. */
  #isHeldBack = false;
  /** Reason why the program was ended early; null otherwise. */
  #endReason: string | null = null;
  /** Called on every activity. */
  onActivity: () => void = () => {};

  /** `headers`: of the request that opens it, for its trace. */
  constructor(
    id: string,
    number: number,
    owner: ProgramOwner,
    services: HostServices,
    headers: Headers | null,
  ) {
    const { traces } = services;
    this.#trace = traces === null ? null : new WholeTrace(traces, "program", headers);
    this.id = id;
    this.#number = number;
    this.owner = owner;
    this.#services = services;
    const { clock, limits, textTools, generator, fleet } = services;
    this.openedMs = clock.nowMs();
    const facts = { program: number, cacheSalt: owner.cacheSalt, adapter: owner.adapter };
    this.#heads = new Heads(fleet, services, facts, limits.headsMax);
    this.program = new Program(this.#listener, {
      clock,
      limits: limits.scheduler,
      transform: transformWith(textTools),
      expectedMs: services.estimates.expectedMs,
      nextTaskGroup: () => generator.nextTaskGroup(),
    });
  }

  get usage(): Usage {
    return this.#usage;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** True if it has a listener or running calls. */
  get isBusy(): boolean {
    return this.#watchers.size > 0 || this.#running.size > 0;
  }

  /** Text sent so far of an output in progress. */
  textSoFar(variable: string): string {
    return this.#texts.get(variable) ?? "";
  }

  /** Event of a settled variable; null if it has not settled. */
  settledEvent(variable: Variable): ProgramEvent | null {
    const { name, value, failure } = variable;
    if (value !== null) return { kind: "variable.ready", variable: name, value };
    if (failure === null) return null;
    return {
      kind: "variable.failed",
      variable: name,
      failure: this.failureOf(failure),
      path: pathOf(variable),
    };
  }

  /** Sends all further events to `watcher`, until the returned function is called. */
  watch(watcher: (event: ProgramEvent) => void): () => void {
    this.#watchers.add(watcher);
    return () => {
      this.#watchers.delete(watcher);
      this.onActivity();
    };
  }

  /** Adds variables and calls; a refusal changes nothing. */
  add(part: ProgramPart): Refusal | null {
    const refusal = this.program.add(part);
    if (refusal === null) this.#raiseRunning();
    return refusal;
  }

  /** Runs changes of clients one after the other, even if they take several turns. */
  change<Result>(make: () => Promise<Result>): Promise<Result> {
    const made = this.#changed.then(make);
    this.#changed = made.catch(() => {});
    return made;
  }

  /**
   * Adds a part of any size in slices, then awaits its variables. Used within one `change`, or for a program
   * that no client knows yet.
   */
  async addInSlices(
    part: ProgramPart,
    awaited: () => ReadonlyMap<string, Criteria> = () => new Map(),
  ): Promise<Refusal | null> {
    this.#isHeldBack = true;
    try {
      const refusal = await inSlices(this.program.adding(part));
      if (refusal !== null) return refusal;
      if (this.#isEnded) return null;
      for (const [name, criteria] of awaited()) {
        if (this.#isEnded) return null;
        const problem = this.program.want(name, criteria);
        if (problem !== null) return problem;
        await yieldIfSpent();
      }
      this.#raiseRunning();
      return null;
    } finally {
      this.#isHeldBack = false;
      this.#begin();
    }
  }

  /** Registers that a client waits for the variable. */
  want(variable: string, criteria: Criteria): Refusal | null {
    const refusal = this.program.want(variable, criteria);
    if (refusal === null) this.#raiseRunning();
    return refusal;
  }

  /** Updates running calls, which may have become more urgent. */
  #raiseRunning(): void {
    for (const call of this.#running.values()) call.raise();
  }

  /** Declares that no client asks for the variable any more. */
  release(variable: string): Refusal | null {
    return this.program.release(variable);
  }

  set(variable: string, value: Value): Refusal | null {
    return this.program.set(variable, value);
  }

  /** Ends the program: its calls stop, and unsettled variables fail. Idempotent. */
  end(reason: string): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#endReason = reason;
    this.program.cancel();
    for (const call of this.#running.values()) call.drop();
    this.#running.clear();
    this.#waiting.clear();
    this.#heads.close();
    this.#tell({ kind: "program.done", usage: this.#usage });
    const attributes = {
      "bunting.program.id": this.id,
      "bunting.program.calls": this.#callsEnded,
      "bunting.program.calls_failed": this.#callsFailed,
    };
    this.#trace?.end(attributes, this.#callsFailed > 0);
  }

  /** Replaces the message of a "cancelled" failure by the reason why the program was ended. */
  failureOf(failure: Failure): Failure {
    const { code } = failure;
    return code === "cancelled" && this.#endReason !== null
      ? { ...failure, message: this.#endReason }
      : failure;
  }

  /* ---- events of the executor ---- */

  readonly #listener: ProgramListener = {
    onReady: (calls) => {
      for (const call of calls) {
        this.#waiting.set(call.call, call);
        this.#heads.complete(call.call);
        this.#tell({ kind: "call.ready", call: call.call });
      }
      this.#begin();
    },
    onHead: (call) => {
      const head = this.program.headOf(call);
      const characters = partsOf(head).reduce((sum, { text }) => sum + text.length, 0);
      const { estimates, limits } = this.#services;
      if (estimates.readMs(characters) >= limits.headMsMin) void this.#heads.grew(call, head);
    },
    onDropped: (call) => {
      this.#heads.forget(call, true);
      this.#waiting.delete(call);
      const running = this.#running.get(call);
      if (running === undefined) return;
      running.drop();
      this.#gone(call, running.usage);
      this.#begin();
    },
    onSettled: (variable) => this.#settled(variable),
    onForgotten: (_, value) => {
      this.#valuesBytes -= bytesOf(value);
    },
  };

  /** Starts waiting calls in a microtask, because clients may set criteria right after they add calls. */
  #begin(): void {
    if (this.#isBeginning) return;
    this.#isBeginning = true;
    queueMicrotask(() => {
      this.#isBeginning = false;
      if (!this.#isHeldBack) this.#beginWaiting();
    });
  }

  #beginWaiting(): void {
    const free = this.#services.limits.runningMax - this.#running.size;
    const begun = [...this.#waiting.values().take(Math.max(0, free))];
    const taskGroups = this.#taskGroupStarts(begun);
    const running = begun.map((call) => {
      const name = call.call;
      const taskGroup = taskGroups.get(this.program.serviceOf(name).taskGroup) ?? null;
      this.#waiting.delete(name);
      this.program.placed(name);
      const one = new RunningCall(
        call,
        this.owner,
        this.#services,
        this.#callListener,
        taskGroup,
        this.#trace,
      );
      this.#running.set(name, one);
      return one;
    });
    void beginInTurn(running);
  }

  /**
   * Joint starts by task group, for task groups with several ready members. With several engines, the fleet places them
   * together.
   */
  #taskGroupStarts(calls: readonly ReadyCall[]): ReadonlyMap<number | null, TaskGroupStart> {
    const { engines, generator } = this.#services;
    const members = new Map<number, number>();
    for (const { call } of calls) {
      const { taskGroup } = this.program.serviceOf(call);
      if (engines > 1 && taskGroup !== null) members.set(taskGroup, (members.get(taskGroup) ?? 0) + 1);
    }
    const several = [...members].filter(([, count]) => count > 1);
    return new Map(several.map(([taskGroup, count]) => [taskGroup, new TaskGroupStart(generator, count)]));
  }

  #settled(variable: Variable): void {
    const { name, value } = variable;
    this.#texts.delete(name);
    this.#valuesBytes += bytesOf(value);
    const event = this.program.variables.get(name) === variable ? this.settledEvent(variable) : null;
    if (event !== null) this.#tell(event);
    const { valuesBytesMax } = this.#services.limits;
    if (this.#valuesBytes > valuesBytesMax) {
      this.end(`its values have ${this.#valuesBytes} bytes together, but ${valuesBytesMax} are allowed`);
    }
  }

  /* ---- events of calls ---- */

  readonly #callListener: CallListener = {
    placeOf: (call) => {
      const service = this.program.serviceOf(call);
      const ageMs = this.#services.clock.nowMs() - this.program.arrivedMs;
      return { service, program: { id: this.#number, ageMs, remainingMs: service.remainingMs } };
    },
    started: (call, { promptTokens, cachedTokens }) => {
      const warmed = this.#heads.warmedOf(call);
      this.#heads.forget(call, false);
      this.program.started(call, {
        prompt: promptTokens,
        found: cachedTokens,
        ...(warmed > 0 ? { warmed } : {}),
      });
      this.#tell({ kind: "call.started", call });
    },
    drew: (call, index, { variable, transforms }, text) => {
      this.program.drewFirst(call);
      // Only a client's variable without transforms is streamed while it is generated.
      const { outputs } = this.program.nodes.get(call)!;
      if (transforms.length > 0 || this.program.variables.get(variable) !== outputs[index]) return;
      this.#texts.set(variable, this.textSoFar(variable) + text);
      this.#tell({ kind: "variable.delta", variable, text });
    },
    wrote: (call, index, text) => this.program.wrote(call, index, text),
    ended: (call, usage) => {
      this.#callsEnded += 1;
      this.#gone(call, usage);
      const { promptTokens, cachedTokens, completionTokens } = usage;
      const { spec } = this.program.nodes.get(call)!;
      if (spec.kind === "call") this.#services.estimates.ended(spec, completionTokens);
      this.program.ended(call, { prompt: promptTokens, found: cachedTokens, output: completionTokens });
      this.#tell({ kind: "call.ended", call });
      this.#begin();
    },
    failed: (call, code, message, usage) => {
      this.#callsFailed += 1;
      this.#gone(call, usage);
      this.#tell({ kind: "call.failed", call, failure: { code, message, origin: call } });
      this.program.failed(call, code, message);
      this.#begin();
    },
  };

  #gone(call: string, usage: Usage): void {
    this.#running.delete(call);
    this.#heads.forget(call, false);
    this.#usage = {
      promptTokens: this.#usage.promptTokens + usage.promptTokens,
      completionTokens: this.#usage.completionTokens + usage.completionTokens,
      reasoningTokens: this.#usage.reasoningTokens + usage.reasoningTokens,
      cachedTokens: this.#usage.cachedTokens + usage.cachedTokens,
    };
    this.onActivity();
  }

  #tell(event: ProgramEvent): void {
    for (const watcher of [...this.#watchers]) watcher(event);
  }
}

/** Time limit of tokenising prompts before the event loop runs other work. */
const BEGINNING_MS = 4;

/** Begins calls in turns, so that an engine starts the first ones while others are tokenised. */
async function beginInTurn(calls: readonly RunningCall[]): Promise<void> {
  let sinceMs = performance.now();
  for (const call of calls) {
    const turn = new Promise((resolve) => setImmediate(resolve));
    await Promise.race([call.begin(), turn]); // a long prompt is tokenised on another thread
    if (performance.now() - sinceMs < BEGINNING_MS) continue;
    await turn;
    sinceMs = performance.now();
  }
}

function bytesOf(value: Value | null): number {
  if (value === null) return 0;
  return typeof value === "string"
    ? byteLength(value)
    : value.reduce((sum, item) => sum + byteLength(item), 0);
}
