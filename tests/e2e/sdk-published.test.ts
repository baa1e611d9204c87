/** Published client for programs, in Node, in Deno and in a browser page: the same program in each. */
import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Browser, chromium } from "./browser.ts";
import { Program } from "./program.ts";
import { startTestServer, type TestServer } from "./server.ts";

/**
 * User's module that uses the client: a stream, values, a failure, a value that no caller awaits any more, a
 * session.
 */
const userModule = `
import { Bunting, chat, input, join, lines, map, number, output, semantic, Session, user } from "./dist/index.js";

const list = chat([user\`List \${input("what")}.\`], output("items", { seed: 0, as: lines() }));
const define = chat([user\`Define \${input("word")}.\`], output("meaning", { seed: 1 }));
const count = chat([user\`How many?\`], output("n", { seed: 1, as: number() }));
const merge = semantic\`Merge: \${input("all")}\nMerged: \${output("merged", { seed: 2 })}\`;

export async function run(options) {
  const client = new Bunting(options);
  const { items } = list({ what: "letters" });
  const meanings = map(items, (word) => define({ word }).meaning);
  let streamed = "";
  const { merged } = merge({ all: join(meanings, ", ") });
  for await (const piece of merged.stream("latency", { client })) streamed += piece;
  const failure = await count({}).n.result("latency", { client });
  const leaving = new AbortController();
  const left = define({ word: "x" }).meaning.get("latency", { client, signal: leaving.signal });
  leaving.abort(new Error("no time"));
  const reason = await left.catch((error) => error.message);
  const session = await Session.open({ variables: { word: null } }, client);
  await session.add({ messages: [{ role: "user", content: "Define {{word}}." }], output: "meaning", seed: 1 });
  await session.set("word", "x");
  const fromSession = await session.get("meaning");
  await session.close();
  return {
    streamed,
    meanings: await meanings.get("latency", { client }),
    code: failure.error.code,
    reason,
    fromSession,
  };
}
`;
const mainModule = `
import { run } from "./run.mjs";
console.log(JSON.stringify(await run({ url: process.argv[2], apiKey: process.argv[3] })));
`;
const expected = {
  streamed: "merged",
  meanings: ["meaning", "meaning"],
  code: "transform",
  reason: "no time",
  fromSession: "meaning",
};

const folder = mkdtempSync(join(tmpdir(), "bunting-sdk-"));
let server: TestServer;

beforeAll(async () => {
  const root = resolve(import.meta.dir, "../..");
  const compiler = join(root, "node_modules/typescript/bin/tsc");
  const dist = join(folder, "dist");
  const compiled = new Program(["node", compiler, "-p", join(root, "sdk"), "--outDir", dist]);
  expect([await compiled.exitCode(), compiled.output]).toEqual([0, ""]);
  writeFileSync(join(folder, "run.mjs"), userModule);
  writeFileSync(join(folder, "main.mjs"), mainModule);
  server = startTestServer({ answers: ["a\nb", "meaning", "merged"], keys: { keys: ["secret"] } });
}, 60_000);
afterEach(async () => {
  await server.settled();
  expect(server.programs.active).toBe(0);
});
afterAll(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

const runtimes = { node: ["node"], deno: ["deno", "run", "--allow-net", "--allow-env"] } as const;
test.each(["node", "deno"] as const)("in %s", async (runtime) => {
  if (Bun.which(runtime) === null) return console.log(`skipped: there is no ${runtime} here`);
  const program = new Program([...runtimes[runtime], join(folder, "main.mjs"), server.origin, "secret"]);
  expect([await program.exitCode(), program.errors]).toEqual([0, ""]);
  expect(JSON.parse(program.output)).toEqual(expected);
});

if (chromium === null) console.log("no chromium: the client for programs is not tried in a browser");

test.skipIf(chromium === null)(
  "in a page of another origin, which only a page that is let in may be",
  async () => {
    using pages = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch: (request) => {
        const { pathname } = new URL(request.url);
        if (pathname.endsWith("js")) return new Response(Bun.file(join(folder, pathname)));
        return new Response("<!doctype html>", { headers: { "content-type": "text/html" } });
      },
    });
    const browser = await Browser.start(chromium!);
    const page = await browser.open(String(pages.url));
    const options = JSON.stringify({ url: server.origin, apiKey: "secret" });
    expect(await page.evaluate(`import("/run.mjs").then(({ run }) => run(${options}))`)).toEqual(expected);
    // A page without an origin gets no access: its browser hides the answer from it.
    await page.go("data:text/html,");
    const asked = `fetch("${server.origin}/v1/models", { headers: { authorization: "Bearer secret" } })`;
    expect(await page.evaluate(`${asked}.then(() => "read", (error) => error.name)`)).toBe("TypeError");
    await browser.close();
  },
  60_000,
);
