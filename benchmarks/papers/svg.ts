/** Line charts as SVG, readable on light and dark pages. */

export interface Series {
  readonly name: string;
  /** In order of x. */
  readonly points: readonly (readonly [x: number, y: number])[];
}

export interface Chart {
  readonly title: string;
  readonly xLabel: string;
  readonly yLabel: string;
  readonly series: readonly Series[];
  /** Equal ratios are equally far apart; all y must be > 0. */
  readonly yLogarithmic?: boolean;
  /** A horizontal line with a name, such as a target. */
  readonly mark?: { readonly y: number; readonly name: string };
}

const WIDTH = 640;
const HEIGHT = 360;
const AREA = { left: 64, right: 470, top: 40, bottom: 308 };
// Distinct for most kinds of colour vision (Okabe and Ito), on white and on black.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#a6761d"];

/** The chart as the text of an SVG file. */
export function svgOf(chart: Chart): string {
  const points = chart.series.flatMap((series) => series.points);
  const xs = scaleOf(
    points.map(([x]) => x),
    AREA.left,
    AREA.right,
    false,
  );
  const marks = chart.mark === undefined ? [] : [chart.mark.y];
  const ys = scaleOf(
    [...points.map(([, y]) => y), ...marks],
    AREA.bottom,
    AREA.top,
    chart.yLogarithmic === true,
  );
  const parts: string[] = [];
  for (const value of ys.ticks) {
    const y = fixed(ys.at(value));
    parts.push(`<path class="grid" d="M${AREA.left} ${y}H${AREA.right}"/>`);
    parts.push(text(AREA.left - 6, ys.at(value) + 4, label(value), "end"));
  }
  for (const value of xs.ticks) {
    parts.push(`<path class="grid" d="M${fixed(xs.at(value))} ${AREA.top}V${AREA.bottom}"/>`);
    parts.push(text(xs.at(value), AREA.bottom + 16, label(value), "middle"));
  }
  if (chart.mark !== undefined) {
    const y = ys.at(chart.mark.y);
    parts.push(`<path class="mark" d="M${AREA.left} ${fixed(y)}H${AREA.right}"/>`);
    parts.push(text(AREA.left + 4, y - 4, chart.mark.name, "start"));
  }
  chart.series.forEach(({ name, points }, index) => {
    const colour = COLOURS[index % COLOURS.length];
    const dashes = index < COLOURS.length ? "" : ' stroke-dasharray="5 3"';
    const path = points.map(([x, y]) => `${fixed(xs.at(x))} ${fixed(ys.at(y))}`).join("L");
    parts.push(`<path d="M${path}" fill="none" stroke="${colour}" stroke-width="2"${dashes}/>`);
    for (const [x, y] of points) {
      parts.push(`<circle cx="${fixed(xs.at(x))}" cy="${fixed(ys.at(y))}" r="3" fill="${colour}"/>`);
    }
    const y = AREA.top + 8 + index * 18;
    parts.push(`<path d="M${AREA.right + 12} ${y}h18" stroke="${colour}" stroke-width="3"${dashes}/>`);
    parts.push(text(AREA.right + 35, y + 4, name, "start"));
  });
  parts.push(`<text x="${AREA.left}" y="22" class="title">${escaped(chart.title)}</text>`);
  parts.push(text((AREA.left + AREA.right) / 2, HEIGHT - 12, chart.xLabel, "middle"));
  const middle = (AREA.top + AREA.bottom) / 2;
  parts.push(
    `<text x="16" y="${middle}" text-anchor="middle" transform="rotate(-90 16 ${middle})">${escaped(chart.yLabel)}</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escaped(chart.title)}">
<style>
text { font: 12px sans-serif; fill: #222 } .title { font-weight: bold; font-size: 14px }
.grid { stroke: #8884; fill: none } .mark { stroke: #c33; stroke-dasharray: 4 4; fill: none }
@media (prefers-color-scheme: dark) { text { fill: #ddd } }
</style>
${parts.join("\n")}
</svg>
`;
}

interface Scale {
  readonly at: (value: number) => number;
  readonly ticks: readonly number[];
}

/** From values to pixels [from, to]. Linear scales of values near zero begin at zero. */
function scaleOf(values: readonly number[], from: number, to: number, isLogarithmic: boolean): Scale {
  const least = Math.min(...values);
  const most = Math.max(...values);
  if (isLogarithmic) {
    const low = Math.log10(least) - 0.05;
    const high = Math.log10(most) + 0.05;
    const at = (value: number): number => from + ((Math.log10(value) - low) / (high - low)) * (to - from);
    const ticks: number[] = [];
    for (let power = Math.floor(low); power <= high; power++) {
      for (const digit of [1, 2, 5]) {
        const value = digit * 10 ** power;
        if (Math.log10(value) >= low && Math.log10(value) <= high) ticks.push(value);
      }
    }
    return { at, ticks };
  }
  const start = least < most * 0.6 ? 0 : least;
  const step = niceStep((most - start) / 5);
  const low = Math.floor(start / step) * step;
  const high = Math.ceil(most / step) * step || 1;
  const at = (value: number): number => from + ((value - low) / (high - low)) * (to - from);
  const ticks = Array.from({ length: Math.round((high - low) / step) + 1 }, (_, i) => low + i * step);
  return { at, ticks };
}

/** 1, 2 or 5 times a power of ten, not below `step`. */
function niceStep(step: number): number {
  if (!(step > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(step));
  return power * ([1, 2, 5].find((digit) => digit * power >= step) ?? 10);
}

function label(value: number): string {
  return String(Number(value.toPrecision(3)));
}

function fixed(pixels: number): string {
  return pixels.toFixed(1);
}

function text(x: number, y: number, content: string, anchor: "start" | "middle" | "end"): string {
  return `<text x="${fixed(x)}" y="${fixed(y)}" text-anchor="${anchor}">${escaped(content)}</text>`;
}

function escaped(content: string): string {
  return content
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}
