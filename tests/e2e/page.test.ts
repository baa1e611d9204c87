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

  /** Returns the paths that the page refers to, and those that its scripts load later. */
  async function references(): Promise<string[]> {
    const html = await (await fetch(server.origin)).text();
    const paths = new Set([...html.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, path]) => path!));
    for (const path of paths) {
      const text = await (await fetch(new URL(path, `${server.origin}/`))).text();
      for (const [, name] of text.matchAll(/"\.\/(chunk-\w+\.js)"/g)) paths.add(`page/${name}`);
    }
    return [...paths];
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

  test("are small: 250 KB compressed, without the mathematics that few answers need", async () => {
    const sizes = await Promise.all(
      ["", ...(await references())].map(async (path) => {
        const file = await (await fetch(new URL(path, `${server.origin}/`))).bytes();
        return {
          isMath: Buffer.from(file).includes("\\\\displaystyle"),
          bytes: Bun.gzipSync(Uint8Array.from(file)).length,
        };
      }),
    );
    const math = sizes.filter(({ isMath }) => isMath);
    expect(math).toHaveLength(1);
    const bytes = sizes.filter(({ isMath }) => !isMath).reduce((sum, { bytes }) => sum + bytes, 0);
    expect(bytes).toBeLessThan(250_000);
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
      // URLs that no page fetches: namespaces, and addresses in error messages of libraries.
      const names =
        /^http:\/\/www\.w3\.org\/(2000\/svg|1998\/Math\/MathML|1999\/xhtml)$|^https:\/\/github\.com\/(markedjs|highlightjs)\//;
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
            deferred: 0,
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
            tierHostPagesTotal: 0,
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
  const isIdle = `document.getElementById("send") !== null`;
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
    const size = { width: 1280, height: 800, deviceScaleFactor: 1, mobile: false };
    await page.call("Emulation.setDeviceMetricsOverride", size);
    await page.go(server.origin);
  }, 60_000);
  afterEach(() => server.settled());
  afterAll(async () => {
    await browser.close();
    await server.close();
  });

  async function ask(text: string, on = page): Promise<void> {
    await on.when(`document.getElementById("send")?.disabled === false`);
    await on.evaluate(`document.getElementById("question").focus()`);
    await on.type(text);
    await on.press("Enter");
  }

  async function set(id: string, value: string, on = page): Promise<void> {
    await on.evaluate(`{
      const field = document.getElementById("set-${id}");
      field.value = ${JSON.stringify(value)};
      field.dispatchEvent(new Event("change"));
    }`);
  }

  /** Clicks a button of the last turn of a kind. */
  async function act(kind: "user" | "assistant", label: string, on = page): Promise<void> {
    await on.evaluate(
      `[...[...document.querySelectorAll(".${kind}")].at(-1).querySelectorAll("button")].find((button) => (button.ariaLabel ?? button.textContent) === "${label}").click()`,
    );
  }

  async function startNew(on = page): Promise<void> {
    await on.click("#new");
    await on.when(`document.querySelectorAll("article").length === 0`);
  }

  const said = `[...document.querySelectorAll(".body")].map((body) => body.textContent)`;
  const facts = `document.querySelectorAll(".facts").length`;

  test("it asks for the key that the server wants, and then shows the model", async () => {
    const reason = await page.when(`document.getElementById("key-reason")?.textContent`);
    expect(reason).toBe("this server needs an API key: send the header Authorization: Bearer <key>");
    await page.type("wrong");
    await page.press("Enter");
    await page.when(`document.getElementById("key-reason")?.textContent.includes("not known")`);
    await page.type("secret");
    await page.press("Enter");
    expect(await page.when(`document.getElementById("model").textContent`)).toBe("demo");
  });

  test("an answer streams in, with its figures after it", async () => {
    await set("max_tokens", "40");
    await ask("Who are <b>you</b>?");
    await page.when(`${lastAnswer}?.querySelector(".body").textContent.length > 0 && !${isIdle}`);
    const line = await page.when(`${isIdle} && ${lastAnswer}.querySelector(".facts")?.textContent`);
    expect(line).toMatch(
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
    await page.when(`${facts} === 2 && ${isIdle}`);
  });

  test("the conversation is there when the page is loaded again", async () => {
    const before = await page.evaluate(said);
    await page.go(server.origin);
    expect(await page.evaluate(said)).toEqual(before);
  });

  test("an answer drawn again and a changed question are branches, which stay", async () => {
    const first = await page.evaluate(said);
    await set("seed", "7");
    await set("temperature", "1.5");
    await act("assistant", "Regenerate");
    await page.when(
      `document.querySelector(".assistant .branches")?.textContent.includes("2 of 2") && ${isIdle}`,
    );
    expect(await page.evaluate(said)).not.toEqual(first);
    await act("assistant", "Previous version");
    await page.when(`document.querySelector(".branches").textContent.includes("1 of 2")`);
    expect(await page.evaluate(said)).toEqual(first);

    await act("user", "Edit");
    await page.when(`document.querySelector(".editor textarea")`);
    await page.evaluate(`document.querySelector(".editor textarea").select()`);
    await page.type("three");
    await page.click(".editor button");
    await page.when(`${lastAnswer}?.querySelector(".facts") && ${isIdle} && ${said}[2] === "three"`);
    await act("user", "Previous version");
    await page.when(`${said}[2] === "one\\ntwo"`);
    await act("user", "Next version");
    await page.when(`${said}[2] === "three"`);
    await set("temperature", "");
    await set("seed", "");
    await act("user", "Delete");
    await page.when(`${said}[2] === "one\\ntwo"`);
    expect(await page.evaluate(`[...document.querySelectorAll(".user .branches")].length`)).toBe(0);
  });

  test("Stop ends a long answer, keeps what came, and the server computes no further", async () => {
    await set("max_tokens", "1500");
    await ask("Tell me everything.");
    await page.when(`!${isIdle} && ${lastAnswer}?.querySelector(".body").textContent.length > 20`);
    await page.click("#stop");
    const line = await page.when(`${isIdle} && ${lastAnswer}.querySelector(".facts")?.textContent`);
    expect(line).toMatch(/tokens · .* · stopped · request$/);
    await server.settled();
    expect(await page.evaluate(`${lastAnswer}.querySelector(".body").textContent.length`)).toBeGreaterThan(
      20,
    );
  });

  test("Esc stops, too, and a new conversation is empty", async () => {
    await ask("Tell me more.");
    await page.when(`!${isIdle} && ${lastAnswer}?.querySelector(".body").textContent.length > 20`);
    await page.press("Escape");
    await page.when(`${isIdle} && ${lastAnswer}.querySelector(".facts")?.textContent.includes("stopped")`);
    await startNew();
    await page.go(server.origin);
    expect(await page.evaluate(`document.querySelectorAll("article").length`)).toBe(0);
  });

  test("the demo model says what it is, and a sample question asks", async () => {
    expect(await page.when(`document.getElementById("first-run")?.textContent`)).toContain(
      "bunting serve Qwen/Qwen3-0.6B",
    );
    await set("max_tokens", "5");
    await page.when(`document.querySelector(".samples button")?.disabled === false`);
    await page.click(".samples button");
    await page.when(`${facts} === 1 && ${isIdle}`);
    expect(await page.evaluate(`${said}[0]`)).toBe("What is a lighthouse?");
    await startNew();
  });

  test("a refusal is the server's sentence, and the question is back to be changed", async () => {
    await set("temperature", "9");
    await ask("Hello?");
    const told = await page.when(`document.querySelector("[role=alert].error")?.textContent`);
    expect(told).toContain("temperature");
    await page.when(`document.getElementById("question").value === "Hello?"`);
    expect(await page.evaluate(`document.querySelectorAll("article").length`)).toBe(0);
    await set("temperature", "");
    await set("schema", "{");
    await page.press("Enter");
    await page.when(
      `document.querySelector("[role=alert].error")?.textContent.includes("JSON Schema is not JSON")`,
    );
    await set("schema", "");
    await page.evaluate(`document.getElementById("question").select()`);
    await page.type(" ");
  });

  /** Opens the page of a server whose model says `answers`, in the order of the questions before each. */
  async function withAnswers(
    answers: NonNullable<Parameters<typeof startTestServer>[0]>["answers"],
    act: (scripted: Page, origin: TestServer) => Promise<void>,
    more: Parameters<typeof startTestServer>[0] = {},
  ): Promise<void> {
    const scripted = startTestServer({ answers: answers!, answersToAny: true, ...more });
    const other = await openWide(scripted.origin);
    await act(other, scripted);
    await scripted.settled();
    await scripted.close();
    await other.call("Page.close");
  }

  async function openWide(url: string): Promise<Page> {
    const other = await browser.open("about:blank");
    other.on("Runtime.exceptionThrown", (params) => errors.push(params));
    await other.call("Runtime.enable");
    const size = { width: 1280, height: 800, deviceScaleFactor: 1, mobile: false };
    await other.call("Emulation.setDeviceMetricsOverride", size);
    await other.go(url);
    return other;
  }

  test("thoughts are folded away before an answer, whose Markdown is shown and whose HTML is text", async () => {
    const answer = [
      "<think>\nWhat may I say?\n</think>\n",
      "# Two *things*\n\n1. one <b>bold</b>\n2. [a link](https://example.org/) and [none](javascript:alert(1))\n",
      "```js\nif (1 < 2) f();\n```\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n<script>alert(2)</script>",
    ].join("\n");
    await withAnswers(
      () => [answer],
      async (scripted) => {
        await ask("Say it.", scripted);
        await scripted.when(`${facts} === 1 && ${isIdle} && document.querySelector(".hljs-keyword")`);
        const told = `${lastAnswer}.querySelector(".thoughts")`;
        expect(await scripted.evaluate(`[${told}.open, ${told}.querySelector(".text").textContent]`)).toEqual(
          [false, "What may I say?"],
        );
        expect(await scripted.evaluate(`${lastAnswer}.querySelector(".body").innerHTML`)).toBe(
          [
            "<h3>Two <em>things</em></h3>",
            "<ol><li>one &lt;b&gt;bold&lt;/b&gt;</li>",
            '<li><a href="https://example.org/" target="_blank" rel="noopener noreferrer">a link</a> and ',
            "<span>none</span></li></ol>",
            '<figure><figcaption><span>js</span><button type="button" class="quiet">Copy</button></figcaption>',
            '<pre tabindex="0"><code><span class="hljs-keyword">if</span> (<span class="hljs-number">1</span> &lt; ',
            '<span class="hljs-number">2</span>) <span class="hljs-title function_">f</span>();</code></pre></figure>',
            '<div class="wide" tabindex="0"><table><thead><tr><th>a</th>',
            '<th class="right">b</th></tr></thead><tbody><tr><td>1</td><td class="right">2</td></tr></tbody>',
            '</table></div><p class="source">&lt;script&gt;alert(2)&lt;/script&gt;</p>',
          ].join(""),
        );
      },
      { template: thinkingTemplate },
    );
  });

  test("formulas become MathML, and money stays money", async () => {
    const answer = "It costs $5 or $6, and $x^2$ is\n\n$$\\frac{1}{2}$$\n\nor \\(y\\).";
    await withAnswers(
      () => [answer],
      async (scripted) => {
        await ask("How much?", scripted);
        await scripted.when(`document.querySelectorAll(".body math").length === 3 && ${isIdle}`);
        expect(
          await scripted.evaluate(
            `[document.querySelector(".formula.block mfrac") !== null, document.querySelector(".body p").textContent.slice(0, 22)]`,
          ),
        ).toEqual([true, "It costs $5 or $6, and"]);
      },
    );
  });

  test("a call is shown, answered by hand, and its result is in the next prompt", async () => {
    const says: Exclude<NonNullable<Parameters<typeof withAnswers>[0]>, readonly string[]> = (prompt) => [
      prompt.includes("12 degrees")
        ? "It is 12 degrees."
        : `<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>`,
    ];
    await withAnswers(says, async (scripted) => {
      const tool = { type: "function", function: { name: "weather", parameters: { type: "object" } } };
      await set("tools", JSON.stringify([tool]), scripted);
      await ask("How warm is Bern?", scripted);
      await scripted.when(`document.querySelector(".call textarea") && ${isIdle}`);
      expect(await scripted.evaluate(`document.querySelector(".call").innerText`)).toContain("Calls weather");
      expect(await scripted.evaluate(`document.querySelector(".call pre").textContent`)).toBe(
        '{\n  "city": "Bern"\n}',
      );
      await scripted.evaluate(`document.querySelector(".call textarea").focus()`);
      await scripted.type("12 degrees");
      await scripted.click(".calls > button");
      await scripted.when(
        `${isIdle} && ${lastAnswer}.querySelector(".body").textContent === "It is 12 degrees."`,
      );
      expect(await scripted.evaluate(`document.querySelector("article.tool").innerText`)).toContain(
        "12 degrees",
      );
    });
  });

  test("an answer that an error cut is marked, and is not in the next prompt", async () => {
    const prompts: string[] = [];
    const says: Exclude<NonNullable<Parameters<typeof withAnswers>[0]>, readonly string[]> = (prompt) => {
      prompts.push(prompt);
      return ["word ".repeat(400)];
    };
    await withAnswers(
      says,
      async (scripted, { origin, lifecycle, settled }) => {
        await ask("Go on for long.", scripted);
        await scripted.when(`${lastAnswer}?.querySelector(".body").textContent.length > 20`);
        await lifecycle.drain(0);
        const note = await scripted.when(
          `${isIdle} && document.querySelector(".cut .cut-note")?.textContent`,
        );
        expect(note).toContain("the server shut down before the answer was complete");
        await settled();
        const again = startTestServer({ answers: says, answersToAny: true });
        expect(again.origin).not.toBe(origin);
        const kept = await scripted.evaluate(`localStorage.getItem("bunting-conversations")`);
        await scripted.go(again.origin);
        await scripted.evaluate(`localStorage.setItem("bunting-conversations", ${JSON.stringify(kept)})`);
        await scripted.go(again.origin);
        await scripted.when(`document.querySelector(".entry")`);
        await scripted.click(".entry");
        await scripted.when(`document.querySelector(".cut")`);
        await set("max_tokens", "3", scripted);
        await ask("And now?", scripted);
        await scripted.when(`${facts} === 2 && ${isIdle}`);
        expect(prompts.at(-1)).toContain("Go on for long.");
        expect(prompts.at(-1)).toContain("And now?");
        expect(prompts.at(-1)).not.toContain("word");
        await again.settled();
        await again.close();
      },
      { stepMs: 10 },
    );
  }, 20_000);

  test("a server that is killed mid-answer leaves what came, marked, and the page says so", async () => {
    const killed = startTestServer({ answers: () => ["word ".repeat(400)], stepMs: 10 });
    const other = await openWide(killed.origin);
    await ask("Go on for long.", other);
    await other.when(`${lastAnswer}?.querySelector(".body").textContent.length > 20`);
    await killed.close();
    const note = await other.when(`${isIdle} && document.querySelector(".cut .cut-note")?.textContent`);
    expect(note).toContain("The server broke off its answer.");
    await other.when(
      `document.querySelector("#status p")?.textContent.startsWith("The server cannot be reached.")`,
    );
    expect(await other.evaluate(`document.getElementById("send").disabled`)).toBe(true);
    await other.call("Page.close");
  }, 20_000);

  test("a key that is not the operator's chats", async () => {
    const other = await openWide(server.origin);
    await other.when(`document.getElementById("key")`);
    await other.type("user");
    await other.press("Enter");
    await other.when(`document.getElementById("model").textContent === "demo"`);
    await set("max_tokens", "5", other);
    await ask("Hello", other);
    await other.when(`document.querySelector(".facts")`);
  });

  test("nothing of it broke", () => expect(errors).toEqual([]));
});
