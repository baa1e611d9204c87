import { afterEach, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { planMemory } from "../../gpu/memory.ts";
import { openAdapter } from "../../model/adapter.ts";
import { openModelFolder } from "../../model/folder.ts";
import { readPublishedName, repositoryFolder } from "../../model/hub-cache.ts";
import { writeFamily } from "../../tests/reference/families.ts";
import { writeAdapter } from "../../tests/support/adapter-folder.ts";
import { FakeHub, type FakeHubOptions, type HubRequest } from "../../tests/support/fake-hub.ts";
import { defaultHubLimits, type HubLimits } from "./client.ts";
import { type PullOptions, type PullProgress, type PullSize, pullModel } from "./pull.ts";
import { resolveAdapter, resolveModel } from "./resolve.ts";

const demo = join(import.meta.dir, "../../models/demo");
const names = [
  "config.json",
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "model.safetensors",
];
const files = Object.fromEntries(names.map((name) => [name, readFileSync(join(demo, name))]));
const weights = files["model.safetensors"]!;
const weightsHash = createHash("sha256").update(weights).digest("hex");
const repository = "Tiny/Demo";
const limits: HubLimits = { ...defaultHubLimits, pauseMs: 1, stallMs: 2000, partBytes: 1 << 20 };

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0)) await clean();
});

interface Bench {
  readonly hub: FakeHub;
  readonly cache: string;
  readonly sizes: PullSize[];
  readonly progress: PullProgress[];
  readonly pull: (name?: string, changes?: Partial<PullOptions>) => Promise<string>;
}

function bench(options: FakeHubOptions = {}, limit: Partial<HubLimits> = {}): Bench {
  const hub = new FakeHub(options);
  hub.commit(repository, { ...files, "README.md": "about", "pytorch_model.bin": "pickle" });
  const cache = mkdtempSync(join(tmpdir(), "bunting-pull-"));
  cleanups.push(
    () => hub.stop(),
    () => rmSync(cache, { recursive: true }),
  );
  const sizes: PullSize[] = [];
  const progress: PullProgress[] = [];
  const pull = (name = repository, changes: Partial<PullOptions> = {}): Promise<string> =>
    pullModel(readPublishedName(name)!, {
      settings: { endpoint: hub.endpoint, token: "secret", cache, isOffline: false },
      limits: { ...limits, ...limit },
      signal: new AbortController().signal,
      events: { onSize: (size) => sizes.push(size), onProgress: (told) => progress.push({ ...told }) },
      plan: null,
      ...changes,
    });
  return { hub, cache, sizes, progress, pull };
}

const blob = (cache: string): string => join(repositoryFolder(cache, repository), "blobs", weightsHash);
const told = (error: unknown): string => (error instanceof Error ? error.message : "no error");
const ofWeights = ({ path, from }: HubRequest): boolean =>
  from === "cdn" && path.endsWith("model.safetensors");

test("a model comes to the cache as Hugging Face's own clients lay it out", async () => {
  const { hub, cache, sizes, progress, pull } = bench();
  const folder = await pull();
  expect(openModelFolder(folder).name).toBe(repository);
  const { commit } = sizes[0]!;
  expect(folder).toBe(join(cache, "models--Tiny--Demo", "snapshots", commit));
  expect(readFileSync(join(cache, "models--Tiny--Demo", "refs", "main"), "utf8")).toBe(commit);
  expect(readdirSync(folder).sort()).toEqual(names.toSorted());
  const link = join(folder, "model.safetensors");
  expect(lstatSync(link).isSymbolicLink()).toBe(true);
  expect(readlinkSync(link)).toBe(`../../blobs/${weightsHash}`);
  expect(readFileSync(link).equals(weights)).toBe(true);
  const bytes = Object.values(files).reduce((sum, { length }) => sum + length, 0);
  expect(sizes[0]).toMatchObject({ bytes, missingBytes: bytes });
  expect(progress.at(-1)).toMatchObject({ doneBytes: bytes, totalBytes: bytes, receivedBytes: bytes });
  // The token stays with the hub.
  expect(
    hub.requests
      .filter(({ from }) => from === "hub")
      .every(({ authorization }) => authorization === "Bearer secret"),
  ).toBe(true);
  expect(hub.requests.some(ofWeights)).toBe(true);
  expect(
    hub.requests.filter(({ from }) => from === "cdn").every(({ authorization }) => authorization === null),
  ).toBe(true);
});

