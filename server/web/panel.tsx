import type { ComponentChildren, VNode } from "preact";

/**
 * View that scrolls as a whole. It has no id: the browser would focus an element whose id is in the address.
 */
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
