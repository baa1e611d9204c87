import { signal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import { call } from "../api.ts";

/** Time that the pointer stays on a node before its text is requested. */
const STAY_MS = 150;

interface TextFacts {
  readonly engine: number;
  readonly node: number;
  readonly text: string;
  readonly is_whole: boolean;
}

const shown = signal<TextFacts | null>(null);

/** First words of a node, if the operator allows them to be shown. `node` 0: none. */
export function NodeText({ engine, node }: { readonly engine: number; readonly node: number }): VNode {
  useEffect(() => {
    if (node === 0) return;
    const timer = setTimeout(async () => {
      try {
        const answer = await call(`v1/cache/text?engine=${engine}&node=${node}`);
        shown.value = (await answer.json()) as TextFacts;
      } catch {
        shown.value = null; // the node has been evicted meanwhile
      }
    }, STAY_MS);
    return () => clearTimeout(timer);
  }, [engine, node]);
  const facts = shown.value;
  const isThere = facts !== null && facts.engine === engine && facts.node === node;
  return <p class="node-text">{isThere ? `${facts.text}${facts.is_whole ? "" : " …"}` : ""}</p>;
}
