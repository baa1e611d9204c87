import { signal } from "@preact/signals";
import type { VNode } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

/** KaTeX; the first formula makes the page load it. */
const katex = signal<typeof import("katex") | null>(null);
let isAsked = false;

/**
 * Formula as MathML, which browsers render themselves. Shows its source until KaTeX is loaded, or if KaTeX
 * fails.
 */
export function Formula({ tex, isBlock }: { readonly tex: string; readonly isBlock: boolean }): VNode {
  const root = useRef<HTMLSpanElement>(null);
  const { value: loaded } = katex;
  if (!isAsked) {
    isAsked = true;
    import("katex").then((library) => {
      katex.value = library;
    });
  }
  useLayoutEffect(() => {
    if (loaded === null || root.current === null) return;
    loaded.default.render(tex, root.current, {
      displayMode: isBlock,
      output: "mathml",
      throwOnError: false,
      strict: "ignore",
      maxExpand: 100,
      trust: false,
    });
  }, [tex, isBlock, loaded]);
  return (
    <span
      key={loaded === null ? "source" : "formula"}
      ref={root}
      class={isBlock ? "formula block" : "formula"}
    >
      {loaded === null ? tex : null}
    </span>
  );
}
