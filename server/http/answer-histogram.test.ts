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
      const histogram = new AnswerHistogram(name, help, { model_name: labels.model_name }, ["0"], buckets);
      own.registerMetric(histogram.metric);
      const labelNames = Object.keys(labels);
      const known = new Histogram({ name, help, labelNames, buckets: [...buckets], registers: [theirs] });
      for (const one of values) {
        histogram.observe(one, "0");
        known.observe(labels, one);
      }
      const expected = (await theirs.metrics()).replaceAll(/le="(\d+)"/g, 'le="$1.0"');
      expect(await own.metrics()).toBe(expected);
    }),
    runs(100),
  );
});

test("each engine has its own buckets, and all have the same together", async () => {
  const histogram = new AnswerHistogram("seconds", "", {}, ["0", "1"], [1]);
  for (const engine of ["0", "1", "1", "all"]) histogram.observe(0.5, engine);
  expect([...histogram.counts]).toEqual([4, 0]);
  const registry = new Registry();
  registry.registerMetric(histogram.metric);
  const counts = (await registry.metrics()).split("\n").filter((line) => line.startsWith("seconds_count"));
  expect(counts).toEqual([
    'seconds_count{engine="0"} 1',
    'seconds_count{engine="1"} 2',
    'seconds_count{engine="all"} 1',
  ]);
});
