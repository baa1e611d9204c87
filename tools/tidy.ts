/**
 * Rules of the tree that no compiler checks. Each rule reads the tree and returns one sentence per violation;
 * tests/tidy.test.ts runs them all.
 */

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize, relative } from "node:path";

/** Files by path relative to the project root, with forward slashes. Binary files have no text. */
export type Tree = ReadonlyMap<string, string | null>;

export type Rule = (tree: Tree) => string[];

/** Reads every file that .gitignore does not name. */
export function readTree(root: string): Tree {
  const ignored = readFileSync(join(root, ".gitignore"), "utf8").split("\n").filter(Boolean);
  const isIgnored = (name: string): boolean =>
    name === ".git" ||
    ignored.some((pattern) =>
      pattern.startsWith("*") ? name.endsWith(pattern.slice(1)) : pattern === `${name}/`,
    );
  const tree = new Map<string, string | null>();
  const visit = (folder: string): void => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (isIgnored(entry.name)) continue;
      const path = join(folder, entry.name);
      if (entry.isDirectory()) visit(path);
      else if (entry.isFile()) {
        const bytes = readFileSync(path);
        tree.set(relative(root, path), bytes.includes(0) ? null : bytes.toString("utf8"));
      }
    }
  };
  visit(root);
  return tree;
}

/**
 * Rooms of the tree, each with the paths that its files may import: rooms below it. Rooms that are not listed
 * may import anything.
 */
const MAY_IMPORT: Readonly<Record<string, RegExp>> = {
  base: /^(base\/|node:os$)/,
  grammar: /^(base|grammar)\//,
  scheduler: /^(base\/|scheduler\/|grammar\/(constraint|source)\.ts$)/,
  model: /^(base\/|model\/|node:)/,
  simulation: /^(base\/|scheduler\/|simulation\/|grammar\/constraint\.ts$)/,
  gpu: /^(base\/|grammar\/|model\/|gpu\/|node:|scheduler\/(core|device|cost\/cost-model)\.ts$)/,
  text: /^(base\/|grammar\/|model\/|text\/|node:|@huggingface\/|lru-cache$)/,
  server: /^(?!(tools|tests|benchmarks|csrc|sdk|examples|simulation)\/)/,
  sdk: /^sdk\//,
  examples: /^(sdk\/|examples\/|node:|openai$|@anthropic-ai\/sdk$)/,
};

/** The only command that simulates. */
const SIMULATES = /^server\/cli\/simulate(\.ts$|\/)/;

/** Rooms of the server that know no wire format and no command. */
const BELOW_APIS =
  /^server\/(answer|engines|grammar|hand-over|http|hub|jobs|kv-disk|kv-host|program|recording|request)\//;

/** Part of base/ that uses the machine's clock; pure rooms must not import it. */
const IMPURE_BASE = "base/time-slice.ts";
const PURE_ROOMS = /^(base|grammar|scheduler|simulation)\//;

/**
 * Files that load native code: the engines' library, NVIDIA's driver, and functions that Bun lacks. These are a
 * socket option, descriptor copies, file locks, and an exact thread clock.
 */
const MAY_CALL_C = [
  "gpu/native.ts",
  "gpu/cuda-driver.ts",
  "server/hand-over/descriptors.ts",
  "server/http/unsent.ts",
  "server/hub/lock.ts",
  "benchmarks/constraint/thread-clock.ts",
];

/**
 * Files import only from their own room and from rooms below it, and only gpu/native.ts loads native code.
 */
export const importRule: Rule = (tree) =>
  arrows(tree)
    .filter(([path, target]) => !mayImport(path, target))
    .map(([path, target]) => `${path} imports ${target}`);

function mayImport(path: string, target: string): boolean {
  if (target === "bun:ffi") return MAY_CALL_C.includes(path);
  if (target === "bun:test") return path === "gpu/conformance.ts" || path.startsWith("tests/");
  if (target === IMPURE_BASE && PURE_ROOMS.test(path)) return false;
  if (BELOW_APIS.test(path) && /^server\/(api|cli|start|main)\b/.test(target)) return false;
  if (target.startsWith("simulation/") && SIMULATES.test(path)) return true;
  return MAY_IMPORT[path.split("/")[0]!]?.test(target) ?? true;
}

/**
 * No file imports itself by way of others, types included. Reports each circle once, from its first file by
 * name.
 */
export const circleRule: Rule = (tree) => {
  const targets = new Map<string, string[]>();
  for (const [path, target] of arrows(tree)) {
    if (tree.has(target)) targets.set(path, [...(targets.get(path) ?? []), target]);
  }
  const problems: string[] = [];
  const done = new Set<string>();
  const visit = (path: string, trail: readonly string[]): void => {
    const start = trail.indexOf(path);
    if (start >= 0) problems.push(`${[...trail.slice(start), path].join(" imports ")}, a circle`);
    if (start >= 0 || done.has(path)) return;
    for (const target of targets.get(path) ?? []) visit(target, [...trail, path]);
    done.add(path);
  };
  for (const path of [...targets.keys()].sort()) visit(path, []);
  return problems;
};

