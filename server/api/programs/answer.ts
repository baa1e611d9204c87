/** POST /v1/programs: a whole graph in, what is awaited out, as one body or as a stream of events. */
import type { Criteria } from "../../../scheduler/program/spec.ts";
import { type ApiError, badRequest, errorBody } from "../../http/errors.ts";
import { ResponseStream, sseFraming } from "../../http/stream.ts";
import type { ProgramEvent } from "../../program/events.ts";
import type { HostedProgram } from "../../program/hosted.ts";
import type { Programs } from "../../program/programs.ts";
import type { Exchange } from "../respond.ts";
import type { ProgramRequest } from "./schema.ts";
import { eventText, explainJson, refusalError, usageJson, variableJson } from "./wire.ts";

const latency: Criteria = Object.freeze({ objective: "latency", ttftMs: null, tbtMs: null });

export async function answerProgram(
  exchange: Exchange,
  key: string,
  programs: Programs,
  request: ProgramRequest,
): Promise<Response> {
  const { tenant, services, signal } = exchange;
  const hosted = programs.open({ key, tenant, cacheSalt: request.cacheSalt });
  const run = new Run(hosted, programs, request);
  const untrack = services.lifecycle.track({ cut: (error) => run.cut(error) });
  void run.done.finally(untrack).catch(() => {});
  const leave = (): void => {
    if (request.cancelOnDisconnect) run.close("the client went away");
  };
  if (request.stream) return streamed(exchange, run, request, leave);
  const onGone = (): void => leave();
  signal.addEventListener("abort", onGone, { once: true });
  run.begin(() => {});
  await run.done;
  signal.removeEventListener("abort", onGone);
  return Response.json(run.json());
}

function streamed(exchange: Exchange, run: Run, request: ProgramRequest, leave: () => void): Response {
  let isGone = false;
  // A program goes on at its own pace: what a slow reader leaves is bounded by the stream.
  const stream = new ResponseStream(exchange.signal, sseFraming, exchange.limits, {
    pause: () => {},
    resume: () => {},
    abort: () => {
      isGone = true;
      stream.end();
      leave();
    },
  });
  run.done.then(
    () => {
      const more = request.explain ? { explain: run.explain() } : {};
      stream.write(
        eventText(
          { kind: "program.done" },
          { id: run.hosted.id, usage: usageJson(run.hosted.usage), ...more },
        ),
      );
      stream.end();
    },
    (error: ApiError) => {
      stream.write(`event: error\ndata: ${JSON.stringify(errorBody(error))}\n\n`);
      stream.end();
    },
  );
  stream.write(eventText({ kind: "program.started" }, { id: run.hosted.id }));
  run.begin((event) => {
    if (!isGone && run.isNews(event)) stream.write(eventText(event));
  });
  return stream.response();
}

/** A program from its request to the last of its awaited values. */
class Run {
  readonly hosted: HostedProgram;
  readonly done: Promise<void>;
  readonly #programs: Programs;
  readonly #request: ProgramRequest;
  readonly #settle = Promise.withResolvers<void>();
  readonly #left = new Set<string>();
  #awaited: readonly string[] = [];
  #unwatch: () => void = () => {};

  constructor(hosted: HostedProgram, programs: Programs, request: ProgramRequest) {
    this.hosted = hosted;
    this.done = this.#settle.promise;
    this.#programs = programs;
    this.#request = request;
  }

  /** Throws ApiError when the graph is not taken; then nothing of it is left. */
  begin(onEvent: (event: ProgramEvent) => void): void {
    this.#unwatch = this.hosted.watch((event) => {
      onEvent(event);
      if (event.kind === "variable.ready" || event.kind === "variable.failed") this.#settled(event.variable);
      if (event.kind === "program.done") this.#finish();
    });
    try {
      const refusal = this.hosted.add(this.#request.part);
      if (refusal !== null) throw refusalError(refusal);
      const awaited = this.#request.awaited ?? this.#sinks();
      this.#awaited = [...awaited.keys()];
      for (const [name, criteria] of awaited) {
        const problem = this.hosted.want(name, criteria);
        if (problem !== null) throw refusalError(problem);
        const { state } = this.hosted.program.variables.get(name)!;
        if (state !== "ready" && state !== "failed") this.#left.add(name);
      }
    } catch (error) {
      this.#settle.resolve();
      this.close("it was refused");
      throw error;
    }
    if (this.#left.size === 0) this.#finish();
  }

  /** The server ends: its client is told why. */
  cut(error: ApiError): void {
    this.#settle.reject(error);
    this.close(error.message);
  }

  close(reason: string): void {
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

  /** Not what the client knows itself, and not the end, which is told by `done`. */
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
    // The last value may have come from within a call that is not counted yet.
    queueMicrotask(() => {
      if (this.#request.cancelOnDisconnect) this.close("everything that was awaited is there");
      else {
        this.#unwatch();
        this.#settle.resolve();
      }
    });
  }

  /** What calls write and nothing reads. */
  #sinks(): ReadonlyMap<string, Criteria> {
    const sinks = [...this.hosted.program.variables.values()].filter(
      ({ producer, readers }) => producer !== null && readers.length === 0,
    );
    if (sinks.length === 0)
      throw badRequest("the program has no calls, so there is nothing to wait for", "calls");
    return new Map(sinks.map(({ name }) => [name, latency]));
  }
}
