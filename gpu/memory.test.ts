import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../tests/support/property.ts";
import {
  formatBytes,
  type MemoryInput,
  type MemoryPlan,
  planMemory,
  plannedBytes,
  reserveOf,
  STATES_MIN,
} from "./memory.ts";

const mib = 2 ** 20;
const gib = 2 ** 30;

/** Plan input: 1 GiB of weights, 16 tokens per page of 1 MiB, a context of 1 GiB, 32 GiB available. */
const input = (changes: Partial<MemoryInput> = {}): MemoryInput => ({
  compute: "bf16",
  isRounded: true,
  weightBytes: gib,
  pageBytes: mib,
  pageTokens: 16,
  states: null,
  workspaceBytes: 128 * mib,
  engines: 1,
  contextMax: 16_384,
  availableBytes: 32 * gib,
  kvBytes: null,
  ...changes,
});
const pages = (plan: MemoryPlan): number => {
  if (plan.kind === "refused") throw new Error(plan.reason);
  return plan.pages;
};
const refusal = (plan: MemoryPlan) => {
  if (plan.kind === "fits") throw new Error(`fits with ${plan.pages} pages`);
  return plan;
};

test("the table adds up to what is available", () => {
  const plan = planMemory(input());
  expect(plan.rows.map((row) => row.name)).toEqual(["weights", "KV cache", "workspaces", "reserve", "free"]);
  expect(plan.rows.reduce((sum, row) => sum + row.bytes, 0)).toBe(32 * gib);
});

test("adapters have a row, and need room as weights do", () => {
  const plan = planMemory(input({ adapters: { bytes: gib / 2, count: 3 } }));
  expect(plan.rows[1]).toEqual({ name: "adapters", bytes: gib / 2, note: "3 of --lora" });
  expect(plan.rows.reduce((sum, row) => sum + row.bytes, 0)).toBe(32 * gib);
  const both = { adapters: { bytes: 2 * gib, count: 1 }, availableBytes: 2.5 * gib };
  expect(refusal(planMemory(input(both))).reason).toContain("the weights take 3.0 GiB");
});

test("a draft model has a row, and its part of each page is told", () => {
  const plan = planMemory(input({ draft: { weightBytes: gib / 4, pageBytes: mib / 4 } }));
  expect(plan.rows.slice(0, 2)).toEqual([
    { name: "weights", bytes: gib, note: "" },
    {
      name: "draft model",
      bytes: gib / 4,
      note: "weights; its keys and values are 25 % of the KV cache",
    },
  ]);
  expect(plan.rows.reduce((sum, row) => sum + row.bytes, 0)).toBe(32 * gib);
  const both = { draft: { weightBytes: 2 * gib, pageBytes: 0 }, availableBytes: 2.5 * gib };
  expect(refusal(planMemory(input(both))).reason).toContain("the weights take 3.0 GiB");
});

describe("the KV cache", () => {
  test("takes half of what is left, and nine tenths on a GPU", () => {
    const left = 32 * gib - gib - 128 * mib - Math.ceil(1.6 * gib);
    expect(pages(planMemory(input()))).toBe(Math.floor(Math.floor(left / mib) / 2));
    expect(pages(planMemory(input({ isGpu: true })))).toBe(Math.floor(Math.floor(left / mib) * 0.9));
    expect(planMemory(input()).rows[1]?.note).toBe(
      "239808 tokens in 14988 pages, 14.6 full contexts of 16384",
    );
  });

  test("takes more than half if one context needs it, and at most 64 contexts", () => {
    expect(pages(planMemory(input({ availableBytes: 2.5 * gib })))).toBe(1024);
    expect(pages(planMemory(input({ contextMax: 160 })))).toBe(64 * 10);
  });

  test("is what was asked for", () => {
    expect(pages(planMemory(input({ kvBytes: 2 * gib })))).toBe(2048);
    expect(pages(planMemory(input({ kvBytes: 2 * gib, engines: 2 })))).toBe(1024);
  });

  test("is split among engines, which share the weights", () => {
    const plan = planMemory(input({ engines: 4, contextMax: 160 }));
    expect(pages(plan)).toBe(640);
    expect(plan.rows.slice(0, 3).map((row) => row.bytes)).toEqual([gib, 4 * 640 * mib, 512 * mib]);
  });
});

