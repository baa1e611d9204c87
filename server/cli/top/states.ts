/** State of a server from its event stream, across as many connections as necessary. */

import { setTimeout as pause } from "node:timers/promises";
import { nextView } from "../../http/live-view.ts";
import type { StateEvent } from "../../http/state-events.ts";
import {
  apiBase,
  authorization,
  ConnectionLost,
  eventData,
  noServerAt,
  ServerError,
  serverError,
  type Target,
} from "../client.ts";
import type { TopState } from "./frame.ts";

/** Pause before the first reconnection, doubled for each further one up to the longest. */
const PAUSE_MS = 500;
const PAUSE_MAX_MS = 30_000;
/** Time without an event after which a connection counts as lost. A server sends two events a second. */
const SILENCE_MS = 10_000;
/** Transient status codes below 500, of a server or a proxy. */
const PASSING = [408, 425, 429];

/** Pause in ms before an attempt, counted from 0. */
export function pauseMsBefore(attempt: number): number {
  return Math.min(PAUSE_MAX_MS, PAUSE_MS * 2 ** attempt);
}

/**
 * Yields the state after each event, and the last state with `lost` while disconnected. Throws ServerError
 * for a permanent error, and for any error before the first state.
 */
export async function* lastingStates(target: Target, signal: AbortSignal): AsyncGenerator<TopState> {
  let last: TopState | null = null;
  let attempts = 0;
  let sinceMs: number | null = null;
  for (;;) {
    try {
      for await (const state of statesOf(target, signal)) {
        last = state;
        attempts = 0;
        sinceMs = null;
        yield state;
      }
    } catch (error) {
      if (last === null || signal.aborted || !passes(error)) throw error;
      const waitMs = pauseMsBefore(attempts);
      sinceMs ??= Date.now();
      attempts += 1;
      yield { ...last, lost: { sinceMs, nextMs: Date.now() + waitMs, reason: error.message } };
      await pause(waitMs, undefined, { signal });
    }
  }
}

/** Yields the state after each event of one connection. Throws ServerError. */
export async function* statesOf(target: Target, signal: AbortSignal): AsyncGenerator<TopState> {
  const silence = new AbortController();
  const timer = setTimeout(() => silence.abort(), SILENCE_MS);
  let state: TopState = { facts: null, view: null, requests: [], lost: null };
  try {
    const either = AbortSignal.any([signal, silence.signal]);
    const response = await open(target, either);
    for await (const data of eventData(response.body!, either)) {
      timer.refresh();
      const event = JSON.parse(data) as StateEvent;
      if (event.kind === "facts") {
        if (!event.facts.isAdmin) throw needsOperator();
        state = { ...state, facts: event.facts };
      } else if (event.kind === "live") state = { ...state, view: nextView(state.view, event) };
      else if (event.kind === "requests") state = { ...state, requests: event.requests };
      // Requests are part of the view: they arrive right after it.
      if (event.kind !== "live") yield state;
    }
  } catch (error) {
    if (!silence.signal.aborted) throw error;
    throw new ConnectionLost(0, `The server has sent nothing for ${SILENCE_MS / 1000} seconds.`);
  } finally {
    clearTimeout(timer);
  }
  throw brokenOff();
}

async function open(target: Target, signal: AbortSignal): Promise<Response> {
  const base = apiBase(target.url).replace(/\/v1$/, "");
  const init = { headers: authorization(target), signal, keepalive: false };
  const response = await fetch(`${base}/state/stream?view=top`, init).catch((error: unknown) => {
    throw signal.aborted ? error : new ConnectionLost(0, noServerAt(base));
  });
  if (!response.ok) throw await serverError(response, target);
  if (response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
  throw new ServerError(0, `${base} does not answer as a Bunting server does.`);
}

/** True if another attempt may succeed: the connection was lost, or the server is temporarily unavailable. */
export function passes(error: unknown): error is ServerError {
  if (error instanceof ConnectionLost) return true;
  return error instanceof ServerError && (error.status >= 500 || PASSING.includes(error.status));
}

function needsOperator(): ServerError {
  return new ServerError(
    403,
    "bunting top shows the requests of all keys: give it a key of the operator (--admin-key of the server).",
  );
}

export function brokenOff(): ServerError {
  return new ConnectionLost(0, "The server has ended, or broke off.");
}
