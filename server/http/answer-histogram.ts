import type { Histogram } from "prom-client";

/** Observations per bucket; the last bucket is above all bounds. */
export interface BucketCounts {
  readonly bounds: readonly number[];
  readonly counts: Float64Array;
}

type Labels = Readonly<Record<string, string | number>>;

interface EngineCounts {
  readonly counts: Float64Array;
  sum: number;
}

/**
 * Prometheus histogram by engine, for values observed at every token. prom-client builds a string of the labels at
 * each observation, which costs more than making the token's text.
 */
export class AnswerHistogram implements BucketCounts {
  readonly type = "histogram";
  readonly name: string;
  readonly help: string;
  readonly #labels: Labels;
  /** Upper bounds of the buckets, ascending. */
  readonly bounds: readonly number[];
  /**
   * Observations per bucket: a value counts in the first bucket whose bound it does not exceed. The last
   * counts values above all bounds. Of all engines together.
   */
  readonly counts: Float64Array;
  readonly #engines = new Map<string, EngineCounts>();

  /** `engines`: values of the label `engine` to report before the first observation. */
  constructor(
    name: string,
    help: string,
    labels: Labels,
    engines: readonly string[],
    bounds: readonly number[],
  ) {
    this.name = name;
    this.help = help;
    this.#labels = labels;
    this.bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
    for (const engine of engines) this.#of(engine);
  }

  observe(value: number, engine: string): void {
    let bucket = 0;
    for (let end = this.bounds.length; bucket < end; ) {
      const middle = (bucket + end) >> 1;
      if (value > this.bounds[middle]!) bucket = middle + 1;
      else end = middle;
    }
    this.counts[bucket]! += 1;
    const own = this.#of(engine);
    own.counts[bucket]! += 1;
    own.sum += value;
  }

  #of(engine: string): EngineCounts {
    const known = this.#engines.get(engine);
    if (known !== undefined) return known;
    const made = { counts: new Float64Array(this.counts.length), sum: 0 };
    this.#engines.set(engine, made);
    return made;
  }

  /** Typed for a registry of prom-client, which calls only `get` at a scrape. */
  get metric(): Histogram<string> {
    return this as unknown as Histogram<string>;
  }

  async get(): Promise<object> {
    const { type, name, help } = this;
    return { type, name, help, values: [...this.#engines].flatMap((engine) => this.#values(...engine)) };
  }

  #values(engine: string, { counts, sum }: EngineCounts): object[] {
    const { name } = this;
    const labels = { ...this.#labels, engine };
    let count = 0;
    const buckets = [...this.bounds, "+Inf"].map((bound, bucket) => {
      count += counts[bucket]!;
      return { metricName: `${name}_bucket`, labels: { le: textOf(bound), ...labels }, value: count };
    });
    const total = { metricName: `${name}_sum`, labels, value: sum };
    return [...buckets, total, { ...total, metricName: `${name}_count`, value: count }];
  }
}

/** A bound as queries of dashboards name it: with a decimal point, as Prometheus stores it from version 3 on. */
function textOf(bound: number | string): string {
  return Number.isInteger(bound) ? `${bound}.0` : String(bound);
}
