/** GET /state/stream: the server's state, pushed while somebody looks. */
import { ApiError, badRequest, quote } from "./errors.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { Call } from "./route.ts";
import type { ServerFacts } from "./state.ts";
import { type StateEvent, type StateView, stateViews } from "./state-events.ts";
import { ResponseStream, type StreamLimits, sseEvent, sseFraming } from "./stream.ts";

/** Streams open at once, of all clients together. */
const STREAMS_MAX = 64;
/** Milliseconds between two looks at the state. */
const LOOK_MS = 500;

export interface StateSources {
  readonly facts: () => ServerFacts;
  readonly lifecycle: Pick<Lifecycle, "refusal">;
  readonly limits: StreamLimits;
}

/** Streams of the state. Each one has a timer, and computes nothing while its client reads too slowly. */
export class StateStreams {
  readonly #sources: StateSources;
  #open = 0;

  constructor(sources: StateSources) {
    this.#sources = sources;
  }

  open({ request, reply }: Call): Response {
    const asked = new URL(request.url).searchParams.get("view") ?? "facts";
    const view = stateViews.find((one) => one === asked);
    if (view === undefined)
      throw badRequest(`view is ${stateViews.join(" or ")}, not ${quote(asked)}`, "view");
    if (this.#open >= STREAMS_MAX) throw tooMany();
    this.#open += 1;
    const look = new Look(this.#sources, view, (event) => stream.write(sseEvent(JSON.stringify(event))));
    const stream = new ResponseStream(reply, sseFraming, this.#sources.limits, {
      pause: () => look.pause(),
      resume: () => look.resume(),
      abort: (by) => {
        look.pause();
        this.#open -= 1;
        if (by === "slowReader") stream.end();
      },
    });
    look.resume();
    return stream.response();
  }
}

/** State as one client sees it. */
class Look {
  readonly #sources: StateSources;
  readonly #write: (event: StateEvent) => void;
  #timer: ReturnType<typeof setInterval> | undefined;
  #facts = "";

  constructor(sources: StateSources, _view: StateView, write: (event: StateEvent) => void) {
    this.#sources = sources;
    this.#write = write;
  }

  resume(): void {
    this.#look();
    this.#timer = setInterval(() => this.#look(), LOOK_MS);
  }

  pause(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const { timeMs: _, ...facts } = this.#sources.facts();
    const now = { ...facts, refusal: this.#sources.lifecycle.refusal()?.message ?? null };
    const text = JSON.stringify(now);
    if (text === this.#facts) return;
    this.#facts = text;
    this.#write({ kind: "facts", facts: now });
  }
}

function tooMany(): ApiError {
  const message = `${STREAMS_MAX} clients look at the state already, and more are not allowed`;
  return new ApiError(503, "overloaded_error", message, { apiCode: "too_many_state_streams" });
}
