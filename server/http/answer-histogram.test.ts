import { expect, test } from "bun:test";
import fc from "fast-check";
import { Histogram, Registry } from "prom-client";
import { runs } from "../../tests/support/property.ts";
import { AnswerHistogram } from "./answer-histogram.ts";

test("a scrape reads as one of prom-client's own histograms, but for the decimal points of bounds", async () => {
  const labels = { model_name: 'a "model"', engine: "0" };
  const value = fc.oneof(fc.constantFrom(0, 1, 2.5, 10), fc.double({ min: 0, max: 20, noNaN: true }));
  await fc.assert(
    fc.asyncProperty(fc.array(value, { minLength: 1, maxLength: 50 }), async (values) => {
      const [name, help, buckets] = ["seconds", "How long it took.", [1, 2.5, 10]] as const;
      const own = new Registry();
      const theirs = new Registry();
      const histogram = new AnswerHistogram(name, help, labels, buckets);
      own.registerMetric(histogram.metric);
      const labelNames = Object.keys(labels);
      const known = new Histogram({ name, help, labelNames, buckets: [...buckets], registers: [theirs] });
      for (const one of values) {
        histogram.observe(one);
        known.observe(labels, one);
      }
      const expected = (await theirs.metrics()).replaceAll(/le="(\d+)"/g, 'le="$1.0"');
      expect(await own.metrics()).toBe(expected);
    }),
    runs(100),
  );
});
