/**
 * An answer's Markdown as elements of the page. No part of it becomes HTML: tags appear as text, and a picture
 * becomes a link to it. Only addresses of the web and of mail become links.
 */
import { Marked, type MarkedToken, type Token, type Tokens } from "marked";
import { Component, type ComponentChildren, h, type VNode } from "preact";
import { CodeBlock } from "./code-block.tsx";
import { Formula } from "./formula.tsx";
import { type MathToken, mathSyntax } from "./math-syntax.ts";

const marked = new Marked({ gfm: true, breaks: true, extensions: [...mathSyntax] });

export function Markdown({ text }: { readonly text: string }): VNode {
  const blocks = marked.lexer(text).filter(({ type }) => type !== "space");
  return (
    <div class="text body markdown">
      {blocks.map((block, at) => (
        <Block key={at} token={block} />
      ))}
    </div>
  );
}

/** Block that is rendered again only if its source has changed, so that a reader's selection stays. */
class Block extends Component<{ readonly token: Token }> {
  override shouldComponentUpdate({ token }: { readonly token: Token }): boolean {
    return token.raw !== this.props.token.raw;
  }

  override render(): ComponentChildren {
    return nodeOf(this.props.token);
  }
}

/** An unknown kind of token shows its source. */
function nodeOf(token: Token): ComponentChildren {
  const known = token as MarkedToken | MathToken;
  switch (known.type) {
    case "math":
      return <Formula tex={(known as MathToken).text} isBlock={(known as MathToken).isBlock} />;
    case "heading":
      return h(`h${Math.min(6, known.depth + 2)}`, null, nodesOf(known.tokens));
    case "paragraph":
      return <p>{nodesOf(known.tokens)}</p>;
    case "blockquote":
    case "strong":
    case "em":
    case "del":
      return h(known.type, null, nodesOf(known.tokens));
    case "br":
    case "hr":
      return h(known.type, null);
    case "codespan":
      return <code>{known.text}</code>;
    case "code":
      return <CodeBlock text={known.text} language={known.lang?.split(/\s/)[0] ?? ""} />;
    case "list":
      return list(known as Tokens.List);
    case "table":
      return table(known as Tokens.Table);
    case "link":
      return <Link href={known.href}>{nodesOf(known.tokens)}</Link>;
    case "image":
      return <Link href={known.href}>{known.text || known.href}</Link>;
    case "html":
      return known.block ? <p class="source">{known.text.trimEnd()}</p> : known.text;
    case "escape":
      return known.text;
    case "text":
      return known.tokens === undefined ? known.text : nodesOf(known.tokens);
    default:
      return token.raw;
  }
}

function nodesOf(tokens: readonly Token[] = []): ComponentChildren[] {
  return tokens.filter(({ type }) => type !== "space").map(nodeOf);
}

function list({ ordered, start, items }: Tokens.List): VNode {
  const lines = items.map(({ task, checked, tokens }, at) => (
    <li key={at} class={task ? "task" : undefined}>
      {task && (checked ? "☑ " : "☐ ")}
      {nodesOf(tokens.filter(({ type }) => type !== "checkbox"))}
    </li>
  ));
  return ordered ? <ol start={start === 1 ? undefined : Number(start)}>{lines}</ol> : <ul>{lines}</ul>;
}

/** Table in a box of its own, which scrolls if the table is wider than the page. */
function table({ header, rows }: Tokens.Table): VNode {
  const row = (tag: "th" | "td", cells: readonly Tokens.TableCell[]) =>
    cells.map(({ tokens, align }, at) => h(tag, { key: at, class: align ?? undefined }, nodesOf(tokens)));
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so must be reachable by keyboard
    <div class="wide" tabIndex={0}>
      <table>
        <thead>
          <tr>{row("th", header)}</tr>
        </thead>
        <tbody>
          {rows.map((cells, at) => (
            <tr key={at}>{row("td", cells)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Link({ href, children }: { readonly href: string; readonly children: ComponentChildren }): VNode {
  if (!/^(https?:|mailto:)/i.test(href)) return <span>{children}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer">
      {children}
    </a>
  );
}