test("what is complete in the cache is used without a request, and offline", async () => {
  const { hub, cache, pull } = bench();
  const folder = await pull();
  hub.requests.length = 0;
  const options = {
    signal: new AbortController().signal,
    plan: null,
    events: { onSize: () => {}, onProgress: () => {} },
  };
  const settings = { endpoint: hub.endpoint, token: null, cache, isOffline: true };
  expect(await resolveModel(repository, { ...options, settings })).toBe(folder);
  expect(await resolveModel(demo, { ...options, settings })).toBe(demo);
  expect(await resolveModel("Tiny/Other", { ...options, settings }).catch(told)).toContain("HF_HUB_OFFLINE");
  expect(hub.requests).toEqual([]);
  // With a file gone it is fetched again.
  rmSync(join(folder, "tokenizer.json"));
  expect(await resolveModel(repository, { ...options, settings: { ...settings, isOffline: false } })).toBe(
    folder,
  );
  expect(existsSync(join(folder, "tokenizer.json"))).toBe(true);
});

test("an adapter comes with its two files, and is found in the cache", async () => {
  const { hub, cache, pull } = bench();
  const model = join(cache, "model");
  writeFamily("llama-biases", model);
  const peft = join(cache, "peft");
  writeAdapter(model, peft, { seed: 1, rank: 4, alpha: 8 });
  const own = ["adapter_config.json", "adapter_model.safetensors"];
  const contents = Object.fromEntries(own.map((name) => [name, readFileSync(join(peft, name))]));
  hub.commit("Tiny/Adapter", {
    ...contents,
    "README.md": "about",
    "tokenizer.json": "{}",
    "training_args.bin": "x",
  });
  const options = {
    signal: new AbortController().signal,
    events: { onSize: () => {}, onProgress: () => {} },
  };
  const settings = { endpoint: hub.endpoint, token: null, cache, isOffline: false };
  const folder = await resolveAdapter("Tiny/Adapter", { ...options, settings });
  expect(readdirSync(folder).sort()).toEqual(own);
  expect(openAdapter(folder, openModelFolder(model)).rank).toBe(4);
  hub.requests.length = 0;
  expect(await resolveAdapter("Tiny/Adapter", { ...options, settings })).toBe(folder);
  expect(await resolveAdapter(peft, { ...options, settings })).toBe(peft);
  expect(hub.requests).toEqual([]);
  // `bunting pull` plans no memory for it, and a model's pull takes no adapter that lies beside.
  expect(await pull("Tiny/Adapter", { plan: () => Promise.reject(new Error("planned")) })).toBe(folder);
  hub.commit(repository, { ...files, ...contents });
  expect(readdirSync(await pull()).sort()).toEqual(names.toSorted());
});

test("bodies that break off are continued where they ended", async () => {
  let cuts = 0;
  const { hub, pull } = bench({
    misbehave: async (request, answer) => {
      if (!ofWeights(request) || cuts >= 6) return null;
      cuts += 1;
      const whole = await answer();
      const bytes = new Uint8Array(await whole.arrayBuffer());
      const stream = new ReadableStream({
        start(controller) {
          controller.enqueue(bytes.subarray(0, bytes.length / 2));
          controller.close();
        },
      });
      return new Response(stream, {
        status: 206,
        headers: { "content-range": whole.headers.get("content-range")! },
      });
    },
  });
  expect(openModelFolder(await pull()).name).toBe(repository);
  expect(cuts).toBe(6);
  const fetched = hub.requests.filter(ofWeights).map(({ range }) => range);
  expect(fetched).toContain("bytes=524288-1048575");
});

test("a pull that was stopped goes on from its .incomplete", async () => {
  const { hub, cache, progress, pull } = bench();
  const half = weights.length >> 1;
  mkdirSync(join(blob(cache), ".."), { recursive: true });
  writeFileSync(`${blob(cache)}.incomplete`, weights.subarray(0, half));
  const folder = await pull();
  expect(readFileSync(join(folder, "model.safetensors")).equals(weights)).toBe(true);
  expect(progress.at(-1)!.doneBytes - progress.at(-1)!.receivedBytes).toBe(half);
  const starts = hub.requests.filter(ofWeights).map(({ range }) => Number(/=(\d+)/.exec(range!)![1]));
  expect(Math.min(...starts)).toBe(half);
  expect(existsSync(`${blob(cache)}.incomplete`)).toBe(false);
});