describe("states", () => {
  const states = { bytes: 16 * mib, sequencesMax: 40 };
  const statesOf = (plan: MemoryPlan): number => (plan.kind === "fits" ? plan.states : 0);

  test("take up to 15 % of the KV cache for checkpoints, and as much for running sequences", () => {
    const plan = planMemory(input({ states }));
    const plain = pages(planMemory(input()));
    const part = Math.floor((plain * 0.15) / 16);
    expect(statesOf(plan)).toBe(40 + part);
    expect(pages(plan)).toBe(plain - 16 * (40 + part));
    expect(statesOf(planMemory(input({ states: { ...states, sequencesMax: 256 } })))).toBe(2 * part);
    expect(plan.rows.slice(1, 3)).toEqual([
      expect.objectContaining({ name: "KV cache", bytes: pages(plan) * mib }),
      {
        name: "states",
        bytes: (40 + part) * 16 * mib,
        note: `${40 + part} slots of 16.0 MiB, for running sequences and checkpoints`,
      },
    ]);
    expect(plan.rows.reduce((sum, row) => sum + row.bytes, 0)).toBe(32 * gib);
  });

  test("take at least 8 slots beside a full context", () => {
    const plan = planMemory(input({ states, kvBytes: 1152 * mib }));
    expect([pages(plan), statesOf(plan)]).toEqual([1024, 8]);
  });

  test("count in a refusal and in its advice", () => {
    const small = refusal(planMemory(input({ states, kvBytes: 512 * mib })));
    expect(small.reason).toBe(
      "a KV cache of 512 MiB holds 6144 tokens with 8 states, less than one context of 16384 tokens, which takes 1.1 GiB",
    );
    expect(small.advice).toEqual(["--max-model-len 6144 or less fits", "--kv-cache-gib 1.2 or more"]);
    expect(refusal(planMemory(input({ weightBytes: 30 * gib, states }))).reason).toContain(
      "KV cache of 16384 tokens with 8 states 1.1 GiB",
    );
  });
});

describe("a refusal has the numbers and says what would help", () => {
  test("weights too large", () => {
    const plan = refusal(planMemory(input({ weightBytes: 40 * gib })));
    expect(plan.reason).toBe("the weights take 40.0 GiB, more than the 32.0 GiB available");
    expect(plan.advice).toEqual(["free memory, or choose a smaller model"]);
    expect(plan.rows.at(-1)?.bytes).toBeLessThan(0);
    const f32 = refusal(planMemory(input({ weightBytes: 40 * gib, compute: "f32", engines: 2 })));
    expect(f32.advice.slice(0, 2)).toEqual(["--dtype bf16 halves weights and KV cache", "run fewer engines"]);
    const plain = refusal(planMemory(input({ weightBytes: 40 * gib, isRounded: false })));
    expect(plain.advice[0]).toBe("--quant int8 halves the weights, --quant int4 quarters them");
  });

  test("weights too large for any KV cache, also for one that was asked for", () => {
    const plan = refusal(
      planMemory(
        input({ weightBytes: 131 * gib, isRounded: false, availableBytes: 24 * gib, kvBytes: gib / 2 }),
      ),
    );
    expect(plan.reason).toBe("the weights take 131 GiB, more than the 24.0 GiB available");
    expect(plan.advice).toEqual(["free memory, or choose a smaller model"]);
    const tight = refusal(planMemory(input({ weightBytes: 31 * gib, kvBytes: gib / 2 })));
    expect(tight.reason).toBe(
      "the weights take 31.0 GiB of the 32.0 GiB available, and workspaces and the reserve take 1.7 GiB",
    );
  });

  test("a sum of parts that is too large", () => {
    expect(refusal(planMemory(input({ weightBytes: 30 * gib }))).reason).toBe(
      "32.7 GiB are needed and 32.0 GiB available: weights 30.0 GiB, KV cache of 16384 tokens 1.0 GiB, " +
        "workspaces 128 MiB, reserve 1.6 GiB",
    );
  });

  test("a context too long: the longest that fits", () => {
    const plan = refusal(planMemory(input({ availableBytes: 2 * gib })));
    const fitting = 16 * Math.floor((2 * gib - gib - 128 * mib - Math.ceil(0.1 * gib)) / mib);
    expect(plan.advice[0]).toBe(`--max-model-len ${fitting} or less fits`);
    expect(planMemory(input({ availableBytes: 2 * gib, contextMax: fitting })).kind).toBe("fits");
    expect(planMemory(input({ availableBytes: 2 * gib, contextMax: fitting + 1 })).kind).toBe("refused");
  });

  test("a KV cache asked for that is too small or too large", () => {
    const small = refusal(planMemory(input({ kvBytes: 512 * mib })));
    expect(small.reason).toBe(
      "a KV cache of 512 MiB holds 8192 tokens, less than one context of 16384 tokens, which takes 1.0 GiB",
    );
    expect(small.advice).toEqual(["--max-model-len 8192 or less fits", "--kv-cache-gib 1 or more"]);
    const large = refusal(planMemory(input({ kvBytes: 64 * gib })));
    expect(large.advice).toEqual(["--kv-cache-gib 29.2 or less", "free memory, or choose a smaller model"]);
  });
});

