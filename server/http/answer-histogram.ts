import type { Histogram } from "prom-client";

type Labels = Readonly<Record<string, string | number>>;

/**
 * A Prometheus histogram with one set of labels, for what is observed at every token. prom-client makes a text of the labels at
 * each observation, which takes longer than making the token's text.
 */
export class AnswerHistogram {
  readonly type = "histogram";
  readonly name: string;
  readonly help: string;
  readonly #labels: Labels;
  /** Rising upper bounds. */
  readonly #bounds: readonly number[];
  /** Values by the first bound that they do not exceed; the last counts those above all. */
  readonly #counts: Float64Array;
  #sum = 0;

  constructor(name: string, help: string, labels: Labels, bounds: readonly number[]) {
    this.name = name;
    this.help = help;
    this.#labels = labels;
    this.#bounds = bounds;
    this.#counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    let bucket = 0;
    for (let end = this.#bounds.length; bucket < end; ) {
      const middle = (bucket + end) >> 1;
      if (value > this.#bounds[middle]!) bucket = middle + 1;
      else end = middle;
    }
    this.#counts[bucket]! += 1;
    this.#sum += value;
  }

  /** For a registry of prom-client, which at a scrape asks for no more than `get`. */
  get metric(): Histogram<string> {
    return this as unknown as Histogram<string>;
  }

  async get(): Promise<object> {
    const { type, name, help } = this;
    const labels = this.#labels;
    let count = 0;
    const buckets = [...this.#bounds, "+Inf"].map((le, bucket) => {
      count += this.#counts[bucket]!;
      return { metricName: `${name}_bucket`, labels: { le, ...labels }, value: count };
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