test("an .incomplete with other bytes is given up, and the file fetched anew", async () => {
  const { cache, pull } = bench();
  mkdirSync(join(blob(cache), ".."), { recursive: true });
  writeFileSync(`${blob(cache)}.incomplete`, Buffer.alloc(weights.length + 5, 1));
  const folder = await pull();
  expect(readFileSync(join(folder, "model.safetensors")).equals(weights)).toBe(true);
});

const wrong: [string, FakeHubOptions, string][] = [
  [
    "other bytes than the hash says",
    {
      misbehave: async (request, answer) => {
        if (!ofWeights(request)) return null;
        const whole = await answer();
        const bytes = new Uint8Array(await whole.arrayBuffer());
        bytes[bytes.length - 1]! ^= 1;
        return new Response(bytes, {
          status: 206,
          headers: { "content-range": whole.headers.get("content-range")! },
        });
      },
    },
    "with another sha256 than",
  ],
  [
    "a small file with other bytes",
    {
      misbehave: async ({ path }) =>
        path.endsWith("generation_config.json") ? new Response("x".repeat(127)) : null,
    },
    "with another git hash than",
  ],
  [
    "a length that was not listed",
    {
      list: (entries) =>
        entries.map((entry) => ({
          ...entry,
          ...("lfs" in entry ? { lfs: { ...(entry.lfs as object), size: 10_000_000 } } : {}),
        })),
    },
    "is not taken",
  ],
  [
    "another part of the file",
    {
      misbehave: async (request) =>
        ofWeights(request)
          ? new Response(weights.subarray(0, 10), {
              status: 206,
              headers: { "content-range": `bytes 0-9/${weights.length}` },
            })
          : null,
    },
    "bytes 0-9/",
  ],
  [
    "more bytes than the disk has",
    {
      list: (entries) =>
        entries.map((entry) => ({
          ...entry,
          ...("lfs" in entry ? { lfs: { ...(entry.lfs as object), size: 1e15 } } : {}),
        })),
    },
    "on the disk of",
  ],
  ["a list without end", { list: () => "x".repeat(40 << 20) }, "bytes of JSON"],
  ["a list that is none", { list: () => ({}) }, "does not answer with a list"],
  [
    "a redirect to a file",
    {
      misbehave: async (request) =>
        request.path.includes("/resolve/")
          ? new Response(null, { status: 302, headers: { location: "file:///etc/passwd" } })
          : null,
    },
    "which is not followed",
  ],
  [
    "redirects without end",
    {
      misbehave: async ({ path }) =>
        path.includes("/resolve/") ? new Response(null, { status: 302, headers: { location: path } }) : null,
    },
    "times in a row",
  ],
  [
    "no commit",
    {
      misbehave: async ({ path }) => (path.includes("/revision/") ? Response.json({ sha: "../../x" }) : null),
    },
    "names no commit",
  ],
  ["no access", { misbehave: async () => new Response("", { status: 401 }) }, "the token does not allow it"],
];

test.each(wrong)("%s: nothing is served", async (_, options, word) => {
  const { cache, pull } = bench(options);
  expect(await pull().catch(told)).toContain(word);
  expect(existsSync(blob(cache))).toBe(false);
  expect(existsSync(join(repositoryFolder(cache, repository), "refs"))).toBe(false);
});

test("a hub that cannot be reached is told at once, and a path is what else may be meant", async () => {
  const { hub, pull } = bench();
  await hub.stop();
  expect(await pull().catch(told)).toMatch(
    /^127\.0\.0\.1:\d+ cannot be reached \(.*\)\. A model on this machine is named/,
  );
});

test("nothing is written outside the cache", async () => {
  const entry = { type: "file", size: 5, oid: "0".repeat(40) };
  const paths = [
    "../evil.json",
    "/etc/evil.json",
    "a/../../evil.json",
    "..\\evil.json",
    ".hidden.json",
    "C:evil.json",
  ];
  const { cache, pull } = bench({
    list: (entries) => [
      ...entries,
      ...paths.map((path) => ({ ...entry, path })),
      { ...entry, path: "link.json", type: "symlink" },
    ],
  });
  const folder = await pull();
  expect(readdirSync(folder).sort()).toEqual(names.toSorted());
  expect(readdirSync(cache).sort()).toEqual([".locks", "models--Tiny--Demo"]);
});