const bytes = (max: number) => fc.integer({ min: 0, max });
const anyInput = fc.record({
  compute: fc.constantFrom("bf16", "f32"),
  isRounded: fc.boolean(),
  weightBytes: bytes(64 * gib),
  pageBytes: fc.integer({ min: 1024, max: 64 * mib }),
  pageTokens: fc.constant(16),
  workspaceBytes: bytes(gib),
  diskBytes: bytes(64 * mib),
  engines: fc.integer({ min: 1, max: 8 }),
  contextMax: fc.integer({ min: 1, max: 1 << 20 }),
  states: fc.option(
    fc.record({
      bytes: fc.integer({ min: 1024, max: 512 * mib }),
      sequencesMax: fc.integer({ min: 1, max: 256 }),
    }),
  ),
  availableBytes: bytes(256 * gib),
  kvBytes: fc.option(bytes(64 * gib)),
});

test("an advised context or KV cache fits", () => {
  fc.assert(
    fc.property(anyInput, (wanted) => {
      const plan = planMemory(wanted);
      if (plan.kind === "fits") return;
      for (const advice of plan.advice) {
        const [, option, value] = /^--(max-model-len|kv-cache-gib) ([\d.]+) or/.exec(advice) ?? [];
        const kvBytes = advice.endsWith("without --kv-cache-gib") ? null : wanted.kvBytes;
        if (option === "max-model-len")
          expect(planMemory({ ...wanted, kvBytes, contextMax: Number(value) }).kind).toBe("fits");
        if (option === "kv-cache-gib" && advice.endsWith("less") && Number(value) > 0)
          expect(planMemory({ ...wanted, kvBytes: Number(value) * gib, contextMax: 1 }).kind).toBe("fits");
      }
    }),
    runs(2000),
  );
});

test("pages on their way to the disk are a part of each engine's workspaces", () => {
  const [without, with32] = [0, 32 * mib].map((diskBytes) => planMemory(input({ engines: 2, diskBytes })));
  const workspaces = (plan: MemoryPlan | undefined) => plan?.rows.find(({ name }) => name === "workspaces");
  expect(workspaces(with32)?.bytes).toBe(workspaces(without)!.bytes + 64 * mib);
  expect(workspaces(with32)?.note).toBe("64.0 MiB for writes to the disk");
  expect(pages(with32!)).toBe(pages(without!) - 16);
});

test("a plan that fits never overdraws and always holds one context and a few states", () => {
  fc.assert(
    fc.property(anyInput, (wanted) => {
      const plan = planMemory(wanted);
      const used = plannedBytes(plan);
      const reserve = reserveOf(wanted.availableBytes);
      if (plan.kind === "refused") return expect(plan.neededBytes).toBeGreaterThan(plan.availableBytes);
      expect(used + reserve).toBeLessThanOrEqual(wanted.availableBytes);
      expect(plan.pages * 16).toBeGreaterThanOrEqual(wanted.contextMax);
      expect(plan.states).toBeGreaterThanOrEqual(wanted.states === null ? 0 : STATES_MIN);
      const stateBytes = plan.states * wanted.engines * (wanted.states?.bytes ?? 0);
      if (wanted.kvBytes !== null)
        expect(plan.rows[1]!.bytes + stateBytes).toBeLessThanOrEqual(wanted.kvBytes);
    }),
    runs(1000),
  );
});

test("bytes for people", () => {
  expect([0, 1023, 1024, 1536, 100 * mib, 1.5 * gib, 2000 * gib].map(formatBytes)).toEqual([
    "0 bytes",
    "1023 bytes",
    "1.0 KiB",
    "1.5 KiB",
    "100 MiB",
    "1.5 GiB",
    "2.0 TiB",
  ]);
});
