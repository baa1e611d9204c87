/** Page at `/` before the model is loaded, and its stored conversations. */

import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { refusalOn } from "../../server/api/refusals.ts";
import { pathOf } from "../../server/http/head.ts";
import { Lifecycle } from "../../server/http/lifecycle.ts";
import { listen } from "../../server/http/listen.ts";
import { Browser, chromium, type Page } from "./browser.ts";
import { startTestServer, type TestServer } from "./server.ts";

describe.skipIf(chromium === null)("in a browser", () => {
  const isIdle = `!document.getElementById("send").hidden`;
  const questions = `[...document.querySelectorAll(".user .body")].map((body) => body.textContent)`;
  const options = `[...document.querySelectorAll("#past option")].slice(1).map(({ text }) => text.replace(/ \\(.*/, ""))`;
  const hasOnePast = `document.querySelectorAll("#past option").length === 2`;
  const typed = `["system", "temperature", "tokens-max"].map((id) => document.getElementById(id).value)`;
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
    await page.go(url);
    return page;
  }

  async function ask(page: Page, text: string): Promise<void> {
    await page.when(`!document.getElementById("send").disabled`);
    const answers = Number(await page.evaluate(`document.querySelectorAll(".facts:not([hidden])").length`));
    await page.evaluate(`document.getElementById("question").focus()`);
    await page.type(text);
    await page.press("Enter");
    await page.when(
      `${isIdle} && document.querySelectorAll(".facts:not([hidden])").length === ${answers + 1}`,
    );
  }

  async function set(page: Page, id: string, value: string): Promise<void> {
    await page.evaluate(`{
      const field = document.getElementById("${id}");
      field.value = ${JSON.stringify(value)};
      field.dispatchEvent(new Event("change"));
    }`);
  }

  async function choose(page: Page, title: string): Promise<void> {
    await page.evaluate(`{
      const list = document.getElementById("past");
      list.value = [...list.options].find(({ text }) => text.startsWith(${JSON.stringify(title)})).value;
      list.dispatchEvent(new Event("change"));
    }`);
  }

  test("the page waits for the model by itself, and says when the server is gone", async () => {
    const waiting = listen({ host: "127.0.0.1", port: 0 }, new Lifecycle("loading"), refusalOn);
    const page = await open(waiting.origin);
    const said = `!document.getElementById("status").hidden && document.getElementById("status").textContent`;
    expect(await page.when(said)).toBe(
      "The model is still being loaded. This page goes on by itself when the server is ready.",
    );
    await page.evaluate(`document.getElementById("question").focus()`);
    await page.type("Are you there?");
    await page.press("Enter");
    expect(await page.evaluate(questions)).toEqual([]);

    // Serves like the server itself, once it is ready.
    waiting.serve = (request) => {
      const { method, headers, body } = request;
      return fetch(server.origin + pathOf(request), { method, headers, body });
    };
    await page.when(`document.getElementById("status").hidden`);
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
    await page.click("#new");
    expect(await page.evaluate(questions)).toEqual([]);
    expect(await page.evaluate(typed)).toEqual(["Be brief.", "0.5", ""]);
    await set(page, "temperature", "1");
    await set(page, "tokens-max", "30");
    await ask(page, "Second question.");
    expect(await page.evaluate(options)).toEqual(["First question."]);

    await choose(page, "First");
    for (const load of [false, true]) {
      if (load) await page.go(server.origin);
      expect(await page.evaluate(questions)).toEqual(["First question."]);
      expect(await page.evaluate(typed)).toEqual(["Be brief.", "0.5", ""]);
      expect(await page.evaluate(options)).toEqual(["Second question."]);
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
    await ask(one, "Begin.");
    const two = await open(server.origin);
    expect(await two.evaluate(questions)).toEqual([]);
    await choose(two, "Begin.");
    await ask(two, "This way.");
    await one.when(hasOnePast); // it has seen the other page's conversation
    await ask(one, "That way.");
    await two.when(hasOnePast);
    for (const page of [one, two]) await page.go(server.origin);
    expect(await one.evaluate(questions)).toEqual(["Begin.", "That way."]);
    expect(await two.evaluate(questions)).toEqual(["Begin.", "This way."]);
  }, 30_000);

  test("the last twenty are kept, and none that was forgotten", async () => {
    const page = await open(server.origin);
    await page.evaluate(`{
      const messages = [{ role: "user", content: "old" }];
      const settings = { system: "", temperature: "", tokensMax: "" };
      const many = Array.from({ length: 40 }, (_, id) => ({ id: String(id), changedMs: 0, settings, messages }));
      localStorage.setItem("bunting-conversations", JSON.stringify(many));
    }`);
    await ask(page, "New.");
    expect(await page.evaluate(options)).toEqual(Array(19).fill("old"));
    await page.click("#forget");
    expect(await page.evaluate(`[${questions}, document.getElementById("past").hidden]`)).toEqual([[], true]);
    await page.go(server.origin);
    expect(await page.evaluate(`[${questions}, document.getElementById("past").hidden]`)).toEqual([[], true]);
  }, 30_000);

  test("nothing of it broke", () => expect(errors).toEqual([]));
});
