/** Graph, values and failures of a program, in plain cases. */

import { describe, expect, test } from "bun:test";
import { bodyOf, call, given, input, ManualProgram, output, sometime, soon, text } from "./factories.ts";
import { pathOf } from "./graph.ts";
import { type NodeSpec, type ProgramPart, programLimits, type RepeatSpec } from "./spec.ts";

function opened(nodes: readonly NodeSpec[], variables: ProgramPart["variables"] = []): ManualProgram {
  const host = new ManualProgram();
  expect(host.program.add({ nodes, variables })).toBeNull();
  return host;
}

/** Call `c` that is repeated on its own state until the test passes. */
function repeatUntil(until: RepeatSpec["until"], countMax: number): RepeatSpec {
  const body = bodyOf("c", ["state"]);
  return {
    kind: "repeat",
    name: "r",
    initial: "start",
    state: "state",
    body,
    until,
    countMax,
    output: "end",
  };
}

function refusalOf(nodes: readonly NodeSpec[], variables: ProgramPart["variables"] = []) {
  const host = new ManualProgram();
  const refusal = host.program.add({ nodes, variables });
  expect([...host.program.nodes.keys(), ...host.program.variables.keys()]).toEqual([]);
  return refusal;
}

function objectivesOf(host: ManualProgram): Record<string, string> {
  return Object.fromEntries(
    [...host.program.nodes.keys()].map((name) => {
      const { objective, taskGroup } = host.program.serviceOf(name);
      return [name, taskGroup === null ? objective : `${objective} ${taskGroup}`];
    }),
  );
}

describe("submit", () => {
  test("a cycle is refused with its calls in order", () => {
    expect(refusalOf([call("a", ["z"], ["x"]), call("b", ["x"], ["y"]), call("c", ["y"], ["z"])])).toEqual({
      code: "cycle",
      message: "Calls wait for each other: a → b → c → a.",
    });
  });

  test("a cycle by way of calls that are there already is refused, and nothing changes", () => {
    const host = opened([call("a", ["z"], ["x"])], [{ name: "z", value: null }]);
    expect(host.program.add({ nodes: [call("b", ["x"], ["z"])], variables: [] })?.code).toBe("cycle");
    expect(host.program.set("z", "now")).toBeNull();
    expect(host.promptOf("a")).toBe("a:<now>[x]");
  });

  test("what two calls write is refused with both", () => {
    expect(refusalOf([call("a", [], ["x"]), call("b", [], ["x"])])).toEqual({
      code: "twoProducers",
      message: "The variable x is written by a and by b; it can be set once.",
    });
  });

  test("a name that is no name, and of a long one its beginning", () => {
    expect(refusalOf([call("a b", [], ["x"])])?.message).toBe(
      'The name "a b" is not 1 to 128 letters, digits, dots, hyphens and underscores.',
    );
    expect(refusalOf([call("a", [], ["x".repeat(100_000)])])?.message.length).toBeLessThan(250);
  });

  test("what nothing declares or writes is refused with its reader", () => {
    expect(refusalOf([call("a", ["x"], ["y"])])).toEqual({
      code: "unknownName",
      message: "a reads x, which nothing declares or writes.",
    });
  });

  test("what a body reads is known, and a body's cycle is one", () => {
    const map = (body: ReturnType<typeof bodyOf>): NodeSpec => ({
      kind: "map",
      name: "m",
      over: "list",
      item: "item",
      body,
      output: "all",
      concurrencyMax: 4,
    });
    expect(refusalOf([map(bodyOf("c", ["item", "gone"]))], given("list"))?.message).toBe(
      "c reads gone, which nothing declares or writes.",
    );
    expect(refusalOf([map(bodyOf("c", ["item", "all"]))], given("list"))?.code).toBe("cycle");
  });

  test("text after the last output is refused; before it, every part is kept", () => {
    const parts = [text("a"), output("x"), text("b")];
    expect(refusalOf([{ kind: "call", name: "c", prompt: { kind: "text", parts } }])?.message).toBe(
      "c has text after its last output, which nothing would read.",
    );
    const host = opened([
      { kind: "call", name: "c", prompt: { kind: "text", parts: [...parts, output("y")] } },
    ]);
    expect(host.promptOf("c")).toBe("a[x]b[y]");
  });

  test("limits hold exactly", () => {
    const limits = { ...programLimits, nodesMax: 1, valueCharsMax: 3 };
    const host = new ManualProgram({ limits });
    const x = { name: "x", value: "abc" };
    expect(host.program.add({ nodes: [call("a", ["x"], ["y"])], variables: [x] })).toBeNull();
    expect(host.program.add({ nodes: [call("b", [], ["z"])], variables: [] })?.message).toBe(
      "2 calls; a program has at most 1.",
    );
    expect(host.program.add({ nodes: [], variables: [{ name: "v", value: "abcd" }] })?.message).toBe(
      "The value of v has 4 characters; at most 3 are taken.",
    );
    host.answer("a", "abcd");
    expect(host.show("y")).toBe("limit of a");
  });
});

