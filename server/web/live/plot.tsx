import type { VNode } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { shortNumber } from "../../http/live-view.ts";
import { palette } from "../palette.ts";

const HEIGHT_PX = 130;

export interface Line {
  readonly label: string;
  readonly colour: "decode" | "prompt" | "draft" | "alert";
  readonly values: readonly (number | null)[];
}

export interface PlotProps {
  readonly title: string;
  /** Seconds before now, at most 0. */
  readonly times: readonly number[];
  readonly lines: readonly Line[];
}

/** Lines over the last two minutes. */
export function Plot({ title, times, lines }: PlotProps): VNode {
  const root = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const data = [times, ...lines.map(({ values }) => values)] as uPlot.AlignedData;
  const last = useRef(data);
  last.current = data;
  const { colours } = palette;
  useLayoutEffect(() => {
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(lines, root.current!.clientWidth), last.current, root.current!);
    };
    make();
    const resized = new ResizeObserver(() =>
      plot.current?.setSize({ width: root.current!.clientWidth, height: HEIGHT_PX }),
    );
    resized.observe(root.current!);
    return () => {
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [colours, lines.map(({ label }) => label).join()]);
  useLayoutEffect(() => plot.current?.setData(data));
  const told = lines.map(({ label, values }) => `${label} ${shortNumber(values.at(-1) ?? null)}`).join(", ");
  return (
    <figure class="plot card">
      <figcaption>
        <h2>{title}</h2>
        {lines.map(({ label, colour, values }) => (
          <span key={label} class={`key ${colour}`}>
            {label} <b>{shortNumber(values.at(-1) ?? null)}</b>
          </span>
        ))}
      </figcaption>
      <div ref={root} role="img" aria-label={`${title}: ${told}`} />
    </figure>
  );
}

function optionsOf(lines: readonly Line[], width: number): uPlot.Options {
  const { colours } = palette;
  const axis = {
    stroke: colours.muted,
    font: "11px system-ui",
    grid: { stroke: colours.line, width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height: HEIGHT_PX,
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { time: false, range: [-120, 0] },
      y: { range: (_, __, max) => [0, Math.max(1, max * 1.1)] },
    },
    axes: [
      { ...axis, size: 22, values: (_, ticks) => ticks.map((tick) => (tick === 0 ? "now" : `${tick} s`)) },
      { ...axis, size: 46, values: (_, ticks) => ticks.map(shortNumber) },
    ],
    series: [
      {},
      ...lines.map(({ label, colour }) => ({
        label,
        stroke: colours[colour],
        width: 1.5,
        spanGaps: false,
        points: { show: false },
      })),
    ],
  };
}
