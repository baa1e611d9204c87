import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { Objective } from "../core.ts";
import { Blocks } from "./blocks.ts";
import { charsOf, type Refusal, refusalInSteps, valueRefusal } from "./check.ts";
import { type ExpectedMs, measurePaths } from "./critical-path.ts";
import { type Copied, type Failure, lookUp, Node, type NodeTokens, type Scope, Variable } from "./graph.ts";
import { Objectives } from "./objectives.ts";
import { type RenderedPart, render, renderHead, type ValuePart } from "./rendering.ts";
import {
  type Criteria,
  type Limits,
  type NodeSpec,
  outputsOf,
  type ProgramPart,
  type Prompt,
  type PromptPart,
  partsOf,
  programLimits,
  type TextPart,
  type Transform,
  type Value,
} from "./spec.ts";

/** Ready call: all inputs are known, so the host runs it now. */
export interface ReadyCall {
  /** Name of the call, unique in the program. */
  readonly call: string;
  readonly prompt: Prompt<RenderedPart>;
  readonly service: CallService;
}

/** Scheduling parameters of a call, as known now. */
export interface CallService {
  readonly objective: Objective;
  /** Task group of the call; null: none. */
  readonly taskGroup: number | null;
  readonly ttftMs: number | null;
  readonly tbtMs: number | null;
  /** Expected milliseconds from the call's beginning to the end of the longest path from it. */
  readonly remainingMs: number;
}

/**
 * Listener that runs a program's calls and receives its values. It may call the program from within a
 * callback.
 */
export interface ProgramListener {
  /** Receives all calls that became ready in one event, in graph order. Each call comes once. */
  onReady(calls: readonly ReadyCall[]): void;
  /** Called when more of a waiting call's prompt is known (`headOf`): the host may prefetch it. */
  onHead(call: string): void;
  /** Called when a call announced by `onReady` or `onHead` was dropped. */
  onDropped(call: string): void;
  /** Called when a variable is ready or failed. */
  onSettled(variable: Variable): void;
  /** Called when a variable has no readers left: the program drops its value and frees its name. */
  onForgotten?(variable: Variable, value: Value | null): void;
}

/** Options of a program. */
export interface ProgramOptions {
  readonly clock: Pick<Clock, "nowMs">;
  readonly limits: Limits;
  readonly transform: Transform;
  /** Expected times of calls. */
  readonly expectedMs: ExpectedMs;
  /** Returns the number of a new task group, unique for the life of the process. */
  readonly nextTaskGroup: () => number;
}

/** Token counts of a call, as far as its host knows them. */
export type CallTokens = Partial<NodeTokens>;

const CANCELLED = "cancelled";
const cancelled: Refusal = { code: "ended", message: "The program was cancelled." };
/** Calls announced per event when a part is added in steps. */
const ANNOUNCED_MAX = 128;

/** Pending notifications of the listener. */
interface Notifications {
  readonly settled: Variable[];
  /** Dropped calls. */
  readonly dropped: string[];
  /** Calls to run. */
  readonly begun: { readonly node: Node; readonly prompt: Prompt<RenderedPart> }[];
  /** Waiting calls whose heads may have grown. */
  readonly grown: Node[];
}

const noNotifications = (): Notifications => ({ settled: [], dropped: [], begun: [], grown: [] });

/**
 * Executor of a program: events in, ready calls out.
 *
 * Events are the client's `add`, `want`, `set` and `cancel`, and the host's reports on calls. Each event
 * follows the edges that it settles, each edge once. The program then notifies the listener in order, once
 * the graph is consistent. It never polls, and does nothing between events.
 *
 * A node fails only by itself or through a value that it reads. Its outputs fail with it, and nothing else
 * does.
 */
