/** Invariants of programs, on random graphs, answers, failures and event orders. */

import { test } from "bun:test";
import fc from "fast-check";
import { assert } from "../../base/assert.ts";
import { runs } from "../../tests/support/property.ts";
import { criticalPath, storiesOf } from "./explain.ts";
import { call, input, ManualProgram, output, sometime, soon } from "./factories.ts";
import { type Node, pathOf } from "./graph.ts";
import type { ReadyCall } from "./program.ts";
import type { CallSpec, NodeSpec } from "./spec.ts";

/** Graph of calls: call i reads some outputs of earlier calls, and perhaps the client's variable. */
interface GraphCase {
  readonly reads: readonly (readonly number[])[];
  readonly readsExternal: readonly boolean[];
  /** Failing calls, by call. */
  readonly breaks: readonly boolean[];
  /** Choices of the next running call to answer, in turn. */
  readonly turns: readonly number[];
  readonly awaited: readonly { readonly call: number; readonly latency: boolean }[];
  /** Sizes of the parts in which the graph is added. */
  readonly parts: readonly number[];
  readonly cancelAfter: number;
}

const graphCase: fc.Arbitrary<GraphCase> = fc.integer({ min: 1, max: 9 }).chain((count) => {
  const each = <Value>(value: (index: number) => fc.Arbitrary<Value>): fc.Arbitrary<Value[]> =>
    fc.tuple(...Array.from({ length: count }, (_, index) => value(index)));
  return fc.record({
    reads: each((index) =>
      fc.uniqueArray(fc.nat({ max: Math.max(0, index - 1) }), { maxLength: Math.min(3, index) }),
    ),
    readsExternal: each(() => fc.boolean()),
    breaks: each(() => fc.integer({ min: 0, max: 5 }).map((value) => value === 0)),
    turns: fc.array(fc.nat(), { minLength: 1, maxLength: 12 }),
    awaited: fc.array(fc.record({ call: fc.nat({ max: count - 1 }), latency: fc.boolean() }), {
      maxLength: 4,
    }),
    parts: fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 4 }),
    cancelAfter: fc.integer({ min: 0, max: 30 }),
  });
});

function callsOf({ reads, readsExternal }: GraphCase): CallSpec[] {
  return reads.map((own, index) =>
    call(
      `c${index}`,
      [...own.map((other) => `v${other}`), ...(readsExternal[index] ? ["external"] : [])],
      [`v${index}`],
    ),
  );
}

/** Checks at every event that no call runs early or twice and no variable is set twice. */
class CheckedProgram extends ManualProgram {
  readonly #told = new Set<string>();
  readonly #set = new Set<string>();