/**
 * Imports between files that are no tests: [path, target], where a target is a path of the tree or the name
 * of a package.
 */
function arrows(tree: Tree): (readonly [path: string, target: string])[] {
  return sources(tree, /\.ts$/)
    .filter(([path]) => !isTest(path))
    .flatMap(([path, text]) =>
      importsOf(text).map(
        (wanted) => [path, wanted.startsWith(".") ? normalize(join(dirname(path), wanted)) : wanted] as const,
      ),
    );
}

/** The pure rooms know nothing of time, chance, I/O or promises: these come in through ports. */
export const purityRule: Rule = (tree) => {
  const impure =
    /\b(Date|performance|Math\.random|crypto|Promise|async|await|setTimeout|setInterval|setImmediate|queueMicrotask|process|Bun|console|fetch|globalThis|Atomics|Worker)\b(?!\s*:)/g;
  const problems: string[] = [];
  for (const [path, text] of sources(tree, PURE_ROOMS)) {
    if (isTest(path) || path === IMPURE_BASE) continue;
    const code = withoutComments(text);
    for (const [word] of code.matchAll(impure)) problems.push(`${path} uses ${word}`);
  }
  return problems;
};

/** Parts of a sequence (scheduler/engine/sequence.ts), and the files that may write them. */
const sequenceWriters: readonly (readonly [part: RegExp, writers: RegExp])[] = [
  [/\bkv\.\w+ [+-]?=(?!=)/g, /^scheduler\/cache\//],
  [/\bqueued\.\w+ [+-]?=(?!=)/g, /^(scheduler\/engine\/queue|simulation\/baselines)\//],
  [/\bpacing\.\w+ [+-]?=(?!=)/g, /^scheduler\/engine\/sequence-table\.ts$/],
  [
    /\b(?:sequence|victim)\.(?:state|is\w+|was\w+|admitted\w+|preemptions|stepsUntil) [+-]?=(?!=)/g,
    /^scheduler\/engine\/sequence-table\.ts$/,
  ],
];

/** Each part of a sequence has one writer. */
export const sequenceRule: Rule = (tree) => {
  const problems: string[] = [];
  for (const [path, text] of sources(tree, /^(scheduler\/(engine|cache)|simulation\/baselines)\/.*\.ts$/)) {
    if (isTest(path)) continue;
    for (const [part, writers] of sequenceWriters) {
      if (writers.test(path)) continue;
      for (const [write] of withoutComments(text).matchAll(part)) problems.push(`${path} writes ${write}`);
    }
  }
  return problems;
};

/** Every export of the pure rooms is explained where it is declared. */
export const docstringRule: Rule = (tree) => {
  const problems: string[] = [];
  for (const [path, text] of sources(tree, PURE_ROOMS)) {
    if (isTest(path)) continue;
    const lines = text.split("\n");
    lines.forEach((line, index) => {
      const name = /^export (?:abstract )?(?:function|class|interface) (\w+)/.exec(line)?.[1];
      if (name !== undefined && !lines[index - 1]?.trimEnd().endsWith("*/")) {
        problems.push(`${path}:${index + 1} exports ${name} without a docstring`);
      }
    });
  }
  return problems;
};

/** Relative links in Markdown lead to a file, and to a heading when they name one. */
export const linkRule: Rule = (tree) => {
  const problems: string[] = [];
  for (const [path, text] of sources(tree, /\.md$/)) {
    for (const [, link] of withoutCodeBlocks(text).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (link === undefined || /^[a-z]+:/.test(link)) continue;
      const [file = "", anchor] = link.split("#");
      const target = file === "" ? path : normalize(join(dirname(path), file)).replace(/\/$/, "");
      if (!exists(tree, target)) problems.push(`${path} links to ${link}, which does not exist`);
      else if (anchor && !headings(tree.get(target) ?? "").includes(anchor)) {
        problems.push(`${path} links to ${link}, but ${target} has no such heading`);
      }
    }
  }
  return problems;
};

/** Files and folders that docs/architecture.md names are there. */
export const namedFilesRule: Rule = (tree) => {
  const named =
    /(?<![\w./-])(?:base|grammar|model|text|simulation|server|scheduler|gpu|csrc|sdk|examples|tools|tests|docs|models|benchmarks)\/[\w.-]+(?:\/[\w.-]+)*/g;
  const text = tree.get("docs/architecture.md") ?? "";
  const paths = new Set([...text.matchAll(named)].map(([path]) => path.replace(/\.$/, "")));
  return [...paths]
    .filter((path) => !exists(tree, path))
    .map((path) => `docs/architecture.md names ${path}, which does not exist`);
};

/** Kernels speak to the GPU through one header, which the emulator implements as well. */
export const intrinsicsRule: Rule = (tree) => {
  const intrinsic =
    /\b(?:asm|threadIdx|blockIdx|blockDim|gridDim|atomic[A-Z]\w*|cuda[A-Z]\w*|__(?:shared|global|device|syncthreads|syncwarp|shfl|ballot|ldg|threadfence|launch_bounds|cvta|nanosleep)\w*)\b|<<</g;
  const problems: string[] = [];
  for (const [path, text] of sources(tree, /^csrc\/cuda\/.*\.(cu|cpp|h)$/)) {
    if (MAY_USE_INTRINSICS.includes(path)) continue;
    for (const [word] of withoutComments(text).matchAll(intrinsic)) problems.push(`${path} uses ${word}`);
  }
  return problems;
};

const MAY_USE_INTRINSICS = [
  "csrc/cuda/gpu.h",
  "csrc/cuda/runtime_cuda.cpp",
  "csrc/cuda/tests/test_cuda_driver.cpp",
  "csrc/cuda/tests/test_cuda_loading.cpp",
  "csrc/cuda/tests/fake_cudart/cuda_runtime_api.h",
  "csrc/cuda/tests/fake_cudart/fake_cudart.cpp",
];

/**
 * Words that begin no comment. A comment begins with a noun, or with a third-person verb whose subject is the
 * declaration below.
 */
const HEADLESS =
  /^(?:What(?:ever)?|Of|Where(?:ver)?|How|By|Whether|Those|So (?:many|much|long|far|often)|But|Who(?:ever)?|Whose|Which|As (?:many|much|long|far)|(?:In|For|With|From|To) (?:which|whom|whose|what)|That which|None|Nothing|Nobody|One)\b/;

/** Comments say at their first word what they are about. */
export const commentRule: Rule = (tree) => {
  const comment = /\/\*\*?((?:(?!\*\/)[\s\S])*)\*\/|(?<=^[ \t]*)\/\/\/?([^\n]*)(?:\n[ \t]*\/\/[^\n]*)*/gm;
  const problems: string[] = [];
  for (const [path, text] of sources(tree, /\.(ts|mjs|cpp|h|cu)$/)) {
    for (const { 1: block, 2: line, index } of text.matchAll(comment)) {
      const opening = HEADLESS.exec((block ?? line ?? "").replace(/^[\s*]+/, ""))?.[0];
      if (opening === undefined) continue;
      const number = text.slice(0, index).split("\n").length;
      problems.push(`${path}:${number} has a comment that begins with "${opening}"`);
    }
  }
  return problems;
};

const LINES_MAX = 700;

/** A file can be read in one go. */
export const lengthRule: Rule = (tree) =>
  sources(tree, /\.(ts|mjs|cjs|cpp|h|cu|py)$/)
    .map(([path, text]) => ({ path, lines: text.split("\n").length - 1 }))
    .filter(({ lines }) => lines > LINES_MAX)
    .map(({ path, lines }) => `${path} has ${lines} lines, more than ${LINES_MAX}`);

/** The lock file names packages and hashes, not the place that they came from. */
export const lockRule: Rule = (tree) => {
  const problems: string[] = [];
  const visit = (value: unknown, path: string): void => {
    if (typeof value === "string" && value.includes("://"))
      problems.push(`package-lock.json: ${path} is ${value}`);
    if (typeof value !== "object" || value === null) return;
    for (const [key, child] of Object.entries(value)) if (key !== "funding") visit(child, `${path}/${key}`);
  };
  visit(JSON.parse(tree.get("package-lock.json") ?? "{}"), "");
  return problems;
};

// Written so that this file does not match itself.
const MACHINE_PATHS =
  /\/[w]ork\/|\/[f]arm\/|\/[t]mp\/[a-z]|\/[r]oot\/|regis[t]ry\.np|deb\.[d]eb|p[y]pi\.(?!org\/simple"|simple\.)/;

/** Finds paths that exist on one machine only. */
export const machinePathRule: Rule = (tree) => {
  const problems: string[] = [];
  for (const [path, text] of sources(tree, /./)) {
    text.split("\n").forEach((line, index) => {
      const match = MACHINE_PATHS.exec(line);
      if (match !== null) problems.push(`${path}:${index + 1} names ${match[0]}`);
    });
  }
  return problems;
};

function sources(tree: Tree, pattern: RegExp): [path: string, text: string][] {
  return [...tree].filter((entry): entry is [string, string] => entry[1] !== null && pattern.test(entry[0]));
}

function isTest(path: string): boolean {
  return /\.test\.ts$/.test(path);
}

function exists(tree: Tree, path: string): boolean {
  return tree.has(path) || [...tree.keys()].some((file) => file.startsWith(`${path}/`));
}

function importsOf(text: string): string[] {
  const pattern =
    /^\s*(?:import|export)\b[^"';]*?from\s*"([^"]+)"|^\s*import\s*"([^"]+)"|\bimport\(\s*"([^"]+)"/gm;
  return [...withoutComments(text).matchAll(pattern)].map((match) => match[1] ?? match[2] ?? match[3]!);
}

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|[^:"'])\/\/.*$/gm, "$1");
}

function withoutCodeBlocks(text: string): string {
  return text.replace(/^```[\s\S]*?^```/gm, "").replace(/`[^`\n]*`/g, "");
}

/** Anchors of a Markdown file's headings, as GitHub makes them. */
function headings(text: string): string[] {
  return [...text.matchAll(/^#+ +(.+)$/gm)].map(([, title = ""]) =>
    title
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, "")
      .trim()
      .replaceAll(" ", "-"),
  );
}
