import type { ComponentChildren, VNode } from "preact";

/** View that scrolls as a whole. */
export function Panel({
  id,
  children,
}: {
  readonly id: string;
  readonly children: ComponentChildren;
}): VNode {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so must be reachable by keyboard
    <main id={id} class="panel" tabIndex={0}>
      {children}
    </main>
  );
}
