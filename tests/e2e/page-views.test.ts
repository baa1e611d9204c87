/** Views of the page on a server under load, and the stream of the state that they read. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventData } from "../../server/cli/client.ts";
import { tenantOf } from "../../server/http/auth.ts";
import type { CacheNow, CachesNow, StateEvent } from "../../server/http/state-events.ts";
import { recordChats } from "../support/recorded.ts";
import { Browser, chromium, type Page } from "./browser.ts";
import { begin, clientOf } from "./jobs-server.ts";
import { ask } from "./program-http.ts";
import { post, startTestServer, type TestServer } from "./server.ts";

const admin = { authorization: "Bearer operator" };

/** Load of clients that ask again until the returned function is called, which waits for their last answers. */
function load(
  server: TestServer,
  clients: number,
  headers: Record<string, string> = {},
): () => Promise<void> {
  let goesOn = true;
  let asked = 0;
  const client = async (): Promise<void> => {
    while (goesOn) {
      const topic = `Topic ${asked++ % 4}. ${"The quick brown fox jumps over the lazy dog. ".repeat(20)}`;
      const messages = [
        { role: "system", content: topic },
        { role: "user", content: `Question ${asked}` },
      ];
      const body = { model: "demo", stream: true, max_tokens: 20 + (asked % 30), ignore_eos: true, messages };
      await (await post(server, "/v1/chat/completions", body, { headers })).text();
    }
  };
  const all = Promise.all(Array.from({ length: clients }, client));
  return async () => {
    goesOn = false;
    await all;
    await server.settled();
  };
}

interface AxNode {
  readonly ignored: boolean;
  readonly role?: { readonly value: string };
  readonly name?: { readonly value: string };
}

const controls = new Set([
  "button",
  "link",
  "textbox",
  "combobox",
  "spinbutton",
  "searchbox",
  "image",
  "progressbar",
]);

/** Reads a stream of the state until an event satisfies `isLast`, and returns all events. */
async function eventsUntil(
  server: TestServer,
  query: string,
  isLast: (event: StateEvent) => boolean,
  headers: Record<string, string> = {},
): Promise<{ readonly event: StateEvent; readonly bytes: number }[]> {
  const stopping = new AbortController();
  const response = await fetch(`${server.origin}/state/stream${query}`, { headers, signal: stopping.signal });
  const events = [];
  for await (const data of eventData(response.body!)) {
    const event = JSON.parse(data) as StateEvent;
    events.push({ event, bytes: data.length });
    if (isLast(event)) break;
  }
  stopping.abort();
  return events;
}

