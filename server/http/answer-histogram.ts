import type { Histogram } from "prom-client";

/** Observations per bucket; the last bucket is above all bounds. */
export interface BucketCounts {
  readonly bounds: readonly number[];
  readonly counts: Float64Array;
}

type Labels = Readonly<Record<string, string | number>>;

/**
 * Prometheus histogram with one fixed set of labels, for values observed at every token. prom-client builds a
 * string of the labels at each observation, which costs more than making the token's text.
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
   * counts values above all bounds.
   */
  readonly counts: Float64Array;
  #sum = 0;

  constructor(name: string, help: string, labels: Labels, bounds: readonly number[]) {
    this.name = name;
    this.help = help;
    this.#labels = labels;
    this.bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    let bucket = 0;
    for (let end = this.bounds.length; bucket < end; ) {
      const middle = (bucket + end) >> 1;
      if (value > this.bounds[middle]!) bucket = middle + 1;
      else end = middle;
    }
    this.counts[bucket]! += 1;
    this.#sum += value;
  }

  /** Typed for a registry of prom-client, which calls only `get` at a scrape. */
  get metric(): Histogram<string> {
    return this as unknown as Histogram<string>;
  }

  async get(): Promise<object> {
    const { type, name, help } = this;
    const labels = this.#labels;
    let count = 0;
    const buckets = [...this.bounds, "+Inf"].map((bound, bucket) => {
      count += this.counts[bucket]!;
      return { metricName: `${name}_bucket`, labels: { le: textOf(bound), ...labels }, value: count };
    });
    const sum = { metricName: `${name}_sum`, labels, value: this.#sum };
    return {
      type,
      name,
      help,
      values: [...buckets, sum, { ...sum, metricName: `${name}_count`, value: count }],
    };
  }
}

/** A bound as queries of dashboards name it: with a decimal point, as Prometheus stores it from version 3 on. */
function textOf(bound: number | string): string {
  return Number.isInteger(bound) ? `${bound}.0` : String(bound);
}