  override onReady(calls: readonly ReadyCall[]): void {
    for (const ready of calls) {
      const node = this.program.nodes.get(ready.call)!;
      assert(
        node.inputs.every(({ state }) => state === "ready"),
        `${ready.call} runs once its inputs are ready`,
      );
      assert(!this.#told.has(ready.call), `${ready.call} runs once`);
      this.#told.add(ready.call);
    }
    super.onReady(calls);
  }

  override onSettled(variable: Parameters<ManualProgram["onSettled"]>[0]): void {
    assert(!this.#set.has(variable.name), `${variable.name} is set once`);
    this.#set.add(variable.name);
    super.onSettled(variable);
  }

  get isComplete(): boolean {
    return this.program.isDone && this.running.size === 0;
  }
}

/** Runs the case to its end; the client sets its variable after three events. */
function run(graph: GraphCase, { cancels = false, inParts = false, releases = false } = {}): CheckedProgram {
  const host = new CheckedProgram();
  const nodes = callsOf(graph);
  const external = { name: "external", value: null };
  const refused = host.program.add({ nodes: inParts ? [] : nodes, variables: [external] });
  assert(refused === null, "graphs are good");
  for (let at = 0, part = 0; inParts && at < nodes.length; part++) {
    const size = graph.parts[part % graph.parts.length]!;
    assert(host.program.add({ nodes: nodes.slice(at, at + size), variables: [] }) === null, "parts are good");
    at += size;
  }
  for (const { call: index, latency } of graph.awaited)
    host.program.want(`v${index}`, latency ? soon : sometime);
  if (releases)
    for (const name of [...host.program.variables.keys()])
      if (name !== "external") host.program.release(name);
  for (let event = 0; !host.program.isDone || host.running.size > 0; event++) {
    host.nowMs += 1;
    if (cancels && event === graph.cancelAfter) {
      host.program.cancel();
      break;
    }
    if (event === 3) host.program.set("external", "now");
    const names = [...host.running.keys()];
    const name = names[graph.turns[event % graph.turns.length]! % Math.max(1, names.length)];
    if (name === undefined) {
      assert(event <= 3, "there is always something that runs, once the client has set its variable");
      continue;
    }
    host.program.placed(name);
    host.program.started(name);
    host.nowMs += 1;
    host.program.drewFirst(name);
    host.nowMs += 1;
    if (graph.breaks[Number(name.slice(1))]) host.break(name);
    else host.answer(name);
  }
  return host;
}

test("errors reach everything that reads them and nothing else, whatever ends first", () => {
  fc.assert(
    fc.property(graphCase, (graph) => {
      const host = run(graph);
      assert(host.isComplete, "the program ends");
      const fails: boolean[] = [];
      graph.reads.forEach((own, index) => {
        fails.push(own.some((other) => fails[other]!) || graph.breaks[index]!);
        const variable = host.program.variables.get(`v${index}`)!;
        assert(variable.state === (fails[index] ? "failed" : "ready"), `v${index} is ${variable.state}`);
        if (!fails[index]) return;
        const path = pathOf(variable);
        assert(
          path[0] === variable.failure!.origin && path.at(-1) === `v${index}`,
          "a path leads from origin to value",
        );
        assert(graph.breaks[Number(path[0]!.slice(1))]!, "it begins where something failed");
        for (let at = 2; at < path.length; at += 2) {
          assert(
            host.program.nodes.get(path[at]!)!.inputs.some(({ name }) => name === path[at - 1]),
            "along edges",
          );
        }
      });
    }),
    runs(300),
  );
});

test("added in parts, a program computes the same values and awaits them in the same way", () => {
  fc.assert(
    fc.property(graphCase, (graph) => {
      const [whole, inParts] = [run(graph), run(graph, { inParts: true })];
      for (const [name, { state }] of whole.program.variables) {
        assert(inParts.program.variables.get(name)!.state === state, `${name} is ${state}`);
      }
    }),
    runs(200),
  );
});

test("a program whose values are released computes the same, and in the end nothing is left of it", () => {
  fc.assert(
    fc.property(graphCase, (graph) => {
      const [kept, released] = [run(graph), run(graph, { releases: true })];
      const tellings = (host: CheckedProgram): string[] =>
        host.settled.map(({ name, state }) => `${name} ${state}`);
      assert(tellings(kept).join() === tellings(released).join(), "the same values in the same order");
      const left = [...released.program.nodes.keys(), ...released.program.variables.keys()];
      assert(left.join() === "external", `nothing is left but the client's own, but ${left.join()} is`);
    }),
    runs(200),
  );
});

test("a cancelled program ends at once, and everything in it", () => {
  fc.assert(
    fc.property(graphCase, (graph) => {
      const host = run(graph, { cancels: true });
      assert(host.isComplete, "nothing is left to run");
      for (const { state } of host.program.variables.values()) {
        assert(state === "ready" || state === "failed" || state === "empty", "and nothing to wait for");
      }
    }),
    runs(200),
  );
});

test("deduction is idempotent and only raises; task groups have members of one kind", () => {
  const RANKS = ["throughput", "gang", "latency"];
  fc.assert(
    fc.property(graphCase, (graph) => {
      const host = new ManualProgram();
      host.program.add({ nodes: callsOf(graph), variables: [{ name: "external", value: null }] });
      const state = (): string[] =>
        [...host.program.nodes.keys()].map((name) => {
          const { objective, taskGroup } = host.program.serviceOf(name);
          return `${RANKS.indexOf(objective)} ${taskGroup}`;
        });
      for (const { call: index, latency } of graph.awaited) {
        const before = state();
        host.program.want(`v${index}`, latency ? soon : sometime);
        const after = state();
        host.program.want(`v${index}`, latency ? soon : sometime);
        assert(state().join() === after.join(), "twice is once");
        after.forEach((now, at) => {
          assert(now[0]! >= before[at]![0]!, "nothing is lowered");
          assert(now.endsWith("null") === (now[0] !== "1"), "who is in a task group has its number");
        });
      }
    }),
    runs(300),
  );
});

test("the critical path adds up to the time that the client waited", () => {
  fc.assert(
    fc.property(graphCase, fc.boolean(), (graph, inParts) => {
      const { program } = run(graph, { inParts });
      for (const variable of program.variables.values()) {
        let at = program.arrivedMs;
        for (const { fromMs, toMs } of criticalPath(program, variable)) {
          assert(fromMs === at && toMs > fromMs, "parts follow each other");
          at = toMs;
        }
        assert(at === variable.settledMs, "up to the value");
      }
      assert(storiesOf(program).length === program.nodes.size, "every call has its story");
    }),
    runs(200),
  );
});

/** Nodes with bodies over the client's list and text, some nested. */
const nested = fc.letrec<{ node: NodeSpec }>((tie) => ({
  node: fc.oneof(
    { maxDepth: 2 },
    fc.constant<NodeSpec>(call("leaf", ["word"], ["result"])),
    fc.tuple(tie("node"), fc.integer({ min: 1, max: 4 })).map(([inner, concurrencyMax]): NodeSpec => {
      return {
        kind: "map",
        name: "map",
        over: "list",
        item: unique(),
        body: joined(inner),
        output: "result",
        concurrencyMax,
      };
    }),
    tie("node").map((inner): NodeSpec => {
      return {
        kind: "reduce",
        name: "reduce",
        over: "list",
        item: unique(),
        initial: "word",
        accumulator: unique(),
        body: joined(inner),
        output: "result",
      };
    }),
    fc.tuple(tie("node"), fc.integer({ min: 1, max: 3 })).map(([inner, countMax]): NodeSpec => {
      const until = { kind: "equals" as const, text: "stop" };
      return {
        kind: "repeat",
        name: "repeat",
        initial: "word",
        state: unique(),
        body: joined(inner),
        until,
        countMax,
        output: "result",
      };
    }),
    fc.constant<NodeSpec>({
      kind: "choose",
      name: "choose",
      on: "word",
      cases: [{ test: { kind: "contains", text: "w" }, body: { nodes: [], result: "word" } }],
      otherwise: null,
      output: "result",
    }),
  ),
}));

let names = 0;

function unique(): string {
  names += 1;
  return `name${names}`;
}

/** Makes a body of one node; another call turns a list value into a text. */
function joined(node: NodeSpec): { nodes: NodeSpec[]; result: string } {
  const own = unique();
  const inner: NodeSpec = node.kind === "call" ? call(node.name, ["word"], [own]) : { ...node, output: own };
  if (node.kind !== "map") return { nodes: [inner], result: own };
  const last = unique();
  const parts = [input(own, { kind: "join" }), output(last)];
  return { nodes: [inner, { kind: "call", name: "join", prompt: { kind: "text", parts } }], result: last };
}

test("programs whose shape is known on the way end, in any order of answers, with failures and without", () => {
  fc.assert(
    fc.property(
      nested.node,
      fc.integer({ min: 0, max: 4 }),
      fc.array(fc.nat(), { minLength: 1, maxLength: 8 }),
      fc.integer({ min: -1, max: 12 }),
      (node, items, turns, breakAt) => {
        const host = new CheckedProgram();
        const list = Array.from({ length: items }, (_, index) => `${index}`);
        const refusal = host.program.add({
          nodes: [node],
          variables: [
            { name: "list", value: list },
            { name: "word", value: "w" },
          ],
        });
        assert(refusal === null, "the program is good");
        host.program.want("result", soon);
        let hasBroken = false;
        for (let event = 0; host.running.size > 0; event++) {
          host.nowMs += 1;
          const running = [...host.running.keys()];
          const name = running[turns[event % turns.length]! % running.length]!;
          if (event === breakAt) {
            hasBroken = true;
            host.break(name);
          } else host.answer(name);
          assert(host.running.size <= 4 ** 3, "bodies keep to their concurrency");
        }
        assert(host.program.isDone, "nothing waits for what does not come");
        const result = host.program.variables.get("result")!;
        assert(result.state === (hasBroken ? "failed" : "ready"), `the result is ${result.state}`);
        const calls = [...host.program.nodes.values()].filter(({ spec }) => spec.kind === "call");
        assert(
          calls.every(({ objective }: Node) => objective !== "throughput"),
          "every copy is awaited as its node is",
        );
      },
    ),
    runs(300),
  );
});