describe("GET /state/stream", () => {
  test("tells the operator of steps, queue and waits, and another key of nothing but facts", async () => {
    const server = startTestServer({
      engines: 2,
      tbtMs: 50,
      keys: { keys: ["user"], adminKeys: ["operator"] },
    });
    const stop = load(server, 6, admin);
    const events = await eventsUntil(
      server,
      "?view=live",
      (event) =>
        event.kind === "live" &&
        event.betweenTokens !== null &&
        event.engines.every(({ steps }) => steps.length > 0),
      admin,
    );
    expect(events[0]!.event).toEqual({
      kind: "facts",
      facts: {
        version: "0.0.0-test",
        model: "demo",
        contextMax: expect.any(Number),
        status: "ready",
        refusal: null,
        isAdmin: true,
      },
    });
    const live = events.at(-1)!.event;
    if (live.kind !== "live") throw new Error("the last event is not of the live view");
    expect(live.targetMs).toBe(50);
    expect(live.engines.map(({ name }) => name)).toEqual(["simulated", "simulated"]);
    const [endMs, ms, decodes, prompt] = live.engines[0]!.steps.at(-1)!;
    expect(endMs).toBeLessThanOrEqual(live.timeMs);
    expect(ms).toBeGreaterThan(0);
    expect(decodes + prompt).toBeGreaterThan(0);
    expect(live.betweenTokens!.p50Ms).toBeLessThanOrEqual(live.betweenTokens!.p99Ms);

    server.lifecycle.becomeLost("its device is gone");
    const others = await eventsUntil(
      server,
      "?view=live",
      (event) => event.kind === "facts" && event.facts.refusal !== null,
      { authorization: "Bearer user" },
    );
    expect(others.map(({ event }) => event)).toMatchObject([
      { kind: "facts", facts: { isAdmin: false, refusal: "the engine is lost: its device is gone" } },
    ]);
    await stop().catch(() => {}); // the clients were refused
    await server.close();
  });

  test("tells a key of the tree of its own requests, and of no tree if keys share prefixes", async () => {
    const keys = { keys: ["ann", "bob"], adminKeys: ["operator"] };
    const bearer = (key: string) => ({ authorization: `Bearer ${key}` });
    const asked = async (of: TestServer, key: string, content: string) => {
      const body = { model: "demo", max_tokens: 2, messages: [{ role: "user", content }] };
      await (await post(of, "/v1/chat/completions", body, { headers: bearer(key) })).text();
    };
    const toldTo = async (of: TestServer, key: string, isLast: (now: CachesNow) => boolean) => {
      const isCache = (event: StateEvent) => event.kind === "cache" && isLast(event);
      const last = (await eventsUntil(of, "?view=cache", isCache, bearer(key))).at(-1)!.event;
      if (last.kind !== "cache") throw new Error("the last event tells of no cache");
      return last;
    };
    const hasTree = ({ caches: [cache] }: CachesNow) => cache != null;
    const text = "The quick brown fox jumps over the lazy dog. ".repeat(8);
    const alone = startTestServer({ keys, cachedTextTokens: 8 });
    await asked(alone, "ann", text);
    const beside = startTestServer({ keys, cachedTextTokens: 8 });
    await asked(beside, "bob", text);
    await asked(beside, "operator", text);
    await asked(beside, "ann", text);
    await asked(beside, "bob", `${text} And now?`);

    const own = await toldTo(beside, "ann", hasTree);
    const [cache] = own.caches;
    const [expected] = (await toldTo(alone, "ann", hasTree)).caches;
    expect(expected!.pagesTotal).toBeGreaterThan(5);
    expect(cache).toMatchObject({ pagesTotal: expected!.pagesTotal, showsText: false, evictions: [] });
    // Prompts are computed in chunks, which end where time ends, so inner borders are not the same each time.
    const endOf = ({ nodes }: CacheNow) => Math.max(...nodes.map(([, , , end]) => end));
    expect(endOf(cache!)).toBe(endOf(expected!));
    expect(cache!.nodes.every(([, , , , , , , , , age]) => age === -1)).toBe(true);
    const whole = await toldTo(beside, "operator", hasTree);
    expect(whole.caches[0]!.pagesTotal).toBeGreaterThan(2 * cache!.pagesTotal);
    const [none] = (await toldTo(alone, "bob", hasTree)).caches;
    expect(none).toMatchObject({ nodes: [], nodesTotal: 0, pagesTotal: 0 });

    const shared = startTestServer({ keys, sharePrefixes: true });
    await asked(shared, "ann", text);
    expect(await toldTo(shared, "ann", ({ keys: hits }) => hits.length > 0)).toMatchObject({
      caches: [],
      isWithheld: true,
    });
    for (const one of [alone, beside, shared]) {
      await one.settled();
      await one.close();
    }
  });

  test("an event of 64 engines is bounded, views have names, and so many clients may look", async () => {
    const server = startTestServer({ engines: 64, stepMs: 0 });
    const stop = load(server, 32);
    const events = await eventsUntil(
      server,
      "?view=live",
      (event) => event.kind === "live" && event.engines.filter(({ steps }) => steps.length > 0).length > 16,
    );
    expect(Math.max(...events.map(({ bytes }) => bytes))).toBeLessThan(120_000);
    const unknown = await fetch(`${server.origin}/state/stream?view=all`);
    expect([unknown.status, await unknown.text()]).toEqual([400, expect.stringContaining('not \\"all\\"')]);
    await stop();

    const stopping = new AbortController();
    const open = () => fetch(`${server.origin}/state/stream`, { signal: stopping.signal });
    const statuses = (await Promise.all(Array.from({ length: 65 }, open))).map(({ status }) => status);
    expect(statuses.filter((status) => status === 503)).toHaveLength(1);
    stopping.abort();
    await server.close();
  });
});

