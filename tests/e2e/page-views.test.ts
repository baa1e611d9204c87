/** Views of the page on a server under load, and the stream of the state that they read. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { eventData } from "../../server/cli/client.ts";
import type { StateEvent } from "../../server/http/state-events.ts";
import { Browser, chromium, type Page } from "./browser.ts";
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

describe.skipIf(chromium === null)("in a browser", () => {
  const errors: unknown[] = [];
  let browser: Browser;
  let server: TestServer;
  let stop: () => Promise<void>;

  beforeAll(async () => {
    browser = await Browser.start(chromium!);
    server = startTestServer({ engines: 2, tbtMs: 50, stepMs: 5 });
    stop = load(server, 8);
  }, 60_000);
  afterAll(async () => {
    await stop();
    await browser.close();
    await server.close();
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
    await page.when(`!document.querySelector("#cache button").disabled`);
    await page.click("#cache button");
    await page.when(`document.querySelector("#cache button").disabled`);
    await page.evaluate(`{
      const engine = document.querySelector("#cache select");
      engine.value = "1";
      engine.dispatchEvent(new Event("change"));
    }`);
    await page.when(`${label}.includes("engine 1") && ${boxes} > 4`);
  }, 20_000);

  test("a narrow page has no sideways scrolling", async () => {
    const page = await open(`${server.origin}/#live`, 390);
    await page.when(`document.querySelectorAll(".strip").length === 2`);
    for (const view of ["live", "cache", "chat"]) {
      await page.evaluate(`location.hash = "#${view}"`);
      await page.when(`document.querySelector("nav a[aria-current]").getAttribute("href") === "#${view}"`);
      const wide = `[...document.querySelectorAll("main, main *")].filter((element) => element.getBoundingClientRect().right > 391 && element.closest(".wide, nav, .unseen, svg") === null).length`;
      expect(await page.evaluate(`[document.documentElement.scrollWidth, ${wide}]`)).toEqual([390, 0]);
    }
  }, 20_000);

  test("nothing of it broke", () => expect(errors).toEqual([]));
});
