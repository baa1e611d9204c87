import type { VNode } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { WINDOW_MS } from "../../http/live-view.ts";
import type { StepBar } from "../../http/state-events.ts";
import { palette } from "../palette.ts";

/** Height of ticks for evictions and preemptions, in pixels. */
const TICK_PX = 4;

export interface StripProps {
  readonly label: string;
  readonly bars: readonly StepBar[];
  readonly nowMs: number;
  readonly targetMs: number | null;
  /** Milliseconds at the top. */
  readonly topMs: number;
  readonly heightPx: number;
}

/** Steps of an engine on the time axis: a bar is as high as its step took, in colours of its tokens. */
export function Strip(props: StripProps): VNode {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => draw(canvas.current!, props));
  return (
    <canvas ref={canvas} class="strip" role="img" aria-label={props.label} data-bars={props.bars.length} />
  );
}

function draw(canvas: HTMLCanvasElement, { bars, nowMs, targetMs, topMs, heightPx }: StripProps): void {
  const scale = devicePixelRatio;
  const width = canvas.clientWidth;
  canvas.style.height = `${heightPx}px`;
  canvas.width = width * scale;
  canvas.height = heightPx * scale;
  const context = canvas.getContext("2d")!;
  context.scale(scale, scale);
  const { colours } = palette;
  const floor = heightPx - TICK_PX;
  const x = (ms: number) => width * (1 - (nowMs - ms) / WINDOW_MS);
  for (const [endMs, ms, decodes, prompt, warmed, drafts, evicted, preempted] of bars) {
    const left = x(endMs - ms);
    const wide = Math.max(1, x(endMs) - left - (width * ms > 3 * WINDOW_MS ? 0.5 : 0));
    const tokens = Math.max(1, decodes + prompt + warmed + drafts);
    const high = Math.min(1, ms / topMs) * floor;
    let bottom = floor;
    for (const [count, colour] of [
      [decodes, colours.decode],
      [drafts, colours.draft],
      [prompt, colours.prompt],
      [warmed, colours.warm],
    ] as const) {
      const part = (count / tokens) * high;
      context.fillStyle = colour;
      context.fillRect(left, bottom - part, wide, part);
      bottom -= part;
    }
    if (preempted > 0 || evicted > 0) {
      context.fillStyle = preempted > 0 ? colours.alert : colours.muted;
      context.fillRect(left, floor + 1, Math.max(1.5, wide), TICK_PX - 1);
    }
  }
  if (targetMs === null || targetMs > topMs) return;
  context.fillStyle = colours.alert;
  for (let at = 0; at < width; at += 6) context.fillRect(at, floor - (targetMs / topMs) * floor, 3, 1);
}
