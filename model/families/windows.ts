/** Sliding windows of layers, as configurations tell of them. */
import { shapeLimits } from "../shape.ts";
import { layersOf, type Names, type Source } from "./family.ts";

const names: Names = ["sliding_window", "attention.sliding_window"];
/** Which layers have it. */
export const patternNames: Names = ["layer_types", "attention.sliding_window_pattern"];

/** The window's width; 0: there is none. */
export function windowOf(source: Source): number {
  const window = source.integer(names, source.kind === "config" ? 1 : 0, shapeLimits.contextMax, 0);
  // Files of metadata give one as wide as the context where there is none.
  return source.kind === "metadata" && window >= source.sizes.contextMax ? 0 : window;
}

/** The width of each layer's window, of those that have one, by what the file says of each layer, else as `usual`. */
export function windowsOf(source: Source, usual: (layer: number) => boolean): number[] {
  const sliding = source.slidingLayers(usual);
  const window = sliding.includes(true) ? windowOf(source) : 0;
  return sliding.map((slides) => (slides ? window : 0));
}

/** All but each `period`th layer slide. */
export function allBut(period: number): (layer: number) => boolean {
  return (layer) => (layer + 1) % period !== 0;
}

/** The same of architectures that files of metadata use for models with windows of all layers and of some: what is not said of
 *  each layer is refused. `usual` is of configurations. */
export function toldWindows(source: Source, usual: (layer: number) => boolean): number[] {
  if (source.kind === "metadata" && windowOf(source) > 0 && !source.has(patternNames)) {
    source.refuse(
      names,
      "the file does not tell which layers have the window: no attention.sliding_window_pattern",
    );
  }
  return windowsOf(source, usual);
}

/** The same window in all layers, or in none. */
export function sameWindow(source: Source): number[] {
  const window = windowOf(source);
  return layersOf(source.layers, () => window);
}
