import { signal } from "@preact/signals";
import { type ComponentChildren, h, type VNode } from "preact";
import { useState } from "preact/hooks";

type Highlighter = ReturnType<typeof import("lowlight").createLowlight>;
type Tree = ReturnType<Highlighter["highlight"]>;

/** Highlighter of common languages; the first code block makes the page load it. */
const highlighter = signal<Highlighter | null>(null);
let isAsked = false;

/** Maximum characters of highlighted code. */
const CHARACTERS_MAX = 50_000;

/** Code below a line with its language and, where the browser allows it, a copy button. */
export function CodeBlock({ text, language }: { readonly text: string; readonly language: string }): VNode {
  if (!isAsked) {
    isAsked = true;
    import("lowlight").then(({ common, createLowlight }) => {
      highlighter.value = createLowlight(common);
    });
  }
  return (
    <figure>
      <figcaption>
        <span>{language}</span>
        {navigator.clipboard !== undefined && <CopyButton text={text} />}
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so must be reachable by keyboard */}
      <pre tabIndex={0}>
        <code>{coloured(text, language)}</code>
      </pre>
    </figure>
  );
}

export function CopyButton({ text }: { readonly text: string }): VNode {
  const [label, setLabel] = useState("Copy");
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => setLabel("Copied"),
      () => setLabel("Not allowed"),
    );
  return (
    <button type="button" class="quiet" onClick={copy}>
      {label}
    </button>
  );
}

function coloured(text: string, language: string): ComponentChildren {
  const { value } = highlighter;
  if (value === null || !value.registered(language.toLowerCase()) || text.length > CHARACTERS_MAX)
    return text;
  return value.highlight(language.toLowerCase(), text).children.map(nodeOf);
}

function nodeOf(node: Tree["children"][number]): ComponentChildren {
  if (node.type === "text") return node.value;
  if (node.type !== "element") return null;
  const { className } = node.properties;
  const name = Array.isArray(className) ? className.join(" ") : undefined;
  return h("span", { class: name }, (node.children as Tree["children"]).map(nodeOf));
}