describe("values", () => {
  test("a call begins when its last input is there, and its outputs go on at once", () => {
    const host = opened(
      [call("b", ["x", "given"], ["y"]), call("a", ["given"], ["x"]), call("c", ["x"], ["z"])],
      given("given"),
    );
    expect(host.batches).toEqual([["a"]]);
    host.answer("a", "one");
    expect(host.batches).toEqual([["a"], ["b", "c"]]);
    expect(host.promptOf("b")).toBe("b:<one><given>[y]");
  });

  test("set_twice: a variable is set once, by its producer or its client", () => {
    const host = opened([call("a", ["x"], ["y"])], [{ name: "x", value: null }]);
    expect(host.program.set("x", "1")).toBeNull();
    expect(host.program.set("x", "2")?.message).toBe("The variable x cannot be set: it is ready.");
    expect(host.program.set("y", "2")?.message).toBe("The variable y cannot be set: a writes it.");
    expect(host.program.set("z", "2")?.code).toBe("unknownName");
    expect(host.show("x")).toBe('"1"');
  });

  test("an empty variable may be given a writer later, and one with a value may not", () => {
    const host = opened([call("b", ["x"], ["y"])], [{ name: "x", value: null }]);
    expect(host.program.add({ nodes: [call("a", [], ["x"])], variables: [] })).toBeNull();
    host.answer("a", "1");
    expect(host.promptOf("b")).toBe("b:<1>[y]");
    expect(host.program.add({ nodes: [call("c", [], ["x"])], variables: [] })?.code).toBe("twoProducers");
  });

  test("transforms are applied where values are written and read, and a list is not a text", () => {
    const nodes: NodeSpec[] = [
      { kind: "call", name: "a", prompt: { kind: "text", parts: [output("list", { kind: "lines" })] } },
      {
        kind: "call",
        name: "b",
        prompt: { kind: "text", parts: [input("list", { kind: "join" }, { kind: "upper" }), output("y")] },
      },
      call("c", ["list"], ["z"]),
    ];
    const host = opened(nodes);
    host.answer("a", "one\ntwo");
    expect(host.show("list")).toBe('["one","two"]');
    expect(host.promptOf("b")).toBe("<ONE\nTWO>[y]");
    expect(host.program.variables.get("z")!.failure).toEqual({
      code: "transform",
      message: "list is a list of 2 items where a text is read; join it first.",
      origin: "c",
    });
  });

  test("a call with several outputs lets each be read as soon as it is there", () => {
    const host = opened([call("a", [], ["x", "y"]), call("b", ["x"], ["z"])]);
    host.program.wrote("a", 0, "first");
    expect([...host.running.keys()]).toEqual(["a", "b"]);
    host.program.wrote("a", 1, "second");
    host.program.ended("a");
    expect(host.show("y")).toBe('"second"');
  });

  test("a waiting call's prompt is told as far as it is known, and again when more is", () => {
    const host = opened(
      [call("c", ["x", "y", "z"], ["w"])],
      [
        { name: "x", value: null },
        { name: "y", value: null },
        { name: "z", value: null },
      ],
    );
    host.program.set("y", "2");
    host.program.set("x", "1");
    host.program.set("z", "3");
    expect(host.heads).toEqual(["c:", "c:<1><2>"]);
    expect(host.promptOf("c")).toBe("c:<1><2><3>[w]");
  });
});

