import type { Node } from "../../scheduler/program/graph.ts";
import { type CallSpec, partsOf } from "../../scheduler/program/spec.ts";

/** How much a call that ended weighs against all before it, at least: the first ones weigh alike. */
const weightMin = 0.05;
/** Fewer tokens read tell more of steps than of reading. */
const readMin = 64;

/** What calls are expected to take, learned from those that ended: for the order of paths, so what counts is the ratio. */
export class CallTimes {
  /** Milliseconds per token of an answer, and per token of a prompt that was not cached; tokens of an answer. */
  #perDrawnMs = 20;
  #perReadMs = 0.5;
  #drawn = 128;
  #ended = 0;
  #endedReading = 0;

  /** A call has ended. */
  note({ times, tokens }: Pick<Node, "times" | "tokens">): void {
    const { startedMs, firstMs, endedMs } = times;
    if (startedMs === null || firstMs === null || endedMs === null) return;
    const read = tokens.prompt - tokens.found;
    if (read >= readMin) {
      const weight = Math.max(weightMin, 1 / ++this.#endedReading);
      this.#perReadMs += weight * ((firstMs - startedMs) / read - this.#perReadMs);
    }
    const weight = Math.max(weightMin, 1 / ++this.#ended);
    if (tokens.output > 1) {
      this.#perDrawnMs += weight * ((endedMs - firstMs) / (tokens.output - 1) - this.#perDrawnMs);
    }
    this.#drawn += weight * (tokens.output - this.#drawn);
  }

  /** Milliseconds that reading a text would take, with nothing of it cached. */
  readMs(characters: number): number {
    return (characters / charactersPerToken) * this.#perReadMs;
  }

  /** Milliseconds from a call's beginning to its end. */
  expectedMs(call: CallSpec): number {
    let ms = 0;
    for (const part of partsOf(call.prompt)) {
      if (part.kind === "text") ms += this.readMs(part.text.length);
      else if (part.kind === "input")
        ms += this.#drawn * this.#perReadMs; // it is some call's answer, mostly
      else ms += Math.min(part.tokensMax ?? this.#drawn, this.#drawn * 4) * this.#perDrawnMs;
    }
    return ms;
  }
}

const charactersPerToken = 4;
