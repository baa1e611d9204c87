/**
 * Renders an answer's Markdown as elements of the page. No part of it becomes HTML: tags appear as text, and
 * a picture becomes a link to it. Only addresses of the web and of mail become links.
 */
import { Marked, type MarkedToken, type Token, type Tokens } from "marked";

const marked = new Marked({ gfm: true, breaks: true });

/** Growing text, shown as Markdown. */
export class MarkdownView {
  readonly #root: HTMLElement;
  /** Source of each block that is shown. */
  #shown: string[] = [];
  #text = "";
  #frame: number | null = null;

  constructor(root: HTMLElement) {
    this.#root = root;
    root.classList.add("markdown");
  }

  /**
   * Shows the text with the next frame, however many pieces arrive until then. Calls `onShown` after that.
   */
  append(text: string, onShown: () => void): void {
    this.#text += text;
    this.#frame ??= requestAnimationFrame(() => {
      this.show();
      onShown();
    });
  }

  /**
   * Shows all of the text now. Blocks whose source has not changed stay, with the reader's selection in them.
   */
  show(): void {
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
    this.#frame = null;
    const blocks = marked.lexer(this.#text).filter(({ type }) => type !== "space");
    const same = blocks.findIndex(({ raw }, at) => raw !== this.#shown[at]);
    const kept = same < 0 ? blocks.length : same;
    while (this.#root.childNodes.length > kept) this.#root.lastChild!.remove();
    this.#root.append(...blocks.slice(kept).map(nodeOf));
    this.#shown = blocks.map(({ raw }) => raw);
  }
}

/** Node of a token; an unknown kind shows its source. */
function nodeOf(token: Token): Node {
  const known = token as MarkedToken;
  switch (known.type) {
    case "heading":
      return wrap(`h${Math.min(6, known.depth + 2)}`, known.tokens);
    case "paragraph":
      return wrap("p", known.tokens);
    case "blockquote":
      return wrap("blockquote", known.tokens);
    case "strong":
    case "em":
    case "del":
      return wrap(known.type, known.tokens);
    case "br":
    case "hr":
      return document.createElement(known.type);
    case "codespan":
      return textElement("code", known.text);
    case "code":
      return codeBlock(known);
    case "list":
      return list(known);
    case "table":
      return table(known);
    case "link":
      return link(known.href, known.tokens.map(nodeOf));
    case "image":
      return link(known.href, [document.createTextNode(known.text || known.href)]);
    case "html":
      return known.block
        ? textElement("p", known.text.trimEnd(), "source")
        : document.createTextNode(known.text);
    case "escape":
      return document.createTextNode(known.text);
    case "text":
      return known.tokens === undefined ? document.createTextNode(known.text) : wrap("span", known.tokens);
    default:
      return document.createTextNode(token.raw);
  }
}

function wrap(tag: string, tokens: readonly Token[]): HTMLElement {
  const element = document.createElement(tag);
  element.append(...tokens.filter(({ type }) => type !== "space").map(nodeOf));
  return element;
}

function textElement(tag: string, text: string, className: string | null = null): HTMLElement {
  const element = document.createElement(tag);
  if (className !== null) element.className = className;
  element.textContent = text;
  return element;
}

/** Code under a line with its language and a copy button, where the browser lets a page copy. */
function codeBlock({ text, lang }: Tokens.Code): HTMLElement {
  const block = document.createElement("figure");
  const head = document.createElement("figcaption");
  head.append(textElement("span", lang?.split(/\s/)[0] ?? ""));
  if (navigator.clipboard !== undefined) {
    const copy = textElement("button", "Copy", "quiet");
    copy.addEventListener("click", () =>
      navigator.clipboard.writeText(text).then(
        () => {
          copy.textContent = "Copied";
        },
        () => {
          copy.textContent = "Not allowed";
        },
      ),
    );
    head.append(copy);
  }
  const code = document.createElement("pre");
  code.tabIndex = 0; // it scrolls, and so must be reachable by keyboard
  code.append(textElement("code", text));
  block.append(head, code);
  return block;
}

function list({ ordered, start, items }: Tokens.List): HTMLElement {
  const element = document.createElement(ordered ? "ol" : "ul");
  if (element instanceof HTMLOListElement && typeof start === "number" && start !== 1) element.start = start;
  element.append(
    ...items.map((item) => {
      const line = wrap(
        "li",
        item.tokens.filter(({ type }) => type !== "checkbox"),
      );
      if (item.task) {
        line.className = "task";
        line.prepend(item.checked ? "☑ " : "☐ ");
      }
      return line;
    }),
  );
  return element;
}

/** Table in a box of its own, which scrolls if the table is wider than the page. */
function table({ header, rows }: Tokens.Table): HTMLElement {
  const rowOf = (tag: string, cells: readonly Tokens.TableCell[]): HTMLElement => {
    const row = document.createElement("tr");
    row.append(
      ...cells.map(({ tokens, align }) => {
        const cell = wrap(tag, tokens);
        if (align !== null) cell.style.textAlign = align;
        return cell;
      }),
    );
    return row;
  };
  const element = document.createElement("table");
  element.append(rowOf("th", header), ...rows.map((cells) => rowOf("td", cells)));
  const box = document.createElement("div");
  box.className = "wide";
  box.append(element);
  return box;
}

function link(href: string, content: readonly Node[]): HTMLElement {
  const isSafe = /^(https?:|mailto:)/i.test(href);
  const element = document.createElement(isSafe ? "a" : "span");
  if (element instanceof HTMLAnchorElement) {
    element.href = href;
    element.target = "_blank";
    element.rel = "noopener noreferrer";
  }
  element.append(...content);
  return element;
}
