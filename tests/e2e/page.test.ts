/** Page at `/`: the served files, and a chat in a browser. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { EngineId, SequenceId } from "../../scheduler/core.ts";
import type { Snapshot } from "../../server/http/state.ts";
import { Browser, chromium, type Page } from "./browser.ts";
import { bodyOf, chatBody, post, startTestServer, type TestServer } from "./server.ts";

/** Template of a model that thinks before it answers. */
const thinkingTemplate = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}`;

describe("the files", () => {
  let server: TestServer;
  beforeAll(() => {
    server = startTestServer({ keys: { keys: ["secret"] } });
  });
  afterAll(() => server.close());

  /** Returns the paths that the page refers to. */
  async function references(): Promise<string[]> {
    const html = await (await fetch(server.origin)).text();
    return [...html.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, path]) => path!);
  }

  test("are a page, a script, a style sheet and an icon, which need no key", async () => {
    const page = await fetch(server.origin);
    expect([page.status, page.headers.get("content-type")]).toEqual([200, "text/html;charset=utf-8"]);
    expect(page.headers.get("cache-control")).toBe("no-cache");
    const types = new Set<string>();
    for (const path of await references()) {
      const file = await fetch(new URL(path, `${server.origin}/`));
      expect(file.status).toBe(200);
      expect(file.headers.get("cache-control")).toContain("immutable");
      types.add(file.headers.get("content-type")!.split(";")[0]!);
    }
    expect([...types].sort()).toEqual(["image/svg+xml", "text/css", "text/javascript"]);
  });

  test("run no script but their own, and are shown in no frame", async () => {
    for (const path of ["", ...(await references())]) {
      const { headers } = await fetch(new URL(path, `${server.origin}/`));
      const policy = headers.get("content-security-policy")!.split("; ");
      expect(policy).toContain("default-src 'none'");
      expect(policy).toContain("script-src 'self'");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy.join()).not.toContain("unsafe");
      expect(headers.get("x-content-type-options")).toBe("nosniff");
    }
    const html = await (await fetch(server.origin)).text();
    expect(html).not.toMatch(/<script(?![^>]*src=)|<style|\son\w+=|\sstyle=/);
  });

  test("name no other host", async () => {
    for (const path of ["", ...(await references())]) {
      const text = await (await fetch(new URL(path, `${server.origin}/`))).text();
      const hosts = [...text.matchAll(/(?:https?:|["'(=])\/\/[\w.-]+[^"'\s)]*/g)].map(([url]) => url);
      // URLs that no page fetches: a namespace, and the address in an error message of the Markdown parser.
      const names = /^http:\/\/www\.w3\.org\/2000\/svg$|^https:\/\/github\.com\/markedjs\/marked\./;
      expect(hosts.filter((url) => !names.test(url))).toEqual([]);
    }
  });

  test("are no more than those", async () => {
    for (const path of ["/page/", "/page/app.ts", "/page/..%2fembedded.ts", "/page/index.html/x"]) {
      expect((await fetch(server.origin + path)).status).toBe(404);
    }
    expect((await fetch(`${server.origin}/page/x`, { method: "POST" })).status).toBe(405);
  });

  test("stay on this machine like everything else", async () => {
    const foreign = await fetch(server.origin, { headers: { origin: "http://example.com" } });
    expect(foreign.status).toBe(403);
  });
});

describe("GET /state", () => {
  test("needs a key when there are keys", async () => {
    const server = startTestServer({ keys: { keys: ["secret"] } });
    const refused = await fetch(`${server.origin}/state`);
    expect(refused.status).toBe(401);
    expect((await bodyOf(refused)).error.message).toContain("API key");
    const taken = await fetch(`${server.origin}/state`, { headers: { authorization: "Bearer secret" } });
    expect(taken.status).toBe(200);
    await server.close();
  });

  test("tells of every engine while a request runs, and after", async () => {
    const server = startTestServer({ stepMs: 5 });
    const state = async () => (await (await fetch(`${server.origin}/state`)).json()) as Snapshot;
    const ending = new AbortController();
    const body = chatBody("Hello", { stream: true, max_tokens: 1000, ignore_eos: true });
    const answer = await post(server, "/v1/chat/completions", body, { signal: ending.signal });
    const reader = answer.body!.getReader();
    let said = "";
    while (!/"content":"[^"]/.test(said)) said += new TextDecoder().decode((await reader.read()).value); // until a token is drawn

    const count = expect.any(Number);
    const during = await state();
    expect(during).toEqual({
      version: "0.0.0-test",
      model: "demo",
      contextMax: count,
      status: "ready",
      timeMs: count,
      engines: [
        {
          device: {
            name: "simulated",
            pages: 4096,
            pageTokens: 16,
            stepTokensMax: 1024,
            stepChunksMax: 256,
            contextMax: during.contextMax,
            vocabSize: count,
            hidden: { size: 24, rowsMax: 1024 },
          },
          load: {
            waiting: 0,
            running: 1,
            paused: 0,
            pagesTotal: 4096,
            pagesFree: count,
            pagesCached: count,
            statesTotal: 0,
            statesFree: 0,
            checkpoints: 0,
            tokensPending: count,
            stepsTotal: count,
            promptTokensTotal: count,
            generatedTokensTotal: count,
            prefixQueriedTotal: count,
            prefixHitTotal: 0,
            preemptionsTotal: 0,
            evictedPagesTotal: 0,
            tierStoredPagesTotal: 0,
            tierFoundPagesTotal: 0,
            tierLoadedPagesTotal: 0,
            tierShortLoadsTotal: 0,
            stepsOverTarget: 0,
            skippedDecodesTotal: 0,
            draftsTotal: count,
            draftTokensTotal: count,
            acceptedTokensTotal: count,
            acceptedByPlace: expect.any(Array),
            stepTokens: count,
            deviceMs: count,
            stepMs: count,
          },
        },
      ],
      placements: [
        {
          timeMs: count,
          sequence: 0 as SequenceId,
          placement: { engine: 0 as EngineId, reason: "only", costs: expect.any(Array) },
        },
      ],
      computed: { requests: count, jobs: 0 },
      jobs: null,
    });
    const { load } = during.engines[0]!;
    expect(load.pagesFree + load.pagesCached).toBeLessThan(load.pagesTotal);

    ending.abort();
    await server.settled();
    const after = await state();
    expect(after.engines[0]!.load.running).toBe(0);
    expect(after.engines[0]!.load.generatedTokensTotal).toBeGreaterThan(0);
    expect(after.timeMs).toBeGreaterThan(during.timeMs);
    await server.close();
  });
});

if (chromium === null) console.log("no chromium: the page is not tried in a browser");

describe.skipIf(chromium === null)("in a browser", () => {
  const lastAnswer = `[...document.querySelectorAll(".assistant")].at(-1)`;
  const isIdle = `!document.getElementById("send").hidden`;
  const errors: unknown[] = [];
  let browser: Browser;
  let server: TestServer;
  let page: Page;

  beforeAll(async () => {
    browser = await Browser.start(chromium!);
    server = startTestServer({ stepMs: 10, keys: { keys: ["user"], adminKeys: ["secret"] } });
    page = await browser.open("about:blank");
    page.on("Runtime.exceptionThrown", (params) => errors.push(params));
    await page.call("Runtime.enable");
    await page.go(server.origin);
  }, 60_000);
  afterEach(() => server.settled());
  afterAll(async () => {
    await browser.close();
    await server.close();
  });

  async function ask(text: string): Promise<void> {
    await page.evaluate(`document.getElementById("question").focus()`);
    await page.type(text);
    await page.press("Enter");
  }

  test("it asks for the key that the server wants, and then shows the model", async () => {
    const reason = await page.when(
      `!document.getElementById("key").hidden && document.getElementById("key-reason").textContent`,
    );
    expect(reason).toBe("this server needs an API key: send the header Authorization: Bearer <key>");
    await page.type("wrong");
    await page.press("Enter");
    await page.when(`document.getElementById("key-reason").textContent.includes("not known")`);
    await page.type("secret");
    await page.press("Enter");
    expect(await page.when(`document.getElementById("model").textContent`)).toBe("demo");
  });

  test("an answer streams in, with its numbers after it", async () => {
    await page.evaluate(`document.getElementById("tokens-max").value = "40"`);
    await ask("Who are <b>you</b>?");
    await page.when(`${lastAnswer}?.querySelector(".body").textContent.length > 0 && !${isIdle}`);
    const facts = await page.when(`${isIdle} && ${lastAnswer}.querySelector(".facts").textContent`);
    expect(facts).toMatch(
      /^\d+ tokens · [\d.]+ tokens\/s · first token after [\d.]+ s · \d+ % of the prompt cached/,
    );
    expect(await page.evaluate(`document.querySelector(".user .body").innerHTML`)).toBe(
      "Who are &lt;b&gt;you&lt;/b&gt;?",
    );
  });

  test("Shift+Enter begins a new line, and both lines are sent", async () => {
    await page.evaluate(`document.getElementById("question").focus()`);
    await page.type("one");
    await page.press("Enter", { shift: true });
    await page.type("two");
    expect(await page.evaluate(`document.getElementById("question").value`)).toBe("one\ntwo");
    await page.press("Enter");
    await page.when(`document.querySelectorAll(".facts:not([hidden])").length === 2 && ${isIdle}`);
  });

  test("the conversation is there when the page is loaded again", async () => {
    const said = `[...document.querySelectorAll(".body")].map((body) => body.textContent)`;
    const before = await page.evaluate(said);
    await page.go(server.origin);
    expect(await page.evaluate(said)).toEqual(before);
  });

  test("Stop ends a long answer, keeps what came, and the server computes no further", async () => {
    await page.evaluate(`document.getElementById("tokens-max").value = "1500"`);
    await ask("Tell me everything.");
    await page.when(`${lastAnswer}?.querySelector(".body").textContent.length > 20`);
    await page.when(`document.querySelector("[data-field=running]").textContent === "1"`);
    await page.click("#stop");
    const facts = await page.when(`${isIdle} && ${lastAnswer}.querySelector(".facts").textContent`);
    expect(facts).toMatch(/tokens · .* · stopped$/);
    await server.settled();
    expect(await page.evaluate(`${lastAnswer}.querySelector(".body").textContent.length`)).toBeGreaterThan(
      20,
    );
  });

  test("Esc stops, too, and a new conversation is empty", async () => {
    await ask("Tell me more.");
    await page.when(`${lastAnswer}?.querySelector(".body").textContent.length > 20`);
    await page.press("Escape");
    await page.when(`${isIdle} && ${lastAnswer}.querySelector(".facts").textContent.endsWith("stopped")`);
    await page.click("#new");
    expect(await page.evaluate(`document.querySelectorAll("article").length`)).toBe(0);
    await page.go(server.origin);
    expect(await page.evaluate(`document.querySelectorAll("article").length`)).toBe(0);
  });

  test("a refusal is the server's sentence, and the question is back to be changed", async () => {
    await page.evaluate(`document.getElementById("temperature").value = "9"`);
    await ask("Hello?");
    const told = await page.when(`document.querySelector("[role=alert].error")?.textContent`);
    expect(told).toContain("temperature");
    expect(await page.evaluate(`document.getElementById("question").value`)).toBe("Hello?");
    expect(await page.evaluate(`document.querySelectorAll("article").length`)).toBe(0);
  });

  test("thoughts are folded away before an answer, whose Markdown is shown and whose HTML is text", async () => {
    const answer = [
      "<think>\nWhat may I say?\n</think>\n",
      "# Two *things*\n\n1. one <b>bold</b>\n2. [a link](https://example.org/) and [none](javascript:alert(1))\n",
      "```js\nif (1 < 2) f();\n```\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n<script>alert(2)</script>",
    ].join("\n");
    const thinking = startTestServer({
      template: thinkingTemplate,
      answers: () => [answer],
      answersToAny: true,
    });
    await page.go(thinking.origin);
    await ask("Say it.");
    await page.when(`document.querySelector(".facts:not([hidden])") && ${isIdle}`);
    const told = `${lastAnswer}.querySelector(".thoughts")`;
    expect(await page.evaluate(`[${told}.open, ${told}.querySelector(".text").textContent]`)).toEqual([
      false,
      "What may I say?",
    ]);
    expect(await page.evaluate(`${lastAnswer}.querySelector(".body").innerHTML`)).toBe(
      [
        "<h3>Two <em>things</em></h3>",
        "<ol><li><span>one &lt;b&gt;bold&lt;/b&gt;</span></li>",
        '<li><span><a href="https://example.org/" target="_blank" rel="noopener noreferrer">a link</a> and ',
        "<span>none</span></span></li></ol>",
        '<figure><figcaption><span>js</span><button class="quiet">Copy</button></figcaption>',
        '<pre tabindex="0"><code>if (1 &lt; 2) f();</code></pre></figure>',
        '<div class="wide"><table><tr><th>a</th><th style="text-align: right;">b</th></tr>',
        '<tr><td>1</td><td style="text-align: right;">2</td></tr></table></div>',
        '<p class="source">&lt;script&gt;alert(2)&lt;/script&gt;</p>',
      ].join(""),
    );
    await thinking.close();
  });

  test("a key that is not the operator's chats, and sees no engines", async () => {
    const other = await browser.open(server.origin);
    await other.when(`!document.getElementById("key").hidden`);
    await other.type("user");
    await other.press("Enter");
    await other.when(`document.getElementById("model").textContent === "demo"`);
    expect(await other.evaluate(`document.getElementById("glance").textContent`)).toBe(
      "engines are shown to the operator's key",
    );
    expect(await other.evaluate(`document.getElementById("engines").childElementCount`)).toBe(0);
    await other.evaluate(`document.getElementById("tokens-max").value = "5"`);
    await other.evaluate(`document.getElementById("question").focus()`);
    await other.type("Hello");
    await other.press("Enter");
    await other.when(`document.querySelector(".facts:not([hidden])")`);
  });

  test("nothing of it broke", () => expect(errors).toEqual([]));
});
