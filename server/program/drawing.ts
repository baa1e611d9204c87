import type { Node, Variable } from "../../scheduler/program/graph.ts";
import type { Program } from "../../scheduler/program/program.ts";

/** Graph of a program in Mermaid's syntax: calls as boxes, values as rounded boxes, with times. */
export function mermaidOf(program: Program): string {
  const { ids, edges } = drawing(program);
  const lines = [...ids].map(([thing, id]) =>
    isNode(thing) ? `  ${id}["${label(thing, "<br>")}"]` : `  ${id}(["${escaped(thing.name)}"])`,
  );
  return ["flowchart TD", ...lines, ...edges.map(([from, to]) => `  ${from} --> ${to}`), ""].join("\n");
}

/** Graph of a program in Graphviz's syntax. */
export function dotOf(program: Program): string {
  const { ids, edges } = drawing(program);
  const lines = [...ids].map(([thing, id]) =>
    isNode(thing)
      ? `  ${id} [shape=box, label="${label(thing, "\\n")}"];`
      : `  ${id} [label="${escaped(thing.name)}"];`,
  );
  return ["digraph program {", ...lines, ...edges.map(([from, to]) => `  ${from} -> ${to};`), "}", ""].join(
    "\n",
  );
}

function drawing(program: Program): {
  readonly ids: ReadonlyMap<Node | Variable, string>;
  readonly edges: readonly (readonly [string, string])[];
} {
  const ids = new Map<Node | Variable, string>();
  const edges: (readonly [string, string])[] = [];
  const idOf = (thing: Node | Variable): string => {
    let id = ids.get(thing);
    if (id === undefined) {
      id = `n${ids.size}`;
      ids.set(thing, id);
    }
    return id;
  };
  for (const variable of program.variables.values()) idOf(variable);
  for (const node of program.nodes.values()) {
    const id = idOf(node);
    for (const variable of node.reads) edges.push([idOf(variable), id]);
    for (const variable of node.outputs) edges.push([id, idOf(variable)]);
  }
  return { ids, edges };
}

function isNode(thing: Node | Variable): thing is Node {
  return "spec" in thing;
}

function label(node: Node, lineBreak: string): string {
  const { startedMs, endedMs } = node.times;
  const took = startedMs !== null && endedMs !== null ? `, ${Math.round(endedMs - startedMs)} ms` : "";
  return `${escaped(node.name)}${lineBreak}${node.state}${took}`;
}

/** Escapes a name; names hold letters, digits and a few signs, none of which ends a label. */
function escaped(name: string): string {
  return name.replace(/["\\<>]/g, "_");
}