describe("a list in GET /state/stream", () => {
  const listOf = (event: StateEvent) => {
    if (event.kind !== "list") throw new Error(`an event of the kind ${event.kind} is no list`);
    return event;
  };

  test("is told whole once, and then only its changes; each key's own", async () => {
    const server = startTestServer({ keys: { keys: ["one", "two"] } });
    const asked = { model: "demo", max_tokens: 2, messages: [{ role: "user", content: "A secret." }] };
    const ask = async (key: string, id: string) => {
      const headers = { authorization: `Bearer ${key}`, "x-request-id": id };
      await (await post(server, "/v1/chat/completions", asked, { headers })).text();
    };
    await ask("two", "foreign");
    await ask("one", "first");
    const query = "?view=requests&limit=2";
    const told: StateEvent[] = [];
    let next: Promise<void> | null = null;
    await eventsUntil(
      server,
      query,
      (event) => {
        if (event.kind !== "list") return false;
        told.push(event);
        next ??= ask("one", "second").then(() => ask("one", "third"));
        return event.ids.join() === "third,second" && JSON.stringify(event).includes("answered");
      },
      { authorization: "Bearer one" },
    );
    await next;
    expect(listOf(told[0]!)).toMatchObject({ ids: ["first"], entries: [{ id: "first" }], problem: null });
    const later = told.slice(1).flatMap((event) => listOf(event).entries.map(({ id }) => id));
    expect(new Set(later)).toEqual(new Set(["second", "third"]));
    expect(JSON.stringify(told)).not.toContain("secret");
    await server.settled();
    await server.close();
  });

  test("is refused like its route, and says why there is none", async () => {
    const server = startTestServer();
    const refused = await fetch(`${server.origin}/state/stream?view=requests&sort=colour`);
    expect([refused.status, await refused.text()]).toEqual([400, expect.stringContaining("sort must be")]);
    const events = await eventsUntil(server, "?view=jobs", ({ kind }) => kind === "list");
    expect(listOf(events.at(-1)!.event)).toMatchObject({
      ids: [],
      problem: expect.stringContaining("runs no batches"),
    });
    await server.close();
  });
});