export class Program {
  readonly #options: ProgramOptions;
  readonly #listener: ProgramListener;
  readonly #scope: Scope = { names: new Map(), outer: null };
  /** Nodes by name, copies of bodies included. */
  readonly #nodes = new Map<string, Node>();
  readonly #objectives: Objectives;
  readonly #blocks: Blocks;
  readonly #awaited = new Map<Variable, Criteria>();
  /** Nodes that have not ended. */
  readonly #unfinished = new Set<Node>();
  /** Nodes among them whose remaining time (critical-path.ts) is not computed yet. */
  #unmeasured: Node[] = [];
  /**
   * Calls that the listener knows and that have not ended; and for waiting ones, the prompt parts it knows.
   */
  readonly #known = new Set<Node>();
  readonly #headParts = new Map<Node, number>();
  /** Work queue: settled variables whose readers are not notified yet. */
  #settled: Variable[] = [];
  /** Work queue: nodes whose inputs are all ready. */
  #ready: Node[] = [];
  #pending = noNotifications();
  /** Released variables that may have lost their last reader or their node. */
  readonly #unread = new Set<Variable>();
  /** Number of nodes that clients have added. */
  #added = 0;
  #isRunning = false;
  /** True while a part is being added in steps. */
  #isAdding = false;
  /** Reports on calls that arrived while a part was being added. */
  readonly #deferred: (() => void)[] = [];
  #isCancelled = false;
  readonly arrivedMs: number;

