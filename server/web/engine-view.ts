import { explain } from "../../scheduler/fleet/placement.ts";
import type { EngineSnapshot, PlacementSnapshot } from "../http/state.ts";
import { fromTemplate, within } from "./dom.ts";
import { placementLine } from "./placement-line.ts";

/** Number of rates in the line, which equals the width of its view box. */
const RATES_SHOWN = 60;
const LINE_HEIGHT = 20;
const PLACEMENTS_SHOWN = 4;

/** Card of one engine. */
export class EngineView {
  readonly root = fromTemplate("engine");
  /** Tokens generated per second, newest last. */
  readonly #rates: number[] = [];

  /** `index` is null for an engine that is the only one. */
  constructor(index: number | null) {
    const title = within(this.root, "h2");
    title.textContent = `Engine ${index ?? ""}`;
    title.hidden = index === null;
    for (const part of this.root.querySelectorAll<HTMLElement>(".placements")) part.hidden = index === null;
  }

  get tokensPerSecond(): number {
    return this.#rates.at(-1) ?? 0;
  }

  /** `before` and the `seconds` since then are null for the first snapshot, which has no rates. */
  show({ device, load }: EngineSnapshot, before: EngineSnapshot | null, seconds: number | null): void {
    if (before !== null && seconds !== null) {
      this.#rates.push((load.generatedTokensTotal - before.load.generatedTokensTotal) / seconds);
      if (this.#rates.length > RATES_SHOWN) this.#rates.shift();
      this.#set("promptRate", whole((load.promptTokensTotal - before.load.promptTokensTotal) / seconds));
    } else this.#set("promptRate", "0");
    within(this.root, ".device").textContent = device.name;
    this.#set("rate", whole(this.tokensPerSecond));
    this.#set("running", whole(load.running) + (load.paused > 0 ? ` (${whole(load.paused)} paused)` : ""));
    this.#set("waiting", whole(load.waiting));
    this.#set("prefixHits", share(load.prefixHitTotal, load.prefixQueriedTotal));
    this.#set("step", load.stepsTotal === 0 ? "–" : milliseconds(load.stepMs));
    this.#set("stepTokens", load.stepsTotal === 0 ? "–" : whole(load.stepTokens));
    this.#set("deviceShare", share(load.deviceMs, load.stepMs));
    this.#showPages(load.pagesTotal - load.pagesFree - load.pagesCached, load.pagesCached, load.pagesFree);
    this.#drawRates();
  }

  /** Shows `placements` on this engine, newest first. The tooltip of a line holds the full costs. */
  showPlacements(placements: readonly PlacementSnapshot[]): void {
    const lines = placements.slice(0, PLACEMENTS_SHOWN).map(({ sequence, placement }) => {
      const line = document.createElement("li");
      line.textContent = placementLine(placement);
      line.title = explain(sequence, placement);
      return line;
    });
    within(this.root, "ol.placements").replaceChildren(...lines);
  }

  #showPages(owned: number, cached: number, free: number): void {
    const pages = within(this.root, ".pages");
    pages.setAttribute("aria-label", `${owned} pages owned, ${cached} cached, ${free} free`);
    for (const [part, count] of Object.entries({ owned, cached, free })) {
      const { style } = within(pages, `.${part}`);
      style.flexGrow = String(count);
      style.minWidth = count === 0 ? "0" : "3px"; // keeps a small share visible
    }
    this.#set("pagesOwned", whole(owned));
    this.#set("pagesCached", whole(cached));
    this.#set("pagesFree", whole(free));
  }

  #drawRates(): void {
    const highest = Math.max(1, ...this.#rates);
    const points = this.#rates.map((rate, index) => {
      const x = RATES_SHOWN - this.#rates.length + index + 1;
      return `${x},${(LINE_HEIGHT - 1 - (rate / highest) * (LINE_HEIGHT - 2)).toFixed(2)}`;
    });
    this.root.querySelector("polyline")!.setAttribute("points", points.join(" "));
  }

  #set(field: string, text: string): void {
    within(this.root, `[data-field=${field}]`).textContent = text;
  }
}

const wholeNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function whole(value: number): string {
  return wholeNumber.format(value);
}

function milliseconds(value: number): string {
  return `${value < 100 ? value.toPrecision(2) : whole(value)} ms`;
}

function share(part: number, all: number): string {
  return all === 0 ? "–" : `${Math.round((100 * part) / all)} %`;
}