describe.skipIf(chromium === null)("in a browser", () => {
  const errors: unknown[] = [];
  let browser: Browser;
  let data: string;
  let server: TestServer;
  let stop: () => Promise<void>;

  beforeAll(async () => {
    browser = await Browser.start(chromium!);
    data = mkdtempSync(join(tmpdir(), "bunting-page-"));
    server = startTestServer({ engines: 2, tbtMs: 50, stepMs: 5, data });
    stop = load(server, 8);
  }, 60_000);
  afterAll(async () => {
    await stop();
    await browser.close();
    await server.close();
    rmSync(data, { recursive: true, force: true });
  }, 20_000);

  async function open(url: string, width = 1280): Promise<Page> {
    const page = await browser.open("about:blank");
    page.on("Runtime.exceptionThrown", (params) => errors.push(params));
    await page.call("Runtime.enable");
    await page.call("Emulation.setDeviceMetricsOverride", {
      width,
      height: 800,
      deviceScaleFactor: 1,
      mobile: false,
    });
    await page.go(url);
    return page;
  }

  async function set(page: Page, selector: string, value: string): Promise<void> {
    await page.evaluate(`{
      const field = document.querySelector("${selector}");
      field.value = "${value}";
      field.dispatchEvent(new Event("change"));
    }`);
  }

  test("Live shows steps of both engines, rates and waits, also after another view", async () => {
    const page = await open(`${server.origin}/#live`);
    await page.when(
      `document.querySelectorAll(".strip").length === 2 && [...document.querySelectorAll(".strip")].every(({ dataset }) => dataset.bars > 20)`,
    );
    await page.when(`Number(document.querySelector("[data-field=running-all]").textContent) > 0`);
    await page.when(`document.querySelector(".plot [role=img]").ariaLabel.match(/generated [1-9]/)`);
    await page.when(`document.querySelectorAll(".placements li").length > 0`);
    // A pixel of the strip is drawn in the colour of decodes.
    const drawn = `(() => {
      const strip = document.querySelector(".strip");
      const { data } = strip.getContext("2d").getImageData(0, 0, strip.width, strip.height);
      const accent = getComputedStyle(document.querySelector(".pages .owned")).fill.match(/\\d+/g).map(Number);
      for (let at = 0; at < data.length; at += 4) if (accent.every((part, of) => data[at + of] === part)) return true;
      return false;
    })()`;
    await page.when(drawn);
    await page.evaluate(`location.hash = "#chat"`);
    await page.when(`document.getElementById("question")`);
    await page.evaluate(`location.hash = "#live"`);
    await page.when(`document.querySelectorAll(".strip").length === 2`);
  }, 20_000);

  test("Cache shows the prefix tree of an engine, says what a box is, and zooms by mouse and keyboard", async () => {
    const page = await open(`${server.origin}/#cache`);
    const boxes = `document.querySelectorAll(".icicle .node").length`;
    await page.when(`${boxes} > 4`);
    await page.when(`document.querySelector(".icicle .node.leased")`);
    const label = `document.querySelector(".icicle").ariaLabel`;
    expect(await page.evaluate(label)).toMatch(/^Prefix cache of engine 0: \d+ pages in \d+ nodes$/);
    const third = `document.querySelectorAll(".icicle .node")[2]`;
    await page.evaluate(`${third}.focus()`);
    expect(await page.when(`document.querySelector(".looked").textContent.startsWith("Tokens ")`)).toBe(true);
    await page.press("Enter");
    await page.when(`!document.querySelector(".panel button").disabled`);
    await page.click(".panel button");
    await page.when(`document.querySelector(".panel button").disabled`);
    await page.evaluate(`{
      const engine = document.querySelector(".panel select");
      engine.value = "1";
      engine.dispatchEvent(new Event("change"));
    }`);
    await page.when(`${label}.includes("engine 1") && ${boxes} > 4`);
  }, 20_000);

  test("Cache tells of evictions, their reasons, and each key's hits", async () => {
    const keys = { keys: ["ann", "bob"], adminKeys: ["operator"] };
    const small = startTestServer({ keys, spec: { pages: 40 } });
    const asked = async (key: string, at: number) => {
      const text = `Number ${at}. ${"The quick brown fox jumps over the lazy dog. ".repeat(8)}`;
      const body = { model: "demo", max_tokens: 2, messages: [{ role: "user", content: text }] };
      const headers = { authorization: `Bearer ${key}` };
      await (await post(small, "/v1/chat/completions", body, { headers })).text();
    };
    for (let at = 0; at < 8; at++) for (const key of ["ann", "bob"]) await asked(key, at);
    await asked("bob", 7);
    const openAs = async (key: string) => {
      const page = await open(`${small.origin}/#cache`);
      await page.evaluate("sessionStorage.clear()");
      await page.go(`${small.origin}/?${key}#cache`);
      await page.when(`document.getElementById("key-value")`);
      await page.type(key);
      await page.press("Enter");
      await page.when(`document.querySelector(".hits li")`);
      return page;
    };
    const page = await openAs("operator");
    await page.when(`document.querySelector("[aria-label='List of evictions'] tbody tr")`);
    const rows = (await page.evaluate(
      `[...document.querySelectorAll("[aria-label='List of evictions'] tbody tr")].map((row) => row.innerText)`,
    )) as string[];
    const [ann, bob] = ["ann", "bob"].map((key) => tenantOf(key).slice(0, 16));
    expect(rows.every((row) => row.includes("not used for the longest time"))).toBe(true);
    expect(rows.some((row) => row.includes(`${ann}, for ${bob}`))).toBe(true);
    expect(await page.evaluate(`document.querySelectorAll(".hits li").length`)).toBe(2);
    const other = await openAs("bob");
    expect(
      await other.evaluate(`[...document.querySelectorAll(".hits .id")].map((id) => id.textContent)`),
    ).toEqual([bob]);
    await other.when(`document.querySelectorAll(".icicle .node").length > 1`);
    expect(await other.evaluate(`document.querySelector("[aria-label='List of evictions']")`)).toBe(null);
    for (const one of [page, other]) await one.go("about:blank");
    await small.settled();
    await small.close();
  }, 30_000);

  test("Cache shows texts to the operator alone, and only where the server allows it", async () => {
    const keys = { keys: ["ann"], adminKeys: ["operator"] };
    const shows = startTestServer({ keys, cachedTextTokens: 8 });
    const headers = { authorization: "Bearer operator" };
    const body = {
      model: "demo",
      max_tokens: 2,
      messages: [{ role: "user", content: "A lighthouse at sea." }],
    };
    await (await post(shows, "/v1/chat/completions", body, { headers })).text();
    const page = await open(`${shows.origin}/#cache`);
    await page.when(`document.getElementById("key-value")`);
    await page.type("operator");
    await page.press("Enter");
    await page.when(`document.querySelectorAll(".icicle .node").length > 1`);
    await page.evaluate(`document.querySelectorAll(".icicle .node")[2].focus()`);
    expect(await page.when(`document.querySelector(".node-text")?.textContent`)).toContain(" …");
    const told = await eventsUntil(
      shows,
      "?view=cache",
      (event) => event.kind === "cache" && event.caches[0] != null,
      headers,
    );
    const last = told.at(-1)!.event;
    if (last.kind !== "cache") throw new Error("the last event tells of no cache");
    expect(last.caches[0]).not.toHaveProperty("beginnings");
    const [id] = last.caches[0]!.nodes[1]!;
    const read = (key: string, of = shows) =>
      fetch(`${of.origin}/v1/cache/text?engine=0&node=${id}`, {
        headers: { authorization: `Bearer ${key}` },
      });
    expect(await (await read("operator")).json()).toMatchObject({ node: id, is_whole: false });
    expect((await read("ann")).status).toBe(403);
    await page.go("about:blank");
    await shows.settled();
    await shows.close();

    const shut = startTestServer({ keys });
    await (await post(shut, "/v1/chat/completions", body, { headers })).text();
    await eventsUntil(
      shut,
      "?view=cache",
      (event) => event.kind === "cache" && event.caches[0] != null,
      headers,
    );
    const refused = await read("operator", shut);
    expect([refused.status, await refused.text()]).toEqual([
      501,
      expect.stringContaining("--show-cached-text"),
    ]);
    await shut.settled();
    await shut.close();
  }, 30_000);

  test("Requests are sorted and filtered, and one's time falls into parts that make up the whole", async () => {
    const page = await open(`${server.origin}/#requests`);
    const totals = `[...document.querySelectorAll(".panel tbody tr")].map((row) => row.children[4].textContent)`;
    await page.when(`document.querySelectorAll(".panel .answered").length > 8`);
    await set(page, ".panel select", "duration");
    const inMs = (text: string): number => Number.parseFloat(text) * (text.endsWith(" ms") ? 1 : 1000);
    const sorted = `${totals}.map((text) => parseFloat(text) * (text.endsWith(" ms") ? 1 : 1000)).every((ms, at, all) => at === 0 || ms <= all[at - 1])`;
    await page.when(sorted);
    await set(page, "#slow", "100000");
    await page.when(`document.querySelector(".panel .hint")?.textContent === "None so far."`);
    await set(page, "#slow", "0");
    await page.when(`document.querySelector(".panel .answered")`);
    await page.evaluate(`document.querySelector(".panel tr:has(.answered) a").click()`);
    await page.when(`document.getElementById("waterfall")`);
    const parts = (await page.evaluate(
      `[...document.querySelectorAll(".waterfall .ms")].map((ms) => ms.textContent)`,
    )) as string[];
    const whole = (await page.evaluate(`document.querySelector("#waterfall .facts").textContent`)) as string;
    const [, total] = /^answered · ([\d.]+ m?s) · /.exec(whole)!;
    const sum = parts.map(inMs).reduce((all, ms) => all + ms, 0);
    expect(Math.abs(sum - inMs(total!))).toBeLessThan(10 + parts.length); // each part is rounded
    await page.evaluate(`document.querySelector("#waterfall a").click()`);
    await page.when(`document.getElementById("waterfall") === null`);
  }, 20_000);

  test("what was recorded is simulated with a second engine, and shown before and after", async () => {
    const recording = join(data, "recording");
    recordChats(recording, 24);
    const recorded = startTestServer({ recording });
    const page = await open(`${recorded.origin}/#requests`);
    await page.when(`document.getElementById("what-if-engines")`);
    await page.click("[aria-labelledby=what-if-title] button");
    const cells = `[...document.querySelectorAll("[aria-labelledby=what-if-title] td")]`;
    await page.when(`${cells}.length === 12`);
    expect(await page.evaluate(`${cells}.at(-1).textContent`)).toMatch(/^[\d.]+ m?s → [\d.]+ m?s$/);
    expect(await page.evaluate(`${cells}.at(-1).className`)).toContain("better");
    await page.go(`${server.origin}/#requests`); // which records nothing
    await page.when(`document.getElementById("what-if-engines")`);
    await page.click("[aria-labelledby=what-if-title] button");
    const told = await page.when(
      `document.querySelector("[aria-labelledby=what-if-title] .hint")?.textContent`,
    );
    expect(told).toStartWith("Nothing is recorded, so nothing can be simulated");
    await page.go("about:blank");
    await recorded.close();
  }, 40_000);

  test("an answer's link leads from the chat to its request", async () => {
    const page = await open(server.origin);
    await page.when(`document.getElementById("send")?.disabled === false`);
    await set(page, "#set-max_tokens", "5");
    await page.evaluate(`document.getElementById("question").focus()`);
    await page.type("Hello?");
    await page.press("Enter");
    await page.when(`document.querySelector(".facts a")`);
    await page.click(".facts a");
    expect(await page.when(`document.getElementById("waterfall-title")?.textContent`)).toContain("req_");
  }, 20_000);

  test("Programs and Jobs show their progress", async () => {
    const body = { variables: { approval: null }, calls: [ask("Say {{approval}}", "final", 1)] };
    const opened = await post(server, "/v1/sessions", body);
    const { id } = (await opened.json()) as { readonly id: string };
    const page = await open(`${server.origin}/#programs`);
    await page.when(`document.querySelector(".work")?.textContent.includes("${id}")`);
    expect(await page.evaluate(`document.querySelector(".work .facts").textContent`)).toContain(
      "0 of 1 calls done · 0 running",
    );
    await fetch(`${server.origin}/v1/sessions/${id}`, { method: "DELETE" });
    await page.when(`document.querySelector(".work li") === null`);

    const line = { custom_id: "a", method: "POST", url: "/v1/chat/completions" };
    const asked = { model: "demo", messages: [{ role: "user", content: "Hello" }], max_tokens: 3 };
    const batch = await begin(clientOf(server), [JSON.stringify({ ...line, body: asked })]);
    await page.evaluate(`location.hash = "#jobs"`);
    await page.when(`document.querySelector(".work")?.textContent.includes("${batch.id}")`);
    await page.when(`document.querySelector(".work .facts").textContent.includes("1 of 1 lines done")`);
    expect(await page.evaluate(`document.querySelector(".work progress").value`)).toBe(1);
  }, 20_000);

  test("a program is a graph, coloured by state, with its critical path", async () => {
    const calls = [
      ask("Begin with {{approval}}", "start", 1),
      ask("Left of {{start}}", "left", 1),
      ask("Right of {{start}}", "right", 1),
      ask("More of {{right}}", "more", 1),
      ask("Both {{left}} {{more}}", "final", 1),
      ask("Alone", "alone", 1),
    ];
    const opened = await post(server, "/v1/sessions", { variables: { approval: null }, calls });
    const { id } = (await opened.json()) as { readonly id: string };
    const page = await open(`${server.origin}/#programs`);
    const graph = `document.querySelector('[aria-label="Graph of ${id}"] svg')`;
    await page.when(graph);
    expect(await page.evaluate(`${graph}.querySelectorAll(".call").length`)).toBe(6);
    expect(await page.evaluate(`${graph}.querySelectorAll(".edge").length`)).toBe(5);
    expect(await page.evaluate(`${graph}.querySelectorAll(".edge.critical").length`)).toBe(3);
    await page.when(`${graph}.querySelector("title").textContent.includes("5 waiting")`);
    await fetch(`${server.origin}/v1/sessions/${id}`, { method: "DELETE" });
    await page.when(`document.querySelector(".work li") === null`);
  }, 20_000);

  test("a page that nobody sees gets nothing, and no view asks again and again", async () => {
    const page = await open(`${server.origin}/#chat`);
    await page.when(`document.getElementById("send")?.disabled === false`);
    await page.evaluate(`{
      window.streams = [];
      const plain = window.fetch;
      window.fetch = (url, init) => {
        streams.push({ url: String(url), signal: init?.signal });
        return plain(url, init);
      };
    }`);
    for (const view of ["requests", "cache", "programs", "jobs", "live"]) {
      await page.evaluate(`location.hash = "#${view}"`);
      await page.when(`document.querySelector("main.${view}")`);
      await page.when(
        `streams.at(-1)?.url.includes("v1/models") || streams.at(-1)?.url.includes("view=${view}")`,
      );
    }
    const see = (state: string) =>
      page.evaluate(`{
        Object.defineProperty(document, "visibilityState", { value: "${state}", configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }`);
    const reading = `streams.filter(({ url, signal }) => url.includes("state/stream") && !signal.aborted).length`;
    expect(await page.evaluate(reading)).toBe(1);
    await see("hidden");
    expect(await page.evaluate(reading)).toBe(0);
    await see("visible");
    expect(await page.evaluate(reading)).toBe(1);
    const others = `[...new Set(streams.map(({ url }) => new URL(url).pathname))].sort()`;
    expect(await page.evaluate(others)).toEqual(["/state/stream", "/v1/models"]);
  }, 20_000);

  test("every control has a name, every view a heading, and the keyboard reaches the views", async () => {
    const page = await open(server.origin);
    await page.when(`document.getElementById("send")?.disabled === false`);
    await page.evaluate(`document.activeElement.blur()`);
    for (const view of ["chat", "live", "requests", "cache", "programs", "jobs"]) {
      await page.evaluate(`document.querySelector("nav a[href='#${view}']").focus()`);
      await page.press("Enter");
      await page.when(`location.hash === "#${view}" && document.querySelector("main h2, main #log")`);
      const { nodes } = (await page.call("Accessibility.getFullAXTree")) as { nodes: AxNode[] };
      const unnamed = nodes.filter(
        ({ ignored, role, name }) => !ignored && controls.has(role?.value ?? "") && !name?.value,
      );
      expect([view, unnamed]).toEqual([view, []]);
    }
  }, 20_000);

  test("a narrow page has no sideways scrolling", async () => {
    const chain = Array.from({ length: 8 }, (_, at) => ask(`Go on {{v${at}}}`, `v${at + 1}`, 1));
    const opened = await post(server, "/v1/sessions", { variables: { v0: null }, calls: chain });
    const { id } = (await opened.json()) as { readonly id: string };
    const page = await open(`${server.origin}/#live`, 390);
    await page.when(`document.querySelectorAll(".strip").length === 2`);
    for (const view of ["live", "requests", "cache", "programs", "jobs", "chat"]) {
      await page.evaluate(`location.hash = "#${view}"`);
      await page.when(`document.querySelector("nav a[aria-current]").getAttribute("href") === "#${view}"`);
      const wide = `[...document.querySelectorAll("main, main *")].filter((element) => element.getBoundingClientRect().right > 391 && element.closest(".wide, nav, .unseen, svg") === null).length`;
      if (view === "programs") await page.when(`document.querySelector(".graph")`);
      expect(await page.evaluate(`[document.documentElement.scrollWidth, ${wide}]`)).toEqual([390, 0]);
    }
    await fetch(`${server.origin}/v1/sessions/${id}`, { method: "DELETE" });
  }, 20_000);

  test.each([8, 64])(
    "%d engines are below each other and readable",
    async (engines) => {
      const many = startTestServer({ engines, stepMs: 10 });
      const stopMany = load(many, engines);
      const page = await open(`${many.origin}/#live`);
      const strips = `[...document.querySelectorAll(".strip")]`;
      await page.when(
        `${strips}.length === ${engines} && ${strips}.filter(({ dataset }) => dataset.bars > 0).length > ${engines / 2}`,
      );
      const boxes = (await page.evaluate(
        `${strips}.map((strip) => [strip.clientWidth, strip.clientHeight])`,
      )) as number[][];
      for (const [width, height] of boxes) {
        expect(width).toBeGreaterThan(250);
        expect(height).toBeGreaterThan(20);
      }
      await page.evaluate(`location.hash = "#cache"`);
      await page.when(`document.querySelectorAll(".panel select option").length === ${engines + 2}`);
      await page.go("about:blank");
      await stopMany();
      await many.close();
    },
    30_000,
  );

  test("a key that is not the operator's sees its own requests, and no engines", async () => {
    const keyed = startTestServer({ keys: { keys: ["one", "two"], adminKeys: ["operator"] } });
    const body = { model: "demo", max_tokens: 2, messages: [{ role: "user", content: "A secret." }] };
    for (const key of ["one", "two"]) {
      const headers = { authorization: `Bearer ${key}`, "x-request-id": `of-${key}` };
      await (await post(keyed, "/v1/chat/completions", body, { headers })).text();
    }
    const page = await open(`${keyed.origin}/#live`);
    await page.when(`document.getElementById("key-value")`);
    await page.type("one");
    await page.press("Enter");
    await page.when(`document.querySelector(".note")?.textContent.includes("operator's key")`);
    expect(await page.evaluate(`document.querySelectorAll(".strip").length`)).toBe(0);
    await page.evaluate(`location.hash = "#requests"`);
    await page.when(`document.querySelector(".panel tbody")`);
    expect(await page.evaluate(`[...document.querySelectorAll(".id")].map((id) => id.textContent)`)).toEqual([
      "of-one",
    ]);
    expect(await page.evaluate(`document.body.textContent.includes("A secret.")`)).toBe(false);
    await page.go("about:blank");
    await keyed.settled();
    await keyed.close();
  }, 20_000);

  test("nothing of it broke", () => expect(errors).toEqual([]));
});
