/** Answers of the page that go on after a reload or a lost connection, and those that cannot. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Browser, chromium, type Page } from "./browser.ts";
import { chatBody, post, startTestServer, type TestServer } from "./server.ts";

/** Address that relays connections to a server, and can lose them. */
function relayTo(origin: string) {
  let { port } = new URL(origin);
  type Ends = { server: Promise<Bun.Socket> };
  const open = new Set<Bun.Socket<Ends>>();
  const relay = Bun.listen<Ends>({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      open: (client) => {
        open.add(client);
        const data = (_: unknown, bytes: Uint8Array) => void client.write(bytes);
        const socket = { data, close: () => void client.end(), error: () => {} };
        client.data = { server: Bun.connect({ hostname: "127.0.0.1", port: Number(port), socket }) };
      },
      data: async ({ data: { server } }, bytes) => {
        const copy = Buffer.from(bytes);
        (await server).write(copy);
      },
      close: async (client) => {
        open.delete(client);
        (await client.data.server).end();
      },
      error: () => {},
    },
  });
  return {
    origin: `http://127.0.0.1:${relay.port}`,
    leadTo: (other: string) => {
      port = new URL(other).port;
    },
    cut: () => {
      for (const client of open) client.terminate();
    },
    close: () => relay.stop(true),
  };
}

