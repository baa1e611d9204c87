import { describe, expect, test } from "bun:test";
import { DEMAND_LOADS, decideResidency, type ModelState, residentBytes, STAY_LOADS } from "./residency.ts";

/** An idle model of 10 bytes that loads in 1,000 ms and was last used at time 0. */
function model(name: string, changes: Partial<ModelState> = {}): ModelState {
  return {
    name,
    bytes: 10,
    loadMs: 1000,
    phase: "out",
    users: 0,
    waitingSinceMs: null,
    loadedMs: 0,
    usedMs: 0,
    keptUntilMs: Number.POSITIVE_INFINITY,
    isPinned: false,
    ...changes,
  };
}

const loaded = (name: string, changes: Partial<ModelState> = {}) => model(name, { phase: "in", ...changes });
const asked = (name: string, waitingSinceMs: number, changes: Partial<ModelState> = {}) =>
  model(name, { waitingSinceMs, ...changes });

describe("loading", () => {
  test("a model that a request waits for is loaded where it fits, and others are not", () => {
    expect(decideResidency([asked("a", 1), model("b")], 10, 5)).toEqual({
      load: ["a"],
      leave: [],
      againMs: null,
    });
  });

  test("bytes count, not numbers: small models share the memory of a large one", () => {
    const models = [
      asked("large", 9, { bytes: 20 }),
      loaded("a"),
      loaded("b", { usedMs: 1 }),
      loaded("c", { usedMs: 2 }),
    ];
    expect(decideResidency(models, 30, 5000).leave).toEqual(["a", "b"]);
  });

  test("the longest waiting request goes first, and later ones take no memory before it", () => {
    const models = [
      asked("small", 2, { bytes: 1 }),
      asked("large", 1, { bytes: 10 }),
      loaded("a", { users: 1, usedMs: 9 }),
    ];
    expect(decideResidency(models, 15, 10)).toEqual({ load: [], leave: [], againMs: 1000 });
  });

  test("memory that is about to be free is waited for, and costs no other model", () => {
    const models = [asked("a", 1), model("b", { phase: "leaving", users: 1 }), loaded("c")];
    expect(decideResidency(models, 20, 5000)).toEqual({ load: [], leave: [], againMs: null });
  });
});

describe("dropping", () => {
  test("the least recently used idle model makes room", () => {
    const models = [loaded("a", { usedMs: 20 }), loaded("b", { usedMs: 10 }), asked("c", 1)];
    expect(decideResidency(models, 20, 5000)).toEqual({ load: [], leave: ["b"], againMs: null });
  });

  test("an idle model goes before a busy one, whichever was used last", () => {
    const models = [loaded("busy", { users: 1, usedMs: 1 }), loaded("idle", { usedMs: 4000 }), asked("c", 1)];
    expect(decideResidency(models, 20, 5000).leave).toEqual(["idle"]);
  });

  test("no model goes whose memory is not needed", () => {
    const models = [loaded("a", { bytes: 1 }), loaded("b", { bytes: 10, usedMs: 1 }), asked("c", 1)];
    expect(decideResidency(models, 11, 5000).leave).toEqual(["b"]);
  });

  test("a pinned model stays", () => {
    const models = [loaded("a", { isPinned: true }), asked("b", 1)];
    expect(decideResidency(models, 10, 5000)).toEqual({ load: [], leave: [], againMs: null });
  });

  test("an idle model goes when its time is over, and a busy or pinned one does not", () => {
    const models = [
      loaded("a", { keptUntilMs: 100 }),
      loaded("b", { keptUntilMs: 100, users: 1 }),
      loaded("c", { keptUntilMs: 100, isPinned: true }),
    ];
    expect(decideResidency(models, 99, 99)).toEqual({ load: [], leave: [], againMs: 100 });
    expect(decideResidency(models, 99, 100)).toEqual({ load: [], leave: ["a"], againMs: null });
  });
});

describe("a model in demand", () => {
  test("stays for as long as its load took, and then makes room", () => {
    const models = [loaded("a", { users: 1, loadedMs: 500 }), asked("b", 1)];
    const freeMs = 500 + STAY_LOADS * 1000;
    expect(decideResidency(models, 10, 600)).toEqual({ load: [], leave: [], againMs: freeMs });
    expect(decideResidency(models, 10, freeMs)).toEqual({ load: [], leave: ["a"], againMs: null });
  });

  test("counts as idle a tenth of its load after its last request", () => {
    const models = [loaded("a", { loadedMs: 500, usedMs: 600 }), asked("b", 1)];
    const freeMs = 600 + DEMAND_LOADS * 1000;
    expect(decideResidency(models, 10, 650).againMs).toBe(freeMs);
    expect(decideResidency(models, 10, freeMs).leave).toEqual(["a"]);
  });
});

test("models that load, are loaded or leave take memory", () => {
  const models = [
    model("a"),
    loaded("b"),
    model("c", { phase: "loading" }),
    model("d", { phase: "leaving" }),
  ];
  expect(residentBytes(models)).toBe(30);
});
