/** `bunting top`: shows a running server in the terminal, and redraws when the server sends an event. */

import { flag, serverSettings, text, type Values } from "../../config.ts";
import type { Target } from "../client.ts";
import type { OptionList } from "../options.ts";
import { interruption } from "../signals.ts";
import { apiKeySetting, targetOf } from "../target.ts";
import { frame } from "./frame.ts";
import { coloured, plain } from "./paint.ts";
import { Screen } from "./screen.ts";
import { brokenOff, lastingStates, statesOf } from "./states.ts";

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

/** Events before a single picture: rates need two. */
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
  const states = lastingStates(target, signal);
  let screen: Screen | null = null;
  try {
    for await (const state of states) {
      screen ??= new Screen(() => quit.abort()); // only now: errors before it are printed normally
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

/** Lines of a picture without colours and without a limit of rows. */
async function pictureOf(target: Target): Promise<readonly string[]> {
  const columns = process.stdout.columns || ONCE_COLUMNS;
  for await (const state of statesOf(target, new AbortController().signal)) {
    const isWhole = (state.view?.points.length ?? 0) >= ONCE_EVENTS;
    if (isWhole) return frame(state, { columns, rows: Number.POSITIVE_INFINITY }, plain);
  }
  throw brokenOff();
}
