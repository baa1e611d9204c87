/** Element of index.html with that id. */
export function element<Kind extends HTMLElement>(id: string, kind: new () => Kind): Kind {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return found;
}

/** First element below `root` that matches the selector. */
export function within(root: Element, selector: string): HTMLElement {
  const found = root.querySelector<HTMLElement>(selector);
  if (found === null) throw new Error(`nothing matches ${selector}`);
  return found;
}

/** Copy of a template's content. */
export function fromTemplate(id: string): HTMLElement {
  const { content } = element(id, HTMLTemplateElement);
  return document.importNode(content.firstElementChild as HTMLElement, true);
}