describe("failures", () => {
  const nodes = [
    call("a", [], ["x"]),
    call("b", ["x"], ["y"]),
    call("c", ["y"], ["z"]),
    call("other", [], ["o"]),
    call("both", ["o", "y"], ["p"]),
  ];

  test("error_reaches_all_descendants_only, with origin and path", () => {
    const host = opened(nodes);
    host.break("a");
    host.answer("other");
    expect(["x", "y", "z", "o", "p"].map((name) => host.show(name))).toEqual([
      "engine of a",
      "engine of a",
      "engine of a",
      '"o"',
      "engine of a",
    ]);
    expect(pathOf(host.program.variables.get("p")!)).toEqual(["a", "x", "b", "y", "both", "p"]);
    expect(host.program.isDone).toBe(true);
  });

  test("a transform that fails, fails its variable and what reads it; the call's others are good", () => {
    const parts = [output("x", { kind: "nonsense" }), output("y")];
    const host = opened([
      { kind: "call", name: "a", prompt: { kind: "text", parts } },
      call("b", ["x"], ["z"]),
      call("c", ["y"], ["w"]),
    ]);
    host.answer("a");
    expect(["x", "y", "z"].map((name) => host.show(name))).toEqual([
      "transform of a",
      '"y"',
      "transform of a",
    ]);
    expect([...host.running.keys()]).toEqual(["c"]);
  });

  test("a call added after its input failed fails at once", () => {
    const host = opened(nodes);
    host.break("a");
    host.program.add({ nodes: [call("late", ["z"], ["l"])], variables: [] });
    expect(host.show("l")).toBe("engine of a");
  });

  test("cancel ends everything, and what is told afterwards comes too late", () => {
    const host = opened(nodes, [{ name: "empty", value: null }]);
    host.program.cancel();
    // Calls that ran, and calls with a partly known prompt.
    expect([...host.dropped].sort()).toEqual(["a", "b", "both", "c", "other"]);
    expect(host.show("x")).toBe("cancelled of a");
    expect(host.show("empty")).toBe("cancelled of empty");
    host.program.wrote("a", 0, "late");
    expect(host.show("x")).toBe("cancelled of a");
    expect(host.program.isDone).toBe(true);
    expect(host.program.add({ nodes: [], variables: [] })?.code).toBe("ended");
  });
});

