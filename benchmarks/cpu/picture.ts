/** Bars of ratios as an SVG, for pages of results. */

/** Ratio of ours to another's, and its spread over rounds; null: measured once. */
export interface Bar {
  readonly what: string;
  readonly ratio: number;
  readonly spread: readonly [number, number] | null;
}

const ROW_PX = 20;
const LEFT_PX = 430;
const PLOT_PX = 460;
const RIGHT_PX = 60;
const TOP_PX = 56;
const MARKS = [0.5, 1, 2, 4, 8, 16, 32];

const style = `text{font:13px system-ui,sans-serif;fill:#333}
.title{font-weight:600}.bar{fill:#3b7ddd}.less{fill:#c4572f}.spread{stroke:#333;stroke-width:1.5}.grid{stroke:#d9dde3}.one{stroke:#333}
@media (prefers-color-scheme:dark){text{fill:#c9d1d9}.spread,.one{stroke:#c9d1d9}.grid{stroke:#30363d}}`;

/** Bars on a logarithmic axis, with their spreads. */
export function pictureOf(title: string, bars: readonly Bar[]): string {
  const height = TOP_PX + bars.length * ROW_PX + 12;
  const width = LEFT_PX + PLOT_PX + RIGHT_PX;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(title)}">`,
    `<style>${style}</style>`,
    `<text class="title" x="12" y="22">${escaped(title)}</text>`,
    ...MARKS.map((mark) => gridLine(mark, height)),
    ...bars.map(rowOf),
    "</svg>",
    "",
  ].join("\n");
}

/** Horizontal place of a ratio. */
function placeOf(ratio: number): number {
  const [least, most] = [Math.log(MARKS[0]!), Math.log(MARKS.at(-1)!)];
  const share = (Math.log(ratio) - least) / (most - least);
  return Math.round(LEFT_PX + Math.min(1, Math.max(0, share)) * PLOT_PX);
}

function gridLine(mark: number, height: number): string {
  const x = placeOf(mark);
  const line = `<line class="${mark === 1 ? "one" : "grid"}" x1="${x}" y1="${TOP_PX - 8}" x2="${x}" y2="${height - 8}"/>`;
  return `${line}<text x="${x}" y="${TOP_PX - 14}" text-anchor="middle">${mark}×</text>`;
}

function rowOf({ what, ratio, spread }: Bar, index: number): string {
  const y = TOP_PX + index * ROW_PX;
  const middle = y + ROW_PX / 2;
  const [from, to] = [placeOf(1), placeOf(ratio)];
  const bar = `<rect class="${ratio < 1 ? "less" : "bar"}" x="${Math.min(from, to)}" y="${y + 3}" width="${Math.max(1, Math.abs(to - from))}" height="${ROW_PX - 6}"/>`;
  const range =
    spread === null
      ? ""
      : `<line class="spread" x1="${placeOf(spread[0])}" y1="${middle}" x2="${placeOf(spread[1])}" y2="${middle}"/>`;
  const end = Math.max(to, spread === null ? to : placeOf(spread[1]));
  return [
    `<text x="${LEFT_PX - 10}" y="${middle + 4}" text-anchor="end">${escaped(what)}</text>`,
    bar,
    range,
    `<text x="${end + 6}" y="${middle + 4}">${ratio.toFixed(2)}</text>`,
  ].join("");
}

function escaped(text: string): string {
  return Bun.escapeHTML(text);
}
