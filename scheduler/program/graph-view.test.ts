/** Graph of a program as people look at it. */
import { expect, test } from "bun:test";
import { call, given, ManualProgram, sometime } from "./factories.ts";
import { viewOf } from "./graph-view.ts";

/** Call beside a chain of three, and a call that reads the ends of both. */
const nodes = [
  call("short", ["x"], ["s"]),
  call("long", ["x"], ["l"]),
  call("longer", ["l"], ["m"]),
  call("longest", ["m"], ["n"]),
  call("both", ["s", "n"], ["end"]),
];

function opened(): ManualProgram {
  const host = new ManualProgram();
  expect(host.program.add({ nodes, variables: given("x") })).toBeNull();
  expect(host.program.want("end", sometime)).toBeNull();
  return host;
}

const criticalIn = (host: ManualProgram) =>
  viewOf(host.program.nodes, 10)
    .nodes.filter(({ isCritical }) => isCritical)
    .map(({ name }) => name);

test("nodes have states, and follow those whose values they read", () => {
  const { program } = opened();
  expect(viewOf(program.nodes, 10)).toEqual({
    nodesTotal: 5,
    nodes: [
      { name: "short", kind: "call", state: "running", after: [], isCritical: false },
      { name: "long", kind: "call", state: "running", after: [], isCritical: true },
      { name: "longer", kind: "call", state: "waiting", after: [1], isCritical: true },
      { name: "longest", kind: "call", state: "waiting", after: [2], isCritical: true },
      { name: "both", kind: "call", state: "waiting", after: [0, 3], isCritical: true },
    ],
  });
  expect(viewOf(program.nodes, 3)).toMatchObject({ nodesTotal: 5, nodes: [{}, {}, { after: [1] }] });
});

test("the critical path leads from where the most is left, and back by the last inputs", () => {
  const host = opened();
  host.answer("long", "l");
  expect(criticalIn(host)).toEqual(["long", "longer", "longest", "both"]);
  host.answer("longer", "m");
  host.answer("longest", "n");
  expect(criticalIn(host)).toEqual(["short", "both"]);
  host.answer("short", "s");
  host.answer("both", "end");
  expect(criticalIn(host)).toEqual(["short", "both"]);
});