describe("objectives", () => {
  const chainAndMap = [
    call("m1", [], ["x1"]),
    call("m2", [], ["x2"]),
    call("reduce", ["x1", "x2"], ["r"]),
    call("last", ["r"], ["final"]),
    call("idle", [], ["i"]),
  ];

  test("latency goes back along the only way, and is a task group's where there are several", () => {
    const host = opened(chainAndMap);
    host.program.want("final", soon);
    expect(objectivesOf(host)).toEqual({
      m1: "gang 0",
      m2: "gang 0",
      reduce: "latency",
      last: "latency",
      idle: "throughput",
    });
  });

  test("what is wanted with the graph is deduced before anything runs", () => {
    const host = new ManualProgram();
    expect(host.program.add({ nodes: chainAndMap, variables: [] }, { final: soon })).toBeNull();
    expect([...host.running.values()].map(({ service }) => service.objective)).toEqual([
      "gang",
      "gang",
      "throughput",
    ]);
    const unknown = host.program.add({ nodes: [], variables: [] }, { nothing: soon });
    expect(unknown).toEqual({ code: "unknownName", message: "There is no variable nothing." });
  });

  test("get_upgrades_class: a later wish raises, and none lowers", () => {
    const host = opened(chainAndMap);
    host.program.want("final", sometime);
    expect(objectivesOf(host).last).toBe("throughput");
    host.program.want("final", soon);
    const raised = objectivesOf(host);
    host.program.want("final", sometime);
    host.program.want("final", soon);
    expect(objectivesOf(host)).toEqual(raised);
    host.program.want("x1", { ...soon, tbtMs: 50 });
    expect(host.program.serviceOf("m1")).toMatchObject({ objective: "latency", taskGroup: null, tbtMs: 50 });
    expect(objectivesOf(host)).toEqual({ ...raised, m1: "latency" });
  });

  test("shared_var_two_consumers_grouped_twice: groups that share a call are one", () => {
    const host = opened([
      call("a", [], ["xa"]),
      call("b", [], ["xb"]),
      call("c", [], ["xc"]),
      call("left", ["xa", "xb"], ["l"]),
      call("right", ["xb", "xc"], ["r"]),
    ]);
    host.program.want("l", soon);
    host.program.want("r", soon);
    expect(objectivesOf(host)).toEqual({
      a: "gang 0",
      b: "gang 0",
      c: "gang 0",
      left: "latency",
      right: "latency",
    });
  });

  test("what is awaited before it is written is deduced when it is", () => {
    const host = opened([], [{ name: "x", value: null }]);
    host.program.want("x", soon);
    host.program.add({ nodes: [call("a", [], ["y"]), call("b", ["y"], ["x"])], variables: [] });
    expect(objectivesOf(host)).toEqual({ a: "latency", b: "latency" });
  });

  test("copies of a map are a task group, those of a repeat are not", () => {
    const map: NodeSpec = {
      kind: "map",
      name: "m",
      over: "list",
      item: "item",
      body: bodyOf("c", ["item"]),
      output: "all",
      concurrencyMax: 4,
    };
    const repeat = repeatUntil({ kind: "equals", text: "done" }, 2);
    const host = opened(
      [map, repeat],
      [
        { name: "list", value: ["1", "2"] },
        { name: "start", value: "s" },
      ],
    );
    host.program.want("all", soon);
    host.program.want("end", soon);
    expect(objectivesOf(host)).toEqual({
      m: "latency",
      r: "latency",
      "m[0]/c": "gang 0",
      "m[1]/c": "gang 0",
      "r[0]/c": "latency",
    });
  });

  test("the remaining path is the longest to an end", () => {
    const host = new ManualProgram({ expectedMs: ({ name }) => (name === "m1" ? 5 : 10) });
    host.program.add({ nodes: chainAndMap, variables: [] });
    const remaining = ["m1", "m2", "reduce", "last", "idle"].map(
      (name) => host.program.serviceOf(name).remainingMs,
    );
    expect(remaining).toEqual([25, 30, 20, 10, 10]);
    host.program.add({ nodes: [call("after", ["i", "final"], ["f"])], variables: [] });
    expect(host.program.serviceOf("m1").remainingMs).toBe(35);
    expect(host.program.serviceOf("idle").remainingMs).toBe(20);
  });
});

