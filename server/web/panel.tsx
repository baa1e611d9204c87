import type { ComponentChildren, VNode } from "preact";

/** View that scrolls as a whole. It has no id, or the browser would focus it for its address. */
export function Panel({
  name,
  children,
}: {
  readonly name: string;
  readonly children: ComponentChildren;
}): VNode {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so must be reachable by keyboard
    <main class={`panel ${name}`} tabIndex={0}>
      {children}
    </main>
  );
}
