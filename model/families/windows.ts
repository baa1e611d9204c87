/** Sliding-window fields of configurations. */
import { shapeLimits } from "../shape.ts";
import { layersOf, type Names, type Source } from "./family.ts";

const names: Names = ["sliding_window", "attention.sliding_window"];
/** Fields that tell which layers have a window. */
export const patternNames: Names = ["layer_types", "attention.sliding_window_pattern"];

/** Width of the window; 0 for none. */
export function windowOf(source: Source): number {
  const window = source.integer(names, source.kind === "config" ? 1 : 0, shapeLimits.contextMax, 0);
  // GGUF metadata sets the window to the whole context when there is none.
  return source.kind === "metadata" && window >= source.sizes.contextMax ? 0 : window;
}

/** Window width of each layer; 0 for none. The file's list decides which layers have one, else `usual`. */
export function windowsOf(source: Source, usual: (layer: number) => boolean): number[] {
  const sliding = source.slidingLayers(usual);
  const window = sliding.includes(true) ? windowOf(source) : 0;
  return sliding.map((slides) => (slides ? window : 0));
}

/** Predicate that is true for all but every `period`th layer. */
export function allBut(period: number): (layer: number) => boolean {
  return (layer) => (layer + 1) % period !== 0;
}

/**
 * Window width of each layer, for GGUF architectures shared by models with windows in all layers and in some.
 * Refuses a GGUF file that does not list the layers; `usual` applies to config.json only.
 */
export function toldWindows(source: Source, usual: (layer: number) => boolean): number[] {
  if (source.kind === "metadata" && windowOf(source) > 0 && !source.has(patternNames)) {
    source.refuse(
      names,
      "the file does not tell which layers have the window: no attention.sliding_window_pattern",
    );
  }
  return windowsOf(source, usual);
}

/** Window widths when all layers have the same window, or none has one. */
export function sameWindow(source: Source): number[] {
  const window = windowOf(source);
  return layersOf(source.layers, () => window);
}
