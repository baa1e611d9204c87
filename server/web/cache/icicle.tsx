import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import type { CacheNow } from "../../http/state-events.ts";
import { type Box, boxesOf, type TreeNode, treeOf } from "./tree.ts";

/** Units of the drawing's width, and of a level's height. */
const WIDTH = 1000;
const LEVEL = 30;
/** Minimum width of a box to be drawn, and to be reached by keyboard. */
const NARROWEST = 0.4;
const REACHED = 12;

export interface IcicleProps {
  readonly name: string;
  readonly cache: CacheNow;
  readonly colour: "age" | "reads";
  /** Node that fills the width; 0: all. */
  readonly zoomed: number;
  readonly onZoom: (id: number) => void;
  readonly onLook: (node: TreeNode | null) => void;
}

/** Prefix tree: a box is as wide as the pages at or below a node, and stands below its prefix. */
export function Icicle({ name, cache, colour, zoomed, onZoom, onLook }: IcicleProps): VNode {
  const tree = useMemo(() => treeOf(cache), [cache]);
  const boxes = useMemo(() => boxesOf(tree, zoomed), [tree, zoomed]);
  const levels = boxes[0]!.height + 1;
  const readsMax = Math.max(1, ...boxes.map(({ data }) => data.reads));
  return (
    // biome-ignore lint/a11y/useSemanticElements: a drawing is no form
    <svg
      class="icicle"
      viewBox={`0 0 ${WIDTH} ${levels * LEVEL}`}
      preserveAspectRatio="none"
      height={levels * LEVEL}
      role="group"
      aria-label={`${name}: ${cache.pagesTotal} pages in ${cache.nodesTotal} nodes`}
      onMouseLeave={() => onLook(null)}
    >
      {boxes
        .filter(({ x0, x1 }) => (x1 - x0) * WIDTH > NARROWEST)
        .map((box) => (
          <Node
            key={box.data.id}
            box={box}
            share={shareOf(box.data, colour, readsMax)}
            onZoom={onZoom}
            onLook={onLook}
          />
        ))}
    </svg>
  );
}

function Node(
  given: { readonly box: Box; readonly share: number } & Pick<IcicleProps, "onZoom" | "onLook">,
): VNode {
  const { box, share, onZoom, onLook } = given;
  const { x0, x1, y0, data } = box;
  const width = (x1 - x0) * WIDTH;
  const state = data.locks > 0 ? " leased" : data.waiters > 0 ? " awaited" : "";
  return (
    // biome-ignore lint/a11y/useSemanticElements: a drawing has no buttons of its own
    <rect
      class={`node${state}`}
      style={{ fill: `color-mix(in oklab, var(--accent) ${Math.round(100 * share)}%, var(--free))` }}
      x={x0 * WIDTH}
      y={y0 * LEVEL}
      width={width}
      height={LEVEL - 1}
      role="button"
      aria-label={wordsOf(data)}
      tabIndex={width > REACHED ? 0 : -1}
      onClick={() => onZoom(data.id)}
      onKeyDown={({ key }) => {
        if (key === "Enter") onZoom(data.id);
      }}
      onMouseEnter={() => onLook(data)}
      onFocus={() => onLook(data)}
    />
  );
}

/** Share of the full colour, 0 to 1. */
function shareOf({ age, reads }: TreeNode, colour: IcicleProps["colour"], readsMax: number): number {
  const share = colour === "age" ? (age < 0 ? 1 : age) : Math.log1p(reads) / Math.log1p(readsMax);
  return 0.08 + 0.92 * share;
}

/** Sentence about a node. */
export function wordsOf({ id, start, end, pages, pagesBelow, reads, locks, waiters, age }: TreeNode): string {
  if (id === 0) return `All prefixes: ${pagesBelow} pages`;
  const below = pagesBelow > pages ? `, ${pagesBelow} with what follows` : "";
  const facts = [
    end > start ? `Tokens ${start + 1} to ${end}` : "Begin of a key's prefixes",
    `${pages} pages${below}`,
    `${reads} sequences began here`,
  ];
  if (locks > 0) facts.push(`leased by ${locks}`);
  if (waiters > 0) facts.push(`awaited by ${waiters}`);
  if (age >= 0)
    facts.push(age === 0 ? "evicted next" : `${Math.round(100 * age)} % of nodes are evicted before it`);
  return facts.join(" · ");
}
