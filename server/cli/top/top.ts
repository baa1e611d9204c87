/** `bunting top`: a server at work, in the terminal. It is redrawn when the server tells of something. */

import { flag, serverSettings, text, type Values } from "../../config.ts";
import { nextView } from "../../http/live-view.ts";
import type { StateEvent } from "../../http/state-events.ts";
import { apiBase, authorization, eventData, ServerError, serverError, type Target } from "../client.ts";
import type { OptionList } from "../options.ts";
import { interruption } from "../signals.ts";
import { apiKeySetting, targetOf } from "../target.ts";
import { frame, type TopState } from "./frame.ts";
import { coloured, plain } from "./paint.ts";
import { Screen } from "./screen.ts";

export const topSettings = Object.freeze({
  url: text({
    default: `http://${serverSettings.host.default}:${serverSettings.port.default}`,
    placeholder: "url",
    sentence: "The server.",
  }),
  apiKey: apiKeySetting,
  once: flag({ sentence: "Print one picture and end; so does output that is no terminal." }),
});

export const topOptions: OptionList<typeof topSettings> = {
  settings: topSettings,
  headings: { url: "Server:" },
};

/** Events that a single picture is made of: rates are between two. */
const ONCE_EVENTS = 2;
const ONCE_COLUMNS = 100;

/** Shows the server until the user quits. Resolves to the exit code. */
export async function top({ url, apiKey, once }: Values<typeof topSettings>): Promise<number> {
  const target = targetOf(url, apiKey);
  if (once || !process.stdout.isTTY) {
    console.log((await pictureOf(target)).join("\n"));
    return 0;
  }
  const paint = (process.env.NO_COLOR ?? "") === "" ? coloured : plain;
  const stop = interruption();
  const quit = new AbortController();
  const signal = AbortSignal.any([stop.signal, quit.signal]);
  const states = statesOf(target, signal);
  let screen: Screen | null = null;
  try {
    for await (const state of states) {
      screen ??= new Screen(() => quit.abort()); // not before: an error is told without it
      const shown = screen;
      shown.onResize = () => shown.draw(frame(state, shown.size, paint));
      shown.onResize();
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    screen?.close();
  }
  return quit.signal.aborted ? 0 : stop.exitCode;
}

/** Lines of a picture without end of rows or colours. */
async function pictureOf(target: Target): Promise<readonly string[]> {
  const columns = process.stdout.columns || ONCE_COLUMNS;
  for await (const state of statesOf(target, new AbortController().signal)) {
    const isWhole = (state.view?.points.length ?? 0) >= ONCE_EVENTS;
    if (isWhole) return frame(state, { columns, rows: Number.POSITIVE_INFINITY }, plain);
  }
  throw brokenOff();
}

/** State of the server, after each of its events. Throws ServerError. */
async function* statesOf(target: Target, signal: AbortSignal): AsyncGenerator<TopState> {
  let state: TopState = { facts: null, view: null, requests: [] };
  const response = await open(target, signal);
  for await (const data of eventData(response.body!, signal)) {
    const event = JSON.parse(data) as StateEvent;
    if (event.kind === "facts") {
      if (!event.facts.isAdmin) throw needsOperator();
      state = { ...state, facts: event.facts };
    } else if (event.kind === "live") state = { ...state, view: nextView(state.view, event) };
    else if (event.kind === "requests") state = { ...state, requests: event.requests };
    // The requests come right after the view that they belong to.
    if (event.kind !== "live") yield state;
  }
  throw brokenOff();
}

async function open(target: Target, signal: AbortSignal): Promise<Response> {
  const base = apiBase(target.url).replace(/\/v1$/, "");
  const init = { headers: authorization(target), signal, keepalive: false };
  const response = await fetch(`${base}/state/stream?view=top`, init).catch((error: unknown) => {
    throw signal.aborted ? error : new ServerError(0, `No server answers at ${base}.`);
  });
  if (!response.ok) throw await serverError(response, target);
  if (response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
  throw new ServerError(0, `${base} does not answer as a Bunting server does.`);
}

function needsOperator(): ServerError {
  return new ServerError(
    403,
    "bunting top shows the requests of all keys: give it a key of the operator (--admin-key of the server).",
  );
}

function brokenOff(): ServerError {
  return new ServerError(0, "The server has ended, or broke off.");
}
