/** The rules of tools/tidy.ts hold for this tree, and each of them finds what it looks for. */

import { describe, expect, test } from "bun:test";
import { resolve } from "node:path";
import {
  circleRule,
  commentRule,
  docstringRule,
  importRule,
  intrinsicsRule,
  lengthRule,
  linkRule,
  lockRule,
  machinePathRule,
  namedFilesRule,
  purityRule,
  type Rule,
  readTree,
  sequenceRule,
} from "../tools/tidy.ts";

const tree = readTree(resolve(import.meta.dir, ".."));
const registry = ["https:/", "example.com", "a.tgz"].join("/");

interface Example {
  readonly rule: Rule;
  /** Breaks the rule once. */
  readonly bad: Readonly<Record<string, string>>;
  readonly problem: string;
}

const examples: Readonly<Record<string, Example>> = {
  "imports follow the layers": {
    rule: importRule,
    bad: { "scheduler/engine.ts": 'import { x } from "../server/http/app.ts";' },
    problem: "scheduler/engine.ts imports server/http/app.ts",
  },
  "only one command simulates": {
    rule: importRule,
    bad: {
      "server/start.ts": 'import { b } from "../simulation/baselines/b.ts";',
      "server/cli/simulate.ts": 'import { b } from "../../simulation/baselines/b.ts";',
      "simulation/a.ts": 'import { b } from "./baselines/b.ts";',
      "scheduler/a.test.ts": 'import { b } from "../simulation/baselines/b.ts";',
    },
    problem: "server/start.ts imports simulation/baselines/b.ts",
  },
  "what runs requests knows no wire format": {
    rule: importRule,
    bad: {
      "server/program/a.ts": 'import { b } from "../api/openai/b.ts";',
      "server/api/a.ts": 'import { b } from "../program/b.ts";',
    },
    problem: "server/program/a.ts imports server/api/openai/b.ts",
  },
  "imports go in no circles": {
    rule: circleRule,
    bad: {
      "server/a.ts": 'import { b } from "./b.ts";',
      "server/b.ts": 'import type { C } from "./c.ts";\nimport { d } from "./d.ts";',
      "server/c.ts": 'export type { A } from "./a.ts";',
      "server/d.ts": "",
    },
    problem: "server/a.ts imports server/b.ts imports server/c.ts imports server/a.ts, a circle",
  },
  "pure rooms leave the machine's clock alone": {
    rule: importRule,
    bad: {
      "grammar/a.ts": 'import { yieldIfSpent } from "../base/time-slice.ts";',
      "server/a.ts": 'import { yieldIfSpent } from "../base/time-slice.ts";',
    },
    problem: "grammar/a.ts imports base/time-slice.ts",
  },
  "the scheduler is pure": {
    rule: purityRule,
    bad: { "scheduler/engine.ts": "/** Date is fine here */ const now = Date.now();" },
    problem: "scheduler/engine.ts uses Date",
  },
  "each part of a sequence has one writer": {
    rule: sequenceRule,
    bad: {
      "scheduler/engine/sequence-table.ts": 'victim.preemptions += 1; sequence.state = "running";',
      "scheduler/engine/planner.ts": "if (kv.computed === 3) sequence.pacing.skips += 1;",
    },
    problem: "scheduler/engine/planner.ts writes pacing.skips +=",
  },
  "what the scheduler exports is explained": {
    rule: docstringRule,
    bad: { "scheduler/engine.ts": "/** A. */\nexport class A {}\nexport function b() {}" },
    problem: "scheduler/engine.ts:3 exports b without a docstring",
  },
  "links in documents lead somewhere": {
    rule: linkRule,
    bad: { "README.md": "[a](docs/a.md#good) [b](docs/a.md#bad)", "docs/a.md": "# Good" },
    problem: "README.md links to docs/a.md#bad, but docs/a.md has no such heading",
  },
  "files that the architecture names exist": {
    rule: namedFilesRule,
    bad: { "docs/architecture.md": "See `server/gone.ts` and `server/here.ts`.", "server/here.ts": "" },
    problem: "docs/architecture.md names server/gone.ts, which does not exist",
  },
  "kernels speak to the GPU through one header": {
    rule: intrinsicsRule,
    bad: {
      "csrc/cuda/gpu.h": "threadIdx.x",
      "csrc/cuda/kernels/a.cu": "int i = threadIdx.x; // atomicAdd",
      "csrc/cuda/kernels/b.cu": "int thread_index, blocks; store(a, 1 << 3);",
    },
    problem: "csrc/cuda/kernels/a.cu uses threadIdx",
  },
  "comments say what they are about": {
    rule: commentRule,
    bad: {
      "server/a.ts":
        "/** Reads. */\nf(); // What is read\n/**\n * Whether it reads.\n */\n// Reads.\n// What follows is read.",
    },
    problem: 'server/a.ts:3 has a comment that begins with "Whether"',
  },
  "no file is too long to read in one go": {
    rule: lengthRule,
    bad: { "server/long.ts": "\n".repeat(701), "server/short.ts": "\n".repeat(700) },
    problem: "server/long.ts has 701 lines, more than 700",
  },
  "the lock file names no registry": {
    rule: lockRule,
    bad: { "package-lock.json": JSON.stringify({ a: { resolved: registry, funding: { url: registry } } }) },
    problem: `package-lock.json: /a/resolved is ${registry}`,
  },
  "no file names a place of one machine": {
    rule: machinePathRule,
    bad: { "docs/a.md": ["", "root", "models"].join("/") },
    problem: `docs/a.md:1 names ${["", "root", ""].join("/")}`,
  },
};

for (const [name, { rule, bad, problem }] of Object.entries(examples)) {
  describe(name, () => {
    test("in this tree", () => expect(rule(tree)).toEqual([]));
    test("and is noticed when not", () => expect(rule(new Map(Object.entries(bad)))).toEqual([problem]));
  });
}

test("gpu may use the scheduler's ports and nouns only, and native code is loaded in one place", () => {
  const files = {
    "gpu/a.ts":
      'import type { Step } from "../scheduler/core.ts";\nimport { Engine } from "../scheduler/engine.ts";',
    "gpu/native.ts": 'import { dlopen } from "bun:ffi";',
    "gpu/native/b.ts": 'import { dlopen } from "bun:ffi";',
  };
  expect(importRule(new Map(Object.entries(files)))).toEqual([
    "gpu/a.ts imports scheduler/engine.ts",
    "gpu/native/b.ts imports bun:ffi",
  ]);
});

test("the client has no dependencies, and examples use nothing else", () => {
  const files = {
    "sdk/src/a.ts": 'import { b } from "./b.ts";\nimport { readFile } from "node:fs";',
    "examples/a.ts": 'import { b } from "../sdk/src/b.ts";\nimport { c } from "../server/c.ts";',
  };
  expect(importRule(new Map(Object.entries(files)))).toEqual([
    "sdk/src/a.ts imports node:fs",
    "examples/a.ts imports server/c.ts",
  ]);
});
