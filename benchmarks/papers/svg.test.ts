/** Charts. */

import { expect, test } from "bun:test";
import { svgOf } from "./svg.ts";

test("a chart has its series, ticks, labels and mark, with names made safe", () => {
  const svg = svgOf({
    title: "a < b",
    xLabel: "x",
    yLabel: "y",
    series: [
      {
        name: "one & two",
        points: [
          [0, 1],
          [10, 250],
        ],
      },
      {
        name: "three",
        points: [
          [0, 3],
          [10, 4],
        ],
      },
    ],
    yLogarithmic: true,
    mark: { y: 100, name: "target" },
  });
  expect(svg).toContain('aria-label="a &lt; b"');
  expect(svg).toContain(">one &amp; two<");
  expect(svg).toContain(">target<");
  for (const tick of [1, 10, 100, 200]) expect(svg).toContain(`>${tick}<`);
  expect(svg.match(/<circle/g)?.length).toBe(4);
  expect(svg).not.toMatch(/NaN|Infinity/);
});

test("a linear chart begins at zero unless its values are close together", () => {
  const chart = (low: number) =>
    svgOf({
      title: "t",
      xLabel: "x",
      yLabel: "y",
      series: [
        {
          name: "s",
          points: [
            [1, low],
            [2, 100],
          ],
        },
      ],
    });
  expect(chart(1)).toMatch(/text-anchor="end">0</);
  expect(chart(90)).not.toMatch(/text-anchor="end">0</);
});
