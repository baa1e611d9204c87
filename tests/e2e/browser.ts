/** Browser for tests, over the DevTools protocol: opens a page, types, presses keys and reads. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Path of Chromium or Chrome; null if the machine has none. */
export const chromium =
  ["chromium", "chromium-browser", "google-chrome"].map((name) => Bun.which(name)).find(Boolean) ?? null;

interface Reply {
  readonly id?: number;
  readonly method?: string;
  readonly result?: unknown;
  readonly error?: { readonly message: string };
  readonly params?: unknown;
}

interface Evaluated {
  readonly result: { readonly value?: unknown };
  readonly exceptionDetails?: {
    readonly text: string;
    readonly exception?: { readonly description?: string };
  };
}

export class Browser {
  readonly #process: Bun.Subprocess;
  readonly #folder: string;
  readonly #socket: WebSocket;
  readonly #pending = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #listeners = new Map<string, (params: unknown) => void>();
  #lastId = 0;

  private constructor(process: Bun.Subprocess, folder: string, socket: WebSocket) {
    this.#process = process;
    this.#folder = folder;
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => this.#receive(JSON.parse(String(data)) as Reply));
    socket.addEventListener("close", () => {
      for (const { reject } of this.#pending.values()) reject(new Error("the browser went away"));
    });
  }

  static async start(path: string): Promise<Browser> {
    const folder = mkdtempSync(join(tmpdir(), "bunting-browser-"));
    const flags = [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--disable-dev-shm-usage",
    ];
    flags.push("--no-first-run", "--disable-background-networking", "--disable-component-update");
    flags.push("--disable-sync", "--remote-debugging-port=0", `--user-data-dir=${folder}`, "about:blank");
    const process = Bun.spawn([path, ...flags], { stdin: "ignore", stdout: "ignore", stderr: "pipe" });
    const socket = new WebSocket(await debuggerUrl(process.stderr));
    await new Promise((resolve, reject) => {
      socket.addEventListener("open", resolve, { once: true });
      socket.addEventListener("error", reject, { once: true });
    });
    return new Browser(process, folder, socket);
  }

  async open(url: string): Promise<Page> {
    const target = await this.call("Target.createTarget", { url: "about:blank" });
    const { targetId } = target as { targetId: string };
    const attached = await this.call("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, (attached as { sessionId: string }).sessionId);
    await page.go(url);
    return page;
  }

  /** Sends one command of the protocol; rejects with the browser's message. */
  call(method: string, params: object = {}, sessionId?: string): Promise<unknown> {
    const id = ++this.#lastId;
    const pending = Promise.withResolvers<unknown>();
    this.#pending.set(id, pending);
    this.#socket.send(
      JSON.stringify({ id, method, params, ...(sessionId === undefined ? {} : { sessionId }) }),
    );
    return pending.promise;
  }

  /** Sets the listener of an event, replacing the one before. */
  on(method: string, listener: (params: unknown) => void): void {
    this.#listeners.set(method, listener);
  }

  async close(): Promise<void> {
    await this.call("Browser.close").catch(() => this.#process.kill());
    await this.#process.exited;
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #receive({ id, method, result, error, params }: Reply): void {
    if (method !== undefined) this.#listeners.get(method)?.(params);
    const pending = this.#pending.get(id ?? -1);
    if (pending === undefined) return;
    this.#pending.delete(id!);
    if (error === undefined) pending.resolve(result);
    else pending.reject(new Error(error.message));
  }
}

export class Page {
  readonly #browser: Browser;
  readonly #session: string;

  constructor(browser: Browser, session: string) {
    this.#browser = browser;
    this.#session = session;
  }

  /** Resolves when the page and everything that it refers to is loaded. */
  async go(url: string): Promise<void> {
    const loaded = new Promise((resolve) => this.#browser.on("Page.loadEventFired", resolve));
    await this.call("Page.enable");
    await this.call("Page.navigate", { url });
    await loaded;
  }

  call(method: string, params: object = {}): Promise<unknown> {
    return this.#browser.call(method, params, this.#session);
  }

  on(method: string, listener: (params: unknown) => void): void {
    this.#browser.on(method, listener);
  }

  /** Evaluates an expression in the page; awaits a promise. */
  async evaluate(expression: string): Promise<unknown> {
    const params = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = (await this.call("Runtime.evaluate", params)) as Evaluated;
    if (exceptionDetails === undefined) return result.value;
    throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  }

  /** Resolves to the expression's value once it is truthy; checks whenever the page changes. */
  when(expression: string): Promise<unknown> {
    return this.evaluate(`new Promise((resolve, reject) => {
      const observer = new MutationObserver(look);
      function look() {
        try {
          const value = ${expression};
          if (!value) return;
          observer.disconnect();
          resolve(value);
        } catch (error) {
          reject(error);
        }
      }
      const all = { subtree: true, childList: true, characterData: true, attributes: true };
      observer.observe(document, all);
      look();
    })`);
  }

  async type(text: string): Promise<void> {
    await this.call("Input.insertText", { text });
  }

  async press(key: "Enter" | "Escape", options: { readonly shift?: boolean } = {}): Promise<void> {
    const windowsVirtualKeyCode = key === "Enter" ? 13 : 27;
    const text = key === "Enter" ? "\r" : "";
    const event = { key, code: key, windowsVirtualKeyCode, text, modifiers: options.shift ? 8 : 0 };
    await this.call("Input.dispatchKeyEvent", { type: "keyDown", ...event });
    await this.call("Input.dispatchKeyEvent", { type: "keyUp", ...event, text: "" });
  }

  async click(selector: string): Promise<void> {
    await this.evaluate(`document.querySelector(${JSON.stringify(selector)}).click()`);
  }
}

/** Returns the address that the browser prints when it listens. */
async function debuggerUrl(stderr: ReadableStream<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  // A loop over the stream would close the pipe on exit, and the browser could not write any more.
  const reader = stderr.getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    text += decoder.decode(read.value, { stream: true });
    const url = /DevTools listening on (ws:\S+)/.exec(text)?.[1];
    if (url === undefined) continue;
    void drain(reader);
    return url;
  }
  throw new Error(`the browser did not start: ${text}`);
}

async function drain(reader: { read(): Promise<{ readonly done: boolean }> }): Promise<void> {
  while (!(await reader.read()).done);
}
