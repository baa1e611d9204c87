/** The element with that id, which index.html has. */
export function element<Kind extends HTMLElement>(id: string, kind: new () => Kind): Kind {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return found;
}

/** The first element below `root` that the selector names. */
export function within(root: Element, selector: string): HTMLElement {
  const found = root.querySelector<HTMLElement>(selector);
  if (found === null) throw new Error(`nothing matches ${selector}`);
  return found;
}

/** A copy of what a template holds. */
export function fromTemplate(id: string): HTMLElement {
  const { content } = element(id, HTMLTemplateElement);
  return document.importNode(content.firstElementChild as HTMLElement, true);
}
