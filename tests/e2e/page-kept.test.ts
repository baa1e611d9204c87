/** Page at `/` before the model is loaded, and its stored conversations. */

import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { refusalOn } from "../../server/api/refusals.ts";
import { Lifecycle } from "../../server/http/lifecycle.ts";
import { listen } from "../../server/http/listen.ts";
import { Browser, chromium, type Page } from "./browser.ts";
import { startTestServer, type TestServer } from "./server.ts";

describe.skipIf(chromium === null)("in a browser", () => {
  const isIdle = `document.getElementById("send") !== null`;
  const questions = `[...document.querySelectorAll(".user .body")].map((body) => body.textContent)`;
  const entries = `[...document.querySelectorAll(".entry .title")].map((title) => title.textContent)`;
  const typed = `["system", "temperature", "max_tokens"].map((id) => document.getElementById("set-" + id).value)`;
  const facts = `document.querySelectorAll(".facts").length`;
  const errors: unknown[] = [];
  let browser: Browser;
  let server: TestServer;

  beforeAll(async () => {
    browser = await Browser.start(chromium!);
    server = startTestServer({ answers: () => ["An answer."] });
  }, 60_000);
  afterEach(() => server.settled());
  afterAll(async () => {
    await browser.close();
    await server.close();
  });

  async function open(url: string): Promise<Page> {
    const page = await browser.open("about:blank");
    page.on("Runtime.exceptionThrown", (params) => errors.push(params));
    await page.call("Runtime.enable");
    const size = { width: 1280, height: 800, deviceScaleFactor: 1, mobile: false };
    await page.call("Emulation.setDeviceMetricsOverride", size);
    await page.go(url);
    return page;
  }

  async function ask(page: Page, text: string): Promise<void> {
    await page.when(`document.getElementById("send")?.disabled === false`);
    const answers = Number(await page.evaluate(facts));
    await page.evaluate(`document.getElementById("question").focus()`);
    await page.type(text);
    await page.press("Enter");
    await page.when(`${isIdle} && ${facts} === ${answers + 1}`);
  }

  async function set(page: Page, id: string, value: string): Promise<void> {
    await page.evaluate(`{
      const field = document.getElementById("set-${id}");
      field.value = ${JSON.stringify(value)};
      field.dispatchEvent(new Event("change"));
    }`);
  }

  /** Opens the kept conversation whose title begins so. */
  async function choose(page: Page, title: string): Promise<void> {
    await page.evaluate(
      `[...document.querySelectorAll(".entry")].find((entry) => entry.textContent.startsWith(${JSON.stringify(title)})).click()`,
    );
    await page.when(`${questions}[0]?.startsWith(${JSON.stringify(title)})`);
  }

  async function startNew(page: Page): Promise<void> {
    await page.click("#new");
    await page.when(`${questions}.length === 0`);
  }

  test("the page waits for the model by itself, and says when the server is gone", async () => {
    const lifecycle = new Lifecycle("loading");
    const waiting = listen({ host: "127.0.0.1", port: 0 }, lifecycle, refusalOn);
    const page = await open(waiting.origin);
    const said = `document.querySelector("#status p")?.textContent`;
    expect(await page.when(`(${said} || "").startsWith("The model") && ${said}`)).toBe(
      "The model is still being loaded. This page goes on by itself when the server is ready.",
    );
    await page.evaluate(`document.getElementById("question").focus()`);
    await page.type("Are you there?");
    await page.press("Enter");
    expect(await page.evaluate(questions)).toEqual([]);
    lifecycle.loading = { stage: "loading", doneBytes: 5e8, totalBytes: 2e9 };
    const progress = `document.querySelector("#status progress")`;
    expect(await page.when(`${progress} && [${progress}.value, ${progress}.max]`)).toEqual([5e8, 2e9]);
    expect(await page.evaluate(`document.querySelector("#status .hint").textContent`)).toBe(
      "Loading: 0.50 GB of 2.00 GB",
    );

    // Serves like the server itself, once it is ready.
    waiting.serve = server.fetch;
    await page.when(`document.getElementById("status") === null`);
    expect(await page.evaluate(`document.getElementById("question").value`)).toBe("Are you there?");
    await page.press("Enter");
    await page.when(`${isIdle} && document.querySelector(".assistant .body")?.textContent === "An answer."`);

    await waiting.kill();
    const gone = await page.when(`(${said} || "").includes("cannot be reached") && ${said}`);
    expect(gone).toContain("this page goes on when it is back");
  }, 30_000);

  test("settings are kept with their conversation, and one that was replaced can be brought back", async () => {
    const page = await open(server.origin);
    await set(page, "system", "Be brief.");
    await set(page, "temperature", "0.5");
    await ask(page, "First question.");
    await startNew(page);
    expect(await page.evaluate(typed)).toEqual(["Be brief.", "0.5", ""]);
    await set(page, "temperature", "1");
    await set(page, "max_tokens", "30");
    await ask(page, "Second question.");
    expect(await page.evaluate(entries)).toEqual(["Second question.", "First question."]);

    await choose(page, "First");
    for (const load of [false, true]) {
      if (load) await page.go(server.origin);
      expect(await page.evaluate(questions)).toEqual(["First question."]);
      expect(await page.evaluate(typed)).toEqual(["Be brief.", "0.5", ""]);
    }
    await ask(page, "And more?");
    await choose(page, "Second");
    expect(await page.evaluate(typed)).toEqual(["Be brief.", "1", "30"]);
    await choose(page, "First");
    expect(await page.evaluate(questions)).toEqual(["First question.", "And more?"]);
  }, 30_000);

  test("two tabs that go on with the same conversation keep both ways", async () => {
    const one = await open(server.origin);
    await one.click("#forget");
    await one.when(`${questions}.length === 0`);
    await ask(one, "Begin.");
    const two = await open(server.origin);
    expect(await two.evaluate(questions)).toEqual([]);
    await choose(two, "Begin.");
    await ask(two, "This way.");
    await one.when(`document.querySelector(".entry[aria-current]") === null`); // it has seen the other's turn
    await ask(one, "That way.");
    await two.when(`${entries}.length === 2`);
    for (const page of [one, two]) await page.go(server.origin);
    expect(await one.evaluate(questions)).toEqual(["Begin.", "That way."]);
    expect(await two.evaluate(questions)).toEqual(["Begin.", "This way."]);
  }, 30_000);

  test("the last two hundred are kept, as an earlier version of the page stored them too, and none that was forgotten", async () => {
    const page = await open(server.origin);
    await page.evaluate(`{
      const messages = [{ role: "user", content: "old" }, { role: "assistant", content: "gold" }];
      const settings = { system: "", temperature: "0.3", tokensMax: "" };
      const many = Array.from({ length: 240 }, (_, id) => ({ id: String(id), changedMs: 0, settings, messages }));
      localStorage.setItem("bunting-conversations", JSON.stringify(many));
    }`);
    await page.go(server.origin);
    await ask(page, "New.");
    expect(await page.evaluate(entries)).toEqual(["New.", ...Array(199).fill("old")]);
    await choose(page, "old");
    expect(
      await page.evaluate(`[...document.querySelectorAll(".body")].map((body) => body.textContent)`),
    ).toEqual(["old", "gold"]);
    expect(await page.evaluate(typed)).toEqual(["", "0.3", ""]);
    await page.click("#forget");
    await page.when(`${entries}.length === 0`);
    await page.go(server.origin);
    expect(await page.evaluate(`[${questions}, ${entries}]`)).toEqual([[], []]);
  }, 30_000);

  test("conversations are found by their words, deleted, exported and imported", async () => {
    const page = await open(server.origin);
    await ask(page, "Red kites.");
    await startNew(page);
    await ask(page, "Blue boats.");
    await page.evaluate(`document.getElementById("search").focus()`);
    await page.type("kite RED");
    await page.when(`${entries}.join() === "Red kites."`);
    await page.evaluate(`{
      const search = document.getElementById("search");
      search.value = "";
      search.dispatchEvent(new Event("input"));
    }`);
    await page.when(`${entries}.length === 2`);
    const exported = (await page.evaluate(`new Promise((resolve) => {
      URL.createObjectURL = (file) => { resolve(file.text()); return "blob:none"; };
      HTMLAnchorElement.prototype.click = () => {};
      [...document.querySelectorAll("#past button")].find((button) => button.textContent === "Export").click();
    })`)) as string;
    await page.click(`[aria-label="Delete “Red kites.”"]`);
    await page.when(`${entries}.join() === "Blue boats."`);
    const imported = async (text: string) => {
      await page.evaluate(`{
        const files = new DataTransfer();
        files.items.add(new File([${JSON.stringify(text)}], "conversations.json"));
        const field = document.getElementById("import");
        field.files = files.files;
        field.dispatchEvent(new Event("change"));
      }`);
    };
    await imported(exported);
    await page.when(`${entries}.length === 2`);
    await choose(page, "Red kites.");
    await imported("{}");
    await page.when(
      `document.querySelector("#past [role=status]").textContent.includes("holds no conversations")`,
    );
  }, 30_000);

  test("nothing of it broke", () => expect(errors).toEqual([]));
});
