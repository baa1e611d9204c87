import { expect, test } from "bun:test";
import { mergedMetrics } from "./merged-metrics.ts";

test("metrics of the same name share a heading, in the order of their first text", () => {
  const a = '# HELP x X.\n# TYPE x counter\nx{model="a"} 1\n\n# HELP y Y.\n# TYPE y gauge\n';
  const b = '# HELP y Y.\n# TYPE y gauge\ny{model="b"} 3\n\n# HELP x X.\n# TYPE x counter\nx{model="b"} 2\n';
  expect(mergedMetrics([a, b])).toBe(
    '# HELP x X.\n# TYPE x counter\nx{model="a"} 1\nx{model="b"} 2\n\n# HELP y Y.\n# TYPE y gauge\ny{model="b"} 3\n',
  );
});