describe.skipIf(chromium === null)("in a browser", () => {
  const isIdle = `document.getElementById("send") !== null`;
  const body = `[...document.querySelectorAll(".assistant .body")].at(-1)?.textContent`;
  const hasSome = `!(${isIdle}) && ${body}?.length > 40`;
  const words = Array.from({ length: 150 }, (_, at) => `word${at}`).join(" ");
  const errors: unknown[] = [];
  let browser: Browser;

  beforeAll(async () => {
    browser = await Browser.start(chromium!);
  }, 60_000);
  afterAll(() => browser.close());

  async function open(url: string): Promise<Page> {
    const page = await browser.open("about:blank");
    page.on("Runtime.exceptionThrown", (params) => errors.push(params));
    await page.call("Runtime.enable");
    await page.go(url);
    return page;
  }

  async function ask(page: Page, text: string): Promise<void> {
    await page.when(`document.getElementById("send")?.disabled === false`);
    await page.evaluate(`document.getElementById("question").focus()`);
    await page.type(text);
    await page.press("Enter");
  }

  async function serving(
    act: (page: Page, server: TestServer) => Promise<void>,
    options: Parameters<typeof startTestServer>[0] = {},
  ): Promise<void> {
    const server = startTestServer({ answers: () => [words], stepMs: 5, ...options });
    const page = await open(server.origin);
    await act(page, server);
    await page.call("Page.close");
    await server.settled();
    await server.close();
  }

  test("an answer goes on after the page is loaded again, and is the whole answer", async () => {
    await serving(async (page, server) => {
      await ask(page, "Tell me.");
      await page.when(hasSome);
      await page.go(server.origin);
      await page.when(`${isIdle} && document.querySelector(".facts")`);
      expect(await page.evaluate(body)).toBe(words);
      expect(await page.evaluate(`document.querySelectorAll("article").length`)).toBe(2);
      expect(await page.evaluate(`document.querySelector(".cut")`)).toBe(null);
      await page.go(server.origin); // it is kept like any other
      expect(await page.evaluate(body)).toBe(words);
      expect(await page.evaluate(isIdle)).toBe(true);
    });
  }, 20_000);

  test("an answer that ended while the page was away is there, too", async () => {
    await serving(async (page, server) => {
      await ask(page, "Tell me.");
      await page.when(hasSome);
      await page.go("about:blank");
      await server.settled();
      await page.go(server.origin);
      await page.when(`${isIdle} && document.querySelector(".facts")`);
      expect(await page.evaluate(body)).toBe(words);
    });
  }, 20_000);

  test("an answer that the page has whole is not asked for again", async () => {
    await serving(async (page, server) => {
      await ask(page, "Tell me.");
      await page.when(hasSome);
      const kept = `sessionStorage.getItem("bunting-answer")`;
      await page.evaluate(`document.dispatchEvent(new Event("visibilitychange"))`);
      const pending = await page.evaluate(kept);
      await page.when(`${isIdle} && document.querySelector(".facts")`);
      // A page that the system drops in the background tells nothing when it is left.
      await page.evaluate(
        `addEventListener("pagehide", () => sessionStorage.setItem("bunting-answer", ${JSON.stringify(pending)}))`,
      );
      await page.go(server.origin);
      await page.when(`document.getElementById("send")?.disabled === false`);
      expect(await page.evaluate(`document.querySelectorAll("article").length`)).toBe(2);
    });
  }, 20_000);

  test("an answer goes on after its connection was lost", async () => {
    await serving(async (_, server) => {
      const relay = relayTo(server.origin);
      const page = await open(relay.origin);
      await ask(page, "Tell me.");
      await page.when(hasSome);
      relay.cut();
      await page.when(`${isIdle} && document.querySelector(".facts")`);
      expect(await page.evaluate(body)).toBe(words);
      expect(await page.evaluate(`document.querySelector(".cut")`)).toBe(null);
      await page.call("Page.close");
      relay.close();
    });
  }, 20_000);

  test("Stop ends the answer on the server at once, also after the page is loaded again", async () => {
    const slow = { answers: () => [words.repeat(10)], stepMs: 5, limits: { readerlessMs: 600_000 } };
    await serving(async (page, server) => {
      for (const load of [false, true]) {
        await ask(page, "Tell me.");
        await page.when(hasSome);
        if (load) {
          await page.go(server.origin);
          await page.when(hasSome);
        }
        await page.click("#stop");
        await page.when(isIdle);
        await server.settled();
      }
    }, slow);
  }, 20_000);

  test("the answer of a server that was killed meanwhile is marked as cut, and is not in the next prompt", async () => {
    const first = startTestServer({ answers: () => [words], stepMs: 10 });
    const prompts: string[] = [];
    const next = startTestServer({
      answers: (prompt) => {
        prompts.push(prompt);
        return ["Yes."];
      },
    });
    // The page stays at one address, behind which another server begins to answer.
    const relay = relayTo(first.origin);
    const page = await open(relay.origin);
    await ask(page, "Tell me.");
    await page.when(hasSome);
    relay.leadTo(next.origin);
    relay.cut();
    await page.go(relay.origin);
    const note = await page.when(`${isIdle} && document.querySelector(".cut .cut-note")?.textContent`);
    expect(note).toContain("The server broke off its answer.");
    expect(words.startsWith(String(await page.evaluate(body)).trim())).toBe(true);
    expect(String(await page.evaluate(body)).length).toBeGreaterThan(40);
    await ask(page, "And now?");
    await page.when(`${isIdle} && ${body} === "Yes."`);
    expect(prompts.at(-1)).toContain("Tell me.");
    expect(prompts.at(-1)).not.toContain("word0");
    await page.call("Page.close");
    relay.close();
    await next.settled();
    await next.close();
    await first.close();
  }, 20_000);

  test("a question that waits says for about how long", async () => {
    await serving(
      async (page, server) => {
        const long = chatBody("x", { stream: true, max_tokens: 600, ignore_eos: true });
        const other = await post(server, "/v1/chat/completions", long);
        const reader = other.body!.getReader();
        await reader.read(); // it has the only place in a step
        await ask(page, "Tell me.");
        const told = await page.when(`document.querySelector(".wait")?.textContent`);
        expect(told).toMatch(/^The first word comes in about [\d.]+ s \([\d.]+ to [\d.]+ s\)\.$/);
        await page.when(`${isIdle} && document.querySelector(".facts")`);
        expect(await page.evaluate(`document.querySelector(".wait")`)).toBe(null);
        while (!(await reader.read()).done);
      },
      { stepMs: 6, spec: { stepChunksMax: 1 } },
    );
  }, 20_000);

  test("nothing of it broke", () => expect(errors).toEqual([]));
});
