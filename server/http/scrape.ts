import { collectDefaultMetrics, type Metric, Registry } from "prom-client";

/** Time for which the server sends the same text of metrics to all clients. */
const METRICS_KEPT_MS = 1000;

/** Text of all metrics. It is made once at a time, and kept for `keptMs`, however many clients ask for it. */
export class Scrape {
  readonly #make: () => Promise<string>;
  readonly #keptMs: number;
  readonly #nowMs: () => number;
  #text: Promise<string> | null = null;
  #madeMs = Number.NEGATIVE_INFINITY;

  constructor(
    make: () => Promise<string>,
    keptMs = METRICS_KEPT_MS,
    nowMs: () => number = () => performance.now(),
  ) {
    this.#make = make;
    this.#keptMs = keptMs;
    this.#nowMs = nowMs;
  }

  text(): Promise<string> {
    if (this.#text === null || this.#nowMs() - this.#madeMs >= this.#keptMs) {
      this.#madeMs = Number.POSITIVE_INFINITY; // until it is made, all wait for it
      this.#text = this.#make().finally(() => {
        this.#madeMs = this.#nowMs();
      });
    }
    return this.#text;
  }
}

/**
 * Metrics of the whole process, under the names of Prometheus' client libraries. Metrics of Node's own
 * internals are left out: on Bun they are zeros.
 */
export function processMetrics(): readonly Metric[] {
  made ??= make();
  return made;
}

let made: readonly Metric[] | null = null;

function make(): readonly Metric[] {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const names = registry.getMetricsAsArray().map(({ name }) => name);
  return names
    .filter((name) => name.startsWith("process_"))
    .map((name) => registry.getSingleMetric(name) as Metric);
}
