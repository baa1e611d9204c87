import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { type PlacedNode, type ProgramFacts, placed } from "./program.ts";

/** Pixels of a node, and of the space between nodes. */
const WIDTH = 132;
const HEIGHT = 26;
const GAP_X = 36;
const GAP_Y = 8;
/** Characters of a name that a node has room for. */
const NAME_MAX = 16;

/** Calls of a program, left to right, coloured by state; the critical path has bold edges. */
export function Graph({ id, graph }: Pick<ProgramFacts, "id" | "graph">): VNode | null {
  const nodes = useMemo(() => placed(graph), [graph]);
  if (nodes.length < 2) return null;
  const width = (1 + Math.max(...nodes.map(({ column }) => column))) * (WIDTH + GAP_X) - GAP_X + 4;
  const height = (1 + Math.max(...nodes.map(({ row }) => row))) * (HEIGHT + GAP_Y) - GAP_Y + 4;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so must be reachable by keyboard
    <section class="wide" tabIndex={0} aria-label={`Graph of ${id}`}>
      <svg class="graph" width={width} height={height} viewBox={`-2 -2 ${width} ${height}`} role="img">
        <title>{wordsOf(nodes)}</title>
        {nodes.flatMap((node, at) =>
          node.after.map((other) => <Edge key={`${other} ${at}`} from={nodes[other]!} to={node} />),
        )}
        {nodes.map((node) => (
          <Box key={node.name} node={node} />
        ))}
      </svg>
      {graph.nodesTotal > nodes.length && (
        <p class="hint">
          The first {nodes.length} of {graph.nodesTotal} calls
        </p>
      )}
    </section>
  );
}

function Edge({ from, to }: { readonly from: PlacedNode; readonly to: PlacedNode }): VNode {
  const x1 = xOf(from) + WIDTH;
  const x2 = xOf(to);
  const [y1, y2] = [yOf(from) + HEIGHT / 2, yOf(to) + HEIGHT / 2];
  const middle = (x1 + x2) / 2;
  const isCritical = from.isCritical && to.isCritical;
  return (
    <path
      class={isCritical ? "edge critical" : "edge"}
      d={`M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`}
    />
  );
}

function Box({ node }: { readonly node: PlacedNode }): VNode {
  const { name, kind, state, isCritical } = node;
  const short = name.length > NAME_MAX ? `…${name.slice(1 - NAME_MAX)}` : name;
  return (
    <g
      class={`call ${state}${isCritical ? " critical" : ""}`}
      transform={`translate(${xOf(node)},${yOf(node)})`}
    >
      <title>{`${name}: ${kind}, ${state}${isCritical ? ", on the critical path" : ""}`}</title>
      <rect width={WIDTH} height={HEIGHT} rx={4} />
      <text x={8} y={17}>
        {short}
      </text>
    </g>
  );
}

/** Sentence about the graph, for those who cannot see it. */
function wordsOf(nodes: readonly PlacedNode[]): string {
  const count = (wanted: PlacedNode["state"]) => nodes.filter(({ state }) => state === wanted).length;
  const states = (["running", "waiting", "done", "failed"] as const).map(
    (state) => `${count(state)} ${state}`,
  );
  const path = nodes.filter(({ isCritical }) => isCritical).map(({ name }) => name);
  return `${nodes.length} calls: ${states.join(", ")}. Critical path: ${path.join(", ")}.`;
}

function xOf({ column }: PlacedNode): number {
  return column * (WIDTH + GAP_X);
}

function yOf({ row }: PlacedNode): number {
  return row * (HEIGHT + GAP_Y);
}