  constructor(
    listener: ProgramListener,
    options: Partial<ProgramOptions> & Pick<ProgramOptions, "clock" | "nextTaskGroup">,
  ) {
    this.#listener = listener;
    this.#options = {
      limits: programLimits,
      expectedMs: () => 1,
      transform: () => ({ kind: "failed", message: "There are no transforms here." }),
      ...options,
    };
    this.#objectives = new Objectives(options.nextTaskGroup);
    this.#blocks = new Blocks({
      limits: this.#options.limits,
      transform: this.#options.transform,
      nodeCount: () => this.#nodes.size,
      open: (spec, scope, prefix, copied) => this.#open(spec, scope, prefix, copied),
      copied: (block, result, width) => this.#objectives.copied(block, result, width),
      end: (block, value) => this.#endBlock(block, value),
      fail: (node, failure, by) => this.#fail(node, failure, by),
      nowMs: () => this.#nowMs(),
    });
    this.arrivedMs = options.clock.nowMs();
  }

  /** Variables of the program's own scope, by name. */
  get variables(): ReadonlyMap<string, Variable> {
    return this.#scope.names;
  }

  /** Nodes by name, copies of bodies included. */
  get nodes(): ReadonlyMap<string, Node> {
    return this.#nodes;
  }

  /** Number of nodes added so far, forgotten ones included; usable to number the next one. */
  get added(): number {
    return this.#added;
  }

  /** True if every node has ended. */
  get isDone(): boolean {
    return this.#unfinished.size === 0;
  }

  /* ---- the client ---- */

  /**
   * Adds variables and nodes, with criteria for the ones that the client awaits. Returns a refusal and
   * changes nothing if the part is invalid. Ready calls run at once.
   */
  add(part: ProgramPart, wants: Readonly<Record<string, Criteria>> = {}): Refusal | null {
    const adding = this.#add(part, wants, Number.POSITIVE_INFINITY);
    for (;;) {
      const { done, value } = adding.next();
      if (done === true) return value;
    }
  }

  /**
   * Same as `add`, in steps, for a part of many nodes. Between steps the client may only cancel, and reports
   * on calls are deferred to the end. Announces ready calls in groups.
   */
  *adding(
    part: ProgramPart,
    wants: Readonly<Record<string, Criteria>> = {},
  ): Generator<void, Refusal | null> {
    assert(!this.#isAdding, "one part is added after the other");
    this.#isAdding = true;
    try {
      return yield* this.#add(part, wants, ANNOUNCED_MAX);
    } finally {
      this.#isAdding = false;
      for (const hear of this.#deferred.splice(0)) hear();
    }
  }

  /** `atOnce`: calls announced per event. */
  *#add(
    part: ProgramPart,
    wants: Readonly<Record<string, Criteria>>,
    atOnce: number,
  ): Generator<void, Refusal | null> {
    const existing = { scope: this.#scope, nodes: this.#nodes, limits: this.#options.limits };
    const refusal = this.#isCancelled ? cancelled : yield* refusalInSteps(part, existing);
    if (refusal !== null || this.#isCancelled) return refusal ?? cancelled;
    const written = new Set(part.nodes.flatMap(outputsOf));
    for (const { name } of part.variables) written.add(name);
    const unknown = Object.keys(wants).find((name) => !written.has(name) && !this.#scope.names.has(name));
    if (unknown !== undefined) return unknownName(unknown);
    for (const { name, value } of part.variables) {
      const variable = this.#declare(name);
      if (value !== null) this.#settle(variable, value, null);
    }
    // Nodes of one part may read outputs of later ones.
    for (const node of part.nodes) {
      for (const name of outputsOf(node)) if (!this.#scope.names.has(name)) this.#declare(name);
    }
    this.#added += part.nodes.length;
    let leadsOn = false;
    for (const node of part.nodes) {
      const { outputs } = this.#open(node, this.#scope, "", null);
      leadsOn ||= outputs.some((variable) => variable.readers.size > 0 || this.#awaited.has(variable));
      yield;
      if (this.#isCancelled) return cancelled;
    }
    if (leadsOn && this.#awaited.size > 0) this.#deduce();
    for (const [name, criteria] of Object.entries(wants)) this.want(name, criteria);
    const [ready, grown] = [this.#ready.splice(0), this.#pending.grown.splice(0)];
    do {
      this.#ready.push(...ready.splice(0, atOnce));
      this.#pending.grown.push(...grown.splice(0, atOnce));
      this.#run();
      yield;
    } while (ready.length + grown.length > 0 && !this.#isCancelled);
    return null;
  }

  /** Adds a criterion for a variable; several accumulate. Refuses unknown names. */
  want(name: string, criteria: Criteria): Refusal | null {
    const variable = this.#scope.names.get(name);
    if (variable === undefined) return unknownName(name);
    this.#awaited.set(variable, criteria);
    this.#objectives.want(variable, criteria);
    this.#blocks.deduceAgain();
    return null;
  }

  /** Sets a variable that no node writes and that has no value yet. */
  set(name: string, value: Value): Refusal | null {
    const variable = this.#scope.names.get(name);
    if (variable === undefined) return unknownName(name);
    if (variable.state !== "empty") {
      const why =
        variable.state === "pending" ? `${variable.producer!.name} writes it` : `it is ${variable.state}`;
      return { code: "notEmpty", message: `The variable ${name} cannot be set: ${why}.` };
    }
    const refusal = valueRefusal(name, value, this.#options.limits);
    if (refusal !== null) return refusal;
    this.#settle(variable, value, null);
    this.#run();
    return null;
  }

  /**
   * Releases a variable: the client requests it no more and adds no readers. The program drops the value once
   * nothing reads it. It forgets an ended node with the last of its outputs, so a program may run for ever.
   */
  release(name: string): Refusal | null {
    const variable = this.#scope.names.get(name);
    if (variable === undefined) return unknownName(name);
    variable.isReleased = true;
    this.#awaited.delete(variable);
    this.#objectives.forget(variable);
    this.#unread.add(variable);
    this.#run();
    return null;
  }

  /** Cancels the program: nodes that have not ended fail, and unset variables fail. */
  cancel(): void {
    this.#isCancelled = true;
    const failure = { code: CANCELLED, message: cancelled.message };
    for (const node of [...this.#unfinished]) this.#fail(node, { ...failure, origin: node.name }, null);
    for (const variable of this.#scope.names.values()) {
      if (variable.state === "empty") this.#settle(variable, null, { ...failure, origin: variable.name });
    }
    this.#run();
  }

  /* ---- reports of the host on calls ---- */

  /** Reports that the call is placed on an engine. */
  placed(call: string): void {
    const node = this.#runningCall(call);
    if (node !== null) node.times.placedMs ??= this.#nowMs();
  }

  /** Reports that the engine started to compute the call. */
  started(call: string, tokens: CallTokens = {}): void {
    const node = this.#runningCall(call);
    if (node === null) return;
    node.times.startedMs ??= this.#nowMs();
    Object.assign(node.tokens, tokens);
  }

  /** Reports the first token of the call. */
  drewFirst(call: string): void {
    const node = this.#runningCall(call);
    if (node !== null) node.times.firstMs ??= this.#nowMs();
  }

  /** Reports that output `index` of the call, in prompt order, is complete. */
  wrote(call: string, index: number, text: string): void {
    if (this.#defers(() => this.wrote(call, index, text))) return;
    const node = this.#runningCall(call);
    if (node === null) return;
    this.#write(node, index, text);
    this.#run();
  }

  /** Reports the successful end of the call, after all its outputs. */
  ended(call: string, tokens: CallTokens = {}): void {
    if (this.#defers(() => this.ended(call, tokens))) return;
    const node = this.#runningCall(call);
    if (node === null) return;
    assert(
      node.outputs.every(({ state }) => state !== "pending"),
      "a call that succeeds has written its outputs",
    );
    Object.assign(node.tokens, tokens);
    this.#end(node);
    this.#run();
  }

  /** Reports a failure of the call; its unwritten outputs fail with it. */
  failed(call: string, code: string, message: string): void {
    if (this.#defers(() => this.failed(call, code, message))) return;
    const node = this.#runningCall(call);
    if (node === null) return;
    this.#known.delete(node); // the host reported it, so it needs no notice
    this.#fail(node, { code, message, origin: call }, null);
    this.#run();
  }

  /** Defers a report while a part is being added in steps; true if it did. */
  #defers(hear: () => void): boolean {
    if (this.#isAdding) this.#deferred.push(hear);
    return this.#isAdding;
  }

  /** Returns the beginning of a waiting call's prompt, as far as it is known. */
  headOf(call: string): Prompt<TextPart | ValuePart> {
    const node = this.#nodes.get(call);
    assert(node !== undefined && node.spec.kind === "call", "the program has the call");
    return renderHead(node.spec, (name) => lookUp(node.scope, name)!, this.#options.transform);
  }

  /** Returns the current scheduling parameters of a call. */
  serviceOf(call: string): CallService {
    const node = this.#nodes.get(call);
    assert(node !== undefined, "the program has the call");
    this.#measure();
    const { objective, ttftMs, tbtMs, remainingMs } = node;
    return { objective, taskGroup: this.#objectives.taskGroupOf(node), ttftMs, tbtMs, remainingMs };
  }

  /* ---- the graph ---- */

  #declare(name: string): Variable {
    const variable = new Variable(name);
    this.#scope.names.set(name, variable);
    return variable;
  }

  /** Makes a node; all its variables are in its scope. */
  #open(spec: NodeSpec, scope: Scope, prefix: string, copied: Copied | null): Node {
    const find = (name: string): Variable => {
      const variable = lookUp(scope, name);
      assert(variable !== null, "names were checked");
      return variable;
    };
    const node = new Node(prefix + spec.name, spec, scope, copied, { read: find, write: find });
    this.#nodes.set(node.name, node);
    this.#unfinished.add(node);
    this.#unmeasured.push(node);
    const failed = node.inputs.find(({ state, isKnown }) => state === "failed" && isKnown);
    if (failed !== undefined) this.#fail(node, failed.failure!, failed);
    else if (node.missing === 0) this.#ready.push(node);
    else if (spec.kind === "call") this.#pending.grown.push(node);
    return node;
  }

  #deduce(): void {
    for (const [variable, criteria] of this.#awaited) this.#objectives.want(variable, criteria);
    this.#blocks.deduceAgain();
  }

  /**
   * Measures the paths from new nodes, or from all unended nodes if new ones lengthened the paths before
   * them.
   */
  #measure(): void {
    if (this.#unmeasured.length === 0) return;
    const isNew = new Set(this.#unmeasured);
    this.#unmeasured = [];
    const makesLonger = [...isNew].some(({ reads }) =>
      reads.some(({ producer }) => producer !== null && !producer.isEnded && !isNew.has(producer)),
    );
    const from = makesLonger ? this.#unfinished : isNew;
    measurePaths(from, (node) => from.has(node), this.#options.expectedMs);
  }

  /** Forgets variables without readers, once the listener knows everything. */
  #forget(): void {
    for (const variable of this.#unread) {
      if (this.#isUnread(variable)) {
        const { name, value } = variable;
        this.#scope.names.delete(name);
        variable.value = null;
        this.#listener.onForgotten?.(variable, value);
      }
      const { producer } = variable;
      const isKept = (output: Variable): boolean => this.#scope.names.get(output.name) === output;
      if (producer?.block !== null || producer.outputs.some(isKept)) continue;
      if (isOver(producer)) this.#forgetNode(producer);
    }
    this.#unread.clear();
  }

  #isUnread(variable: Variable): boolean {
    const { name, state, isReleased, isKnown, readers } = variable;
    const isOver = state === "empty" || isKnown;
    return (
      isReleased &&
      isOver &&
      this.#scope.names.get(name) === variable &&
      [...readers].every(({ isEnded }) => isEnded)
    );
  }

  /** Forgets a node and all its copies. */
  #forgetNode(node: Node): void {
    if (!this.#nodes.delete(node.name)) return;
    this.#objectives.forget(node);
    for (const variable of node.reads) variable.readers.delete(node);
    for (const copy of node.copies) this.#forgetNode(copy);
  }

  /* ---- events ---- */

  /**
   * Processes all changes to the end and notifies the listener. Events from within the listener join the
   * outermost run.
   */
  #run(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      do this.#follow();
      while (this.#tell());
      this.#forget();
    } finally {
      this.#isRunning = false;
    }
  }

  #follow(): void {
    while (this.#settled.length + this.#ready.length > 0) {
      const [settled, ready] = [this.#settled, this.#ready];
      this.#settled = [];
      this.#ready = [];
      for (const variable of settled) this.#inform(variable);
      for (const node of ready) this.#begin(node);
    }
  }

  /** Informs the readers of a variable; nodes that begin to read it meanwhile see that it is known. */
  #inform(variable: Variable): void {
    variable.isKnown = true;
    for (const reader of [...variable.readers]) this.#notifyReader(reader, variable);
    if (variable.isReleased) this.#unread.add(variable);
  }

  /** Notifies the listener; false if there was no news. */
  #tell(): boolean {
    const { settled, dropped, begun, grown } = this.#pending;
    this.#pending = noNotifications();
    for (const variable of settled) this.#listener.onSettled(variable);
    for (const call of dropped) this.#listener.onDropped(call);
    const ready = begun.filter(({ node }) => node.state === "running");
    for (const { node } of ready) this.#known.add(node);
    const calls = ready.map(({ node, prompt }) => ({
      call: node.name,
      prompt,
      service: this.serviceOf(node.name),
    }));
    if (calls.length > 0) this.#listener.onReady(calls);
    for (const node of new Set(grown)) this.#announceHead(node);
    return settled.length + dropped.length + begun.length + grown.length > 0;
  }

  /** Announces the head of a waiting call if it may have grown. Looks at each prompt part once. */
  #announceHead(node: Node): void {
    if (node.state !== "waiting") return;
    const parts = promptPartsOf(node);
    const before = this.#headParts.get(node) ?? 0;
    let known = before;
    for (let part = parts[known]!; part.kind !== "output"; part = parts[known]!) {
      if (part.kind === "input" && lookUp(node.scope, part.variable)!.state !== "ready") break;
      known += 1;
    }
    if (known === before) return;
    this.#headParts.set(node, known);
    this.#known.add(node);
    this.#listener.onHead(node.name);
  }

  /** Informs a reader that a variable is ready or failed. */
  #notifyReader(node: Node, variable: Variable): void {
    if (node.state === "running") this.#blocks.settled(node, variable);
    else if (node.state === "waiting" && node.inputs.includes(variable)) {
      if (variable.state === "failed") this.#fail(node, variable.failure!, variable);
      else {
        node.missing -= 1;
        if (node.missing === 0) this.#ready.push(node);
        else if (node.spec.kind === "call") this.#pending.grown.push(node);
      }
    }
  }

  /** Begins a node whose inputs are all ready. */
  #begin(node: Node): void {
    if (node.state !== "waiting") return;
    node.state = "running";
    node.lastInput = latestOf(node.cause === null ? node.inputs : [...node.inputs, node.cause]);
    node.times.readyMs = this.#nowMs();
    this.#headParts.delete(node);
    if (node.spec.kind !== "call") {
      this.#blocks.begin(node);
      return;
    }
    const rendered = render(node.spec, (name) => lookUp(node.scope, name)!, this.#options.transform);
    if (rendered.kind === "prompt") this.#pending.begun.push({ node, prompt: rendered.prompt });
    else this.#fail(node, { code: "transform", message: rendered.message, origin: node.name }, null);
  }

  #write(node: Node, index: number, text: string): void {
    const part = promptPartsOf(node).filter((part) => part.kind === "output")[index];
    const variable = node.outputs[index];
    assert(part !== undefined && variable !== undefined, "the call has that output");
    assert(variable.state === "pending", "an output is written once");
    const { transform, limits } = this.#options;
    const origin = node.name;
    const result =
      part.transforms.length === 0
        ? { kind: "value" as const, value: text }
        : transform(text, part.transforms);
    if (result.kind === "failed")
      this.#settle(variable, null, { code: "transform", message: result.message, origin });
    else if (charsOf(result.value) > limits.valueCharsMax) {
      const message = `${variable.name} has ${charsOf(result.value)} characters; a value has at most ${limits.valueCharsMax}.`;
      this.#settle(variable, null, { code: "limit", message, origin });
    } else this.#settle(variable, result.value, null);
  }

  #endBlock(block: Node, value: Value): void {
    const { valueCharsMax } = this.#options.limits;
    const chars = charsOf(value);
    if (chars > valueCharsMax) {
      const message = `The value of ${block.name} has ${chars} characters; at most ${valueCharsMax} are taken.`;
      this.#fail(block, { code: "limit", message, origin: block.name }, null);
      return;
    }
    this.#settle(block.outputs[0]!, value, null);
    this.#end(block);
  }

  #end(node: Node): void {
    node.state = "done";
    this.#finish(node);
  }

  /** Fails a node and its unwritten outputs. `by`: the variable that caused it; null: the node itself. */
  #fail(node: Node, failure: Failure, by: Variable | null): void {
    if (node.isEnded) return;
    node.state = "failed";
    node.failure = failure;
    node.failedBy = by;
    this.#finish(node);
    for (const output of node.outputs) if (output.state === "pending") this.#settle(output, null, failure);
    this.#blocks.drop(node);
  }

  #finish(node: Node): void {
    node.times.endedMs = this.#nowMs();
    this.#unfinished.delete(node);
    this.#headParts.delete(node);
    if (this.#known.delete(node) && node.state === "failed") this.#pending.dropped.push(node.name);
    for (let at: Node | null = node; at !== null; at = at.block) {
      for (const variable of [...at.reads, ...at.outputs])
        if (variable.isReleased) this.#unread.add(variable);
    }
  }

  #settle(variable: Variable, value: Value | null, failure: Failure | null): void {
    assert(variable.state === "empty" || variable.state === "pending", "a variable is set once");
    variable.state = failure === null ? "ready" : "failed";
    variable.value = value;
    variable.failure = failure;
    variable.settledMs = this.#nowMs();
    this.#settled.push(variable);
    this.#pending.settled.push(variable);
  }

  /** Returns the node of a running call. Null: it has ended, and the report comes too late. */
  #runningCall(call: string): Node | null {
    const node = this.#nodes.get(call);
    assert(node !== undefined && node.spec.kind === "call", "the program has the call");
    assert(node.state !== "waiting", "a call runs once its inputs are ready");
    return node.state === "running" ? node : null;
  }

  #nowMs(): number {
    return this.#options.clock.nowMs();
  }
}

/** True if a node has ended with all its copies. */
function isOver({ isEnded, copies }: Node): boolean {
  return isEnded && copies.every(isOver);
}

function unknownName(name: string): Refusal {
  return { code: "unknownName", message: `There is no variable ${name}.` };
}

function promptPartsOf({ spec }: Node): readonly PromptPart[] {
  assert(spec.kind === "call", "calls have prompts");
  return partsOf(spec.prompt);
}

/** Returns the variable that was settled last; null for an empty list. */
function latestOf(variables: readonly Variable[]): Variable | null {
  let latest: Variable | null = null;
  for (const variable of variables) {
    if (latest === null || variable.settledMs > latest.settledMs) latest = variable;
  }
  return latest;
}