test("a branch that moves during a pull does not mix two commits", async () => {
  const other = Buffer.from(weights);
  other[other.length - 1]! ^= 1;
  let hub: FakeHub | null = null;
  const setup = bench({
    misbehave: async (request) => {
      if (ofWeights(request)) hub!.commit(repository, { ...files, "model.safetensors": other });
      return null;
    },
  });
  hub = setup.hub;
  const folder = await setup.pull();
  expect(readFileSync(join(folder, "model.safetensors")).equals(weights)).toBe(true);
  expect(folder.endsWith(setup.sizes[0]!.commit)).toBe(true);
});

test("a hub that limits its rate is asked again", async () => {
  const asked = new Set<string>();
  const { pull } = bench({
    misbehave: async ({ from, path, range }) => {
      const key = `${from} ${path} ${range}`;
      const isFirst = !asked.has(key);
      asked.add(key);
      return isFirst ? new Response("", { status: 429, headers: { "retry-after": "0" } }) : null;
    },
  });
  expect(openModelFolder(await pull()).name).toBe(repository);
});

test("a server that sends whole files only is enough", async () => {
  const { cache, pull } = bench({
    misbehave: async (request) => (ofWeights(request) ? new Response(weights) : null),
  });
  mkdirSync(join(blob(cache), ".."), { recursive: true });
  writeFileSync(`${blob(cache)}.incomplete`, weights.subarray(0, 1000));
  expect(readFileSync(join(await pull(), "model.safetensors")).equals(weights)).toBe(true);
});

test("a connection that falls silent is given up and begun again", async () => {
  let silences = 0;
  const { pull } = bench(
    {
      misbehave: async (request) => {
        if (!ofWeights(request) || silences > 0) return null;
        silences += 1;
        const headers = { "content-range": `bytes 0-${(1 << 20) - 1}/${weights.length}` };
        return new Response(new ReadableStream({ start: () => {} }), { status: 206, headers });
      },
    },
    { stallMs: 1500 },
  );
  expect(openModelFolder(await pull()).name).toBe(repository);
  expect(silences).toBe(1);
});

test("ten pulls of one model end with one good copy", async () => {
  const { hub, cache, pull } = bench();
  const folders = await Promise.all(Array.from({ length: 10 }, () => pull()));
  expect(new Set(folders).size).toBe(1);
  expect(readFileSync(join(folders[0]!, "model.safetensors")).equals(weights)).toBe(true);
  const sent = hub.requests.filter(ofWeights).length;
  expect(sent).toBe(Math.ceil(weights.length / limits.partBytes));
  expect(
    readdirSync(join(repositoryFolder(cache, repository), "blobs")).some((name) =>
      name.includes("incomplete"),
    ),
  ).toBe(false);
});

test("a model that will not fit is refused before its weights are fetched, with a quant that would", async () => {
  const { hub, cache, pull } = bench();
  hub.commit(repository, { ...files, "demo-Q4_K_M.gguf": "q4", "demo-Q8_0.gguf": "q8".repeat(1 << 22) });
  const plan = async (path: string) => {
    const { weightFilesBytes } = openModelFolder(path);
    expect(weightFilesBytes).toBe(weights.length);
    return planMemory({
      compute: "bf16",
      isRounded: false,
      weightBytes: weightFilesBytes,
      pageBytes: 1,
      pageTokens: 16,
      states: null,
      workspaceBytes: 0,
      engines: 1,
      contextMax: 16,
      availableBytes: 70 * 2 ** 20,
      kvBytes: null,
    });
  };
  const refusal = await pull(repository, { plan }).catch(told);
  expect(refusal).toStartWith(
    `${repository} will not fit: it needs 75.0 MiB, and 70.0 MiB are free. No weights were fetched.\n  - ${repository}:Q4_K_M would (2 bytes)\n`,
  );
  expect(existsSync(blob(cache))).toBe(false);
  expect(hub.requests.filter(ofWeights).map(({ range }) => range)).toEqual(["bytes=0-1048575"]);
});
