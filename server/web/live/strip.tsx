import type { VNode } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { WINDOW_MS } from "../../http/live-view.ts";
import type { StepBar } from "../../http/state-events.ts";
import { palette } from "../palette.ts";
import { columnsOf, PREEMPTED, tokenKinds } from "./columns.ts";

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

/**
 * Steps of an engine on the time axis. A bar's height is the step's duration, its colours are the kinds of
 * its tokens.
 */
export function Strip(props: StripProps): VNode {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => draw(canvas.current!, props));
  return (
    <canvas ref={canvas} class="strip" role="img" aria-label={props.label} data-bars={props.bars.length} />
  );
}

function draw(canvas: HTMLCanvasElement, { bars, nowMs, targetMs, topMs, heightPx }: StripProps): void {
  const width = Math.round(canvas.clientWidth * devicePixelRatio);
  const height = Math.round(heightPx * devicePixelRatio);
  if (width === 0) return;
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
    canvas.style.height = `${heightPx}px`;
  }
  // Sets pixels directly: canvas calls for many thousand steps take longer than a frame.
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const tickPx = Math.round(TICK_PX * devicePixelRatio);
  const floor = height - tickPx;
  const columns = columnsOf(bars, width, nowMs, WINDOW_MS);
  const context = canvas.getContext("2d")!;
  const pixel = (name: keyof typeof palette.colours) => pixelOf(context, palette.colours[name]);
  const colours = tokenKinds.map(pixel);
  const [alert, muted] = [pixel("alert"), pixel("muted")];
  for (let x = 0; x < width; x++) {
    const high = Math.min(1, columns.ms[x]! / topMs) * floor;
    let from = 0;
    for (let kind = 0; kind < tokenKinds.length; kind++) {
      const to = Math.round(columns.shares[x * tokenKinds.length + kind]! * high);
      for (; from < to; from++) pixels[(floor - 1 - from) * width + x] = colours[kind]!;
    }
    const tick = columns.ticks[x]!;
    if (tick === 0) continue;
    const colour = (tick & PREEMPTED) === 0 ? muted : alert;
    for (let y = floor + 1; y < height; y++) pixels[y * width + x] = colour;
  }
  if (targetMs !== null && targetMs <= topMs) {
    const row = Math.round(floor - (targetMs / topMs) * floor) * width;
    for (let x = 0; x < width; x++) if (x % 6 < 3) pixels[row + x] = alert;
  }
  context.putImageData(image, 0, 0);
}

/** Opaque colour as the bytes of an image's pixel, on the little-endian machines that browsers run on. */
function pixelOf(context: CanvasRenderingContext2D, colour: string): number {
  context.fillStyle = colour;
  const hex = String(context.fillStyle); // always as #rrggbb
  const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
  return ((255 << 24) | (blue! << 16) | (green! << 8) | red!) >>> 0;
}