describe("shapes known on the way", () => {
  const map = (concurrencyMax: number): NodeSpec => ({
    kind: "map",
    name: "m",
    over: "list",
    item: "item",
    body: bodyOf("c", ["item", "around"]),
    output: "all",
    concurrencyMax,
  });
  const list = (count: number) => ({
    name: "list",
    value: Array.from({ length: count }, (_, index) => `${index}`),
  });

  test("a map runs its body per item, so many at once, and keeps the order", () => {
    const host = opened(
      [map(2), call("after", ["around"], ["x"])],
      [list(3), { name: "around", value: "A" }],
    );
    expect([...host.running.keys()]).toEqual(["after", "m[0]/c", "m[1]/c"]);
    expect(host.promptOf("m[1]/c")).toBe("c:<1><A>[result]");
    host.answer("m[1]/c", "b");
    expect([...host.running.keys()]).toEqual(["after", "m[0]/c", "m[2]/c"]);
    host.answer("m[2]/c", "c");
    host.answer("m[0]/c", "a");
    expect(host.show("all")).toBe('["a","b","c"]');
  });

  test("a map of nothing is an empty list; of more than 1,024 items it fails, as it does of a text", () => {
    const around = { name: "around", value: "A" };
    expect(opened([map(2)], [list(0), around]).show("all")).toBe("[]");
    const host = opened([map(2)], [list(1025), around]);
    expect(host.program.variables.get("all")!.failure!.message).toBe(
      "list has 1025 items; a map takes at most 1024.",
    );
    expect(opened([map(2)], [{ name: "list", value: "a" }, around]).show("all")).toBe("transform of m");
  });

  test("one body that fails fails the map; the others are dropped, and their failure stays theirs", () => {
    const host = opened([map(2)], [list(3), { name: "around", value: "A" }]);
    host.break("m[0]/c");
    expect(host.show("all")).toBe("engine of m[0]/c");
    expect(host.dropped).toEqual(["m[1]/c"]);
    expect(host.program.isDone).toBe(true);
  });

  test("a reduce goes through a list in order", () => {
    const reduce: NodeSpec = {
      kind: "reduce",
      name: "r",
      over: "list",
      item: "item",
      initial: "start",
      accumulator: "so_far",
      body: bodyOf("c", ["so_far", "item"]),
      output: "end",
    };
    const host = opened([reduce], [list(2), { name: "start", value: "S" }]);
    expect(host.promptOf("r[0]/c")).toBe("c:<S><0>[result]");
    host.answer("r[0]/c", "S0");
    expect(host.promptOf("r[1]/c")).toBe("c:<S0><1>[result]");
    host.answer("r[1]/c", "S01");
    expect(host.show("end")).toBe('"S01"');
  });

  test("a choice runs the body of the first case that fits, and no other", () => {
    const choose: NodeSpec = {
      kind: "choose",
      name: "ch",
      on: "kind",
      output: "end",
      otherwise: null,
      cases: [
        { test: { kind: "equals", text: "a" }, body: bodyOf("first", ["kind"]) },
        { test: { kind: "contains", text: "b" }, body: { nodes: [], result: "kind" } },
        {
          test: { kind: "passes", transforms: [{ kind: "lines" }, { kind: "upper" }] },
          body: bodyOf("never", []),
        },
      ],
    };
    const of = (value: string): ManualProgram => opened([choose], [{ name: "kind", value }]);
    expect([...of("a").running.keys()]).toEqual(["ch[0]/first"]);
    expect(of("xbx").show("end")).toBe('"xbx"');
    expect(of("none").show("end")).toBe("noCase of ch");
  });

  test("a repeat ends when its test passes, or at its count", () => {
    const repeat = repeatUntil({ kind: "contains", text: "DONE" }, 3);
    const start = { name: "start", value: "DONE" };
    const host = opened([repeat], [start]);
    host.answer("r[0]/c", "more");
    host.answer("r[1]/c", "is DONE");
    expect(host.show("end")).toBe('"is DONE"');
    const other = opened([repeat], [start]);
    for (const index of [0, 1, 2]) other.answer(`r[${index}]/c`, `${index}`);
    expect(other.show("end")).toBe('"2"');
  });

  test("copies that would be more than a program may have fail the node that makes them", () => {
    const host = new ManualProgram({ limits: { ...programLimits, nodesMax: 3 } });
    host.program.add({ nodes: [map(4)], variables: [list(3), { name: "around", value: "A" }] });
    expect(host.program.variables.get("all")!.failure).toEqual({
      code: "limit",
      message: "4 calls with those of m; a program has at most 3.",
      origin: "m",
    });
    expect(host.running.size).toBe(0);
  });
});

