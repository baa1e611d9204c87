import type { Criteria } from "../../../scheduler/program/spec.ts";
import { type ApiError, badRequest } from "../../http/errors.ts";
import type { ProgramEvent } from "../../program/events.ts";
import type { HostedProgram } from "../../program/hosted.ts";
import type { Programs } from "../../program/programs.ts";
import type { Exchange } from "../respond.ts";
import type { ProgramRequest } from "./schema.ts";
import { explainJson, refusalError, usageJson, variableJson } from "./wire.ts";

const latency: Criteria = Object.freeze({ objective: "latency", ttftMs: null, tbtMs: null });

/** Lifetime of a program from its request to the last awaited value. */
export class Run {
  readonly hosted: HostedProgram;
  /** Resolves when all awaited values have settled or the program has ended. Rejects if the server stops. */
  readonly done: Promise<void>;
  readonly #programs: Programs;
  readonly #request: ProgramRequest;
  readonly #settle = Promise.withResolvers<void>();
  readonly #left = new Set<string>();
  #awaited: readonly string[] = [];
  #unwatch: () => void = () => {};

  /** Opens a program for one HTTP request, which counts as in flight until it is done. */
  constructor({ tenant, services, entry }: Exchange, programs: Programs, request: ProgramRequest) {
    const { adapter } = request;
    const owner = { tenant, cacheSalt: services.cacheSaltFor(tenant, request.cacheSalt), adapter };
    this.hosted = programs.open(owner, entry?.traceHeaders);
    this.done = this.#settle.promise;
    this.#programs = programs;
    this.#request = request;
    const untrack = services.lifecycle.track({ cut: (error) => this.#cut(error) });
    void this.done.finally(untrack).catch(() => {});
  }

  /**
   * Resolves when the graph is added. Rejects with ApiError and removes the program if the graph is refused.
   */
  async begin(onEvent: (event: ProgramEvent) => void): Promise<void> {
    this.#unwatch = this.hosted.watch((event) => {
      onEvent(event);
      if (event.kind === "variable.ready" || event.kind === "variable.failed") this.#settled(event.variable);
      if (event.kind === "program.done") this.#finish();
    });
    try {
      const refusal = await this.hosted.addInSlices(this.#request.part, () => {
        const awaited = this.#request.awaited ?? this.#sinks();
        this.#awaited = [...awaited.keys()];
        return awaited;
      });
      if (this.hosted.isEnded) return; // the client is gone or the server ends: `done` reports it
      if (refusal !== null) throw refusalError(refusal);
      for (const name of this.#awaited) {
        const { state } = this.hosted.program.variables.get(name)!;
        if (state !== "ready" && state !== "failed") this.#left.add(name);
      }
    } catch (error) {
      this.#settle.resolve();
      this.#close("it was refused");
      throw error;
    }
    if (this.#left.size === 0) this.#finish();
  }

  /** Ends the program because the server stops. `error`: the reason for the client. */
  #cut(error: ApiError): void {
    this.#settle.reject(error);
    this.#close(error.message);
  }

  /** Handles the client's disconnect: ends the program, unless the request set `cancel_on_disconnect` to false. */
  leave(): void {
    if (this.#request.cancelOnDisconnect) this.#close("the client went away");
  }

  #close(reason: string): void {
    this.#unwatch();
    this.#settle.resolve();
    this.#programs.close(this.hosted, reason);
  }

  json(): object {
    const { id, usage, program } = this.hosted;
    return {
      id,
      object: "program",
      variables: Object.fromEntries(
        this.#awaited.map((name) => [name, variableJson(this.hosted, program.variables.get(name)!)]),
      ),
      usage: usageJson(usage),
      ...(this.#request.explain ? { explain: this.explain() } : {}),
    };
  }

  /** False for values that the client itself set, and for the program's end, which `done` reports. */
  isNews(event: ProgramEvent): boolean {
    if (event.kind === "variable.ready") {
      return this.hosted.program.variables.get(event.variable)!.producer !== null;
    }
    return event.kind !== "program.done";
  }

  explain(): object {
    return explainJson(this.hosted, this.#awaited);
  }

  #settled(variable: string): void {
    if (this.#left.delete(variable) && this.#left.size === 0) this.#finish();
  }

  #finish(): void {
    // The last value may come from within a call that is not counted yet.
    queueMicrotask(() => {
      if (this.#request.cancelOnDisconnect) this.#close("everything that was awaited is there");
      else {
        this.#unwatch();
        this.#settle.resolve();
      }
    });
  }

  /** Variables that calls write and no call reads. Throws 400 if there are none. */
  #sinks(): ReadonlyMap<string, Criteria> {
    const sinks = [...this.hosted.program.variables.values()].filter(
      ({ producer, readers }) => producer !== null && readers.size === 0,
    );
    if (sinks.length === 0)
      throw badRequest("the program has no calls, so there is nothing to wait for", "calls");
    return new Map(sinks.map(({ name }) => [name, latency]));
  }
}