describe("what nobody reads any more is given up", () => {
  const names = ({ program }: ManualProgram) => [[...program.nodes.keys()], [...program.variables.keys()]];

  test("a released value goes with its last reader, a call with the last of its outputs", () => {
    const host = opened(
      [call("a", ["x"], ["y", "z"]), call("b", ["y"], ["w"])],
      [{ name: "x", value: "in" }],
    );
    expect(host.program.release("y")).toBeNull();
    host.answer("a");
    expect(host.promptOf("b")).toContain("<y>");
    expect(names(host)).toEqual([
      ["a", "b"],
      ["x", "y", "z", "w"],
    ]);
    host.answer("b");
    expect(names(host)).toEqual([
      ["a", "b"],
      ["x", "z", "w"],
    ]);
    for (const name of ["x", "z", "w"]) expect(host.program.release(name)).toBeNull();
    expect(names(host)).toEqual([[], []]);
    expect(host.program.release("w")).toEqual({ code: "unknownName", message: "There is no variable w." });
    // Names of forgotten nodes are free.
    expect(host.program.add({ nodes: [call("a", [], ["x"])], variables: [] })).toBeNull();
    expect(host.program.isDone).toBe(false);
  });

  test("with a map go the calls of its bodies, and what they read stays until then", () => {
    const map: NodeSpec = {
      kind: "map",
      name: "each",
      over: "list",
      item: "x",
      body: bodyOf("inner", ["x", "head"]),
      output: "results",
      concurrencyMax: 1,
    };
    const host = opened(
      [map],
      [
        { name: "list", value: ["1", "2"] },
        { name: "head", value: "h" },
      ],
    );
    for (const name of ["head", "list", "results"]) host.program.release(name);
    host.answer("each[0]/inner");
    expect(host.promptOf("each[1]/inner")).toContain("<h>");
    host.answer("each[1]/inner");
    expect(names(host)).toEqual([[], []]);
    expect(host.program.isDone).toBe(true);
  });

  test("a session that releases what it has read stays small for ever", () => {
    const host = new ManualProgram({ limits: { ...programLimits, nodesMax: 2, variablesMax: 2 } });
    for (let turn = 0; turn < 100; turn++) {
      const reads = turn === 0 ? [] : [`v${turn - 1}`];
      const part = { nodes: [call(`c${turn}`, reads, [`v${turn}`])], variables: [] };
      expect(host.program.add(part, { [`v${turn}`]: soon })).toBeNull();
      if (turn > 0) host.program.release(`v${turn - 1}`);
      host.answer(`c${turn}`);
    }
    expect(names(host)).toEqual([["c99"], ["v99"]]);
  });
});

describe("a part that is added in steps", () => {
  const many = Array.from({ length: 300 }, (_, i) =>
    call(`c${i}`, i % 3 === 0 ? [] : [`o${i - 1}`], [`o${i}`]),
  );

  test("comes to the same as one that is added at once", () => {
    const atOnce = opened(many);
    const inSteps = new ManualProgram();
    let steps = 0;
    const adding = inSteps.program.adding({ nodes: many, variables: [] });
    for (let step = adding.next(); ; step = adding.next(), steps++) {
      if (step.done === true) {
        expect(step.value).toBeNull();
        break;
      }
    }
    expect(steps).toBeGreaterThan(many.length);
    const seen = ({ program }: ManualProgram) => [...program.nodes].map(([name, { state }]) => [name, state]);
    expect(seen(inSteps)).toEqual(seen(atOnce));
    expect(objectivesOf(inSteps)).toEqual(objectivesOf(atOnce));
  });

  test("is refused as it would be at once, and nothing changes", () => {
    const host = new ManualProgram();
    const adding = host.program.adding({ nodes: [...many, call("c0", [], ["p"])], variables: [] });
    let step = adding.next();
    while (step.done !== true) step = adding.next();
    expect(step.value?.code).toBe("duplicateName");
    expect([...host.program.nodes.keys(), ...host.program.variables.keys()]).toEqual([]);
  });

  test("hears at its end what became of calls meanwhile", () => {
    const host = opened([call("first", [], ["x"])]);
    const adding = host.program.adding({ nodes: [...many, call("last", ["x"], ["y"])], variables: [] });
    for (let i = 0; i < 20; i++) adding.next();
    host.program.wrote("first", 0, "soon");
    host.program.ended("first");
    expect(host.program.variables.get("x")!.state).toBe("pending");
    while (adding.next().done !== true);
    expect(host.program.variables.get("x")!.state).toBe("ready");
    expect(host.promptOf("last")).toBe("last:<soon>[y]");
  });

  test("ends early when the program is cancelled", () => {
    const host = new ManualProgram();
    const adding = host.program.adding({ nodes: many, variables: [] });
    let step = adding.next();
    while (step.done !== true && host.program.nodes.size < 10) step = adding.next();
    host.program.cancel();
    step = adding.next();
    expect(step.done === true && step.value?.code).toBe("ended");
    expect(host.program.isDone).toBe(true);
  });
});
