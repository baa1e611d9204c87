/**
 * `bunting chat`: a streamed conversation in the terminal. Ctrl-C stops a response, and pasted lines form one
 * message. When input comes from a file or a pipe, each line is a message, so that scripts can use it.
 * Responses then go to standard output, reasoning and statistics to standard error.
 */

import { createInterface, type Interface } from "node:readline";
import { decimal, integer, optional, type Values } from "../config.ts";
import { type ChatMessage, listModels, ServerError, streamChat, type Target, type Usage } from "./client.ts";

export const conversationSettings = Object.freeze({
  model: optional({ placeholder: "name", defaultText: "the server's first", sentence: "Model to ask for." }),
  system: optional({ placeholder: "text", sentence: "System message that starts the conversation." }),
  maxTokens: integer({
    unit: "tokens",
    default: 0,
    defaultText: "as long as fits",
    min: 0,
    max: 2 ** 24,
    sentence: "Longest answer.",
  }),
  temperature: decimal({
    default: -1,
    defaultText: "the model's own",
    min: 0,
    max: 2,
    sentence: "0 always takes the likeliest token, higher varies more.",
  }),
  seed: integer({
    default: -1,
    defaultText: "random",
    min: 0,
    max: 2 ** 31 - 1,
    sentence: "Makes answers repeatable.",
  }),
});

export type ChatOptions = Values<typeof conversationSettings>;

const PROMPT = "> ";
/** Prompt of the second and further lines of a message. */
const MORE_PROMPT = "  ";
/** Terminal codes that turn bracketed paste on and off. */
const bracketedPaste = { on: "\x1b[?2004h", off: "\x1b[?2004l" } as const;

const HELP = `A line that ends with \\ goes on in the next one; lines that are pasted are one message.
/system <text>  set the system message and start again
/reset          forget the conversation
/help           this list
/exit           leave (also Ctrl-D; Ctrl-C stops an answer, and leaves when there is none)`;

/** Runs the conversation until the input ends; resolves to the exit code. */
export async function chat(target: Target, options: ChatOptions): Promise<number> {
  const model = options.model ?? (await listModels(target))[0];
  if (model === undefined) {
    console.error(`${target.url} has no model.`);
    return 1;
  }
  const isTerminal = process.stdin.isTTY === true && process.stdout.isTTY === true;
  return await new Conversation(target, model, options, isTerminal).run();
}

class Conversation {
  readonly #target: Target;
  readonly #model: string;
  readonly #options: ChatOptions;
  readonly #isTerminal: boolean;
  readonly #lines: Interface;
  #messages: ChatMessage[] = [];
  #answer: AbortController | null = null;
  /** Lines not yet consumed; null marks the end of the input. */
  readonly #typed: (string | null)[] = [];
  #onLine: ((line: string | null) => void) | null = null;
  /** Lines of an incomplete message. */
  readonly #begun: string[] = [];
  #isPasting = false;
  #isFailed = false;
  /** Exit code of the signal that ends the chat; null if none arrived. */
  #exitCode: number | null = null;

  constructor(target: Target, model: string, options: ChatOptions, isTerminal: boolean) {
    this.#target = target;
    this.#model = model;
    this.#options = options;
    this.#isTerminal = isTerminal;
    this.#lines = createInterface({
      input: process.stdin,
      ...(isTerminal ? { output: process.stdout } : {}),
      terminal: isTerminal,
      prompt: isTerminal ? PROMPT : "",
    });
    // Queues input that arrives, or ends, while a response is still streaming.
    this.#lines.on("line", (line) => this.#entered(line));
    this.#lines.on("close", () => this.#arrived(null));
    if (isTerminal) {
      process.stdin.on("keypress", (_, { name }: { readonly name?: string }) => {
        if (name === "paste-start") this.#isPasting = true;
        if (name === "paste-end") this.#isPasting = false;
      });
    }
    this.#reset(options.system);
  }

  async run(): Promise<number> {
    const interrupt = (): void => {
      if (this.#answer === null) this.#end(130);
      else this.#answer.abort(new Error("stopped"));
    };
    this.#lines.on("SIGINT", interrupt);
    process.on("SIGINT", interrupt);
    const terminate = (): void => this.#end(143);
    process.on("SIGTERM", terminate);
    if (this.#isTerminal) {
      process.stdout.write(bracketedPaste.on);
      process.stderr.write(`Talking to ${this.#model} at ${this.#target.url}. /help for help.\n`);
    }
    for (let line = await this.#nextLine(); line !== null; line = await this.#nextLine()) {
      const isOver = await this.#take(line.trim());
      if (isOver) break;
    }
    this.#lines.close();
    process.off("SIGINT", interrupt);
    process.off("SIGTERM", terminate);
    if (this.#isTerminal) process.stdout.write(bracketedPaste.off);
    return this.#exitCode ?? (this.#isFailed ? 1 : 0);
  }

  /** Ends the chat and aborts a running request. */
  #end(exitCode: number): void {
    this.#exitCode = exitCode;
    this.#answer?.abort(new Error("stopped"));
    this.#lines.close();
  }

  /** Next line of input; null at its end. */
  #nextLine(): Promise<string | null> {
    if (this.#exitCode !== null) return Promise.resolve(null);
    const line = this.#typed.shift();
    if (line !== undefined) return Promise.resolve(line);
    this.#lines.prompt();
    const { promise, resolve } = Promise.withResolvers<string | null>();
    this.#onLine = resolve;
    return promise;
  }

  /** Handles an entered line: a whole message, or a part of one. */
  #entered(line: string): void {
    const goesOn = this.#isPasting || (this.#isTerminal && line.endsWith("\\"));
    if (!goesOn) {
      this.#lines.setPrompt(this.#isTerminal ? PROMPT : "");
      this.#arrived([...this.#begun.splice(0), line].join("\n"));
      return;
    }
    this.#begun.push(this.#isPasting ? line : line.slice(0, -1));
    this.#lines.setPrompt(MORE_PROMPT);
    this.#lines.prompt();
  }

  #arrived(line: string | null): void {
    if (this.#onLine === null) this.#typed.push(line);
    else this.#onLine(line);
    this.#onLine = null;
  }

  /** Handles one message or command; true if it ends the conversation. */
  async #take(line: string): Promise<boolean> {
    if (line === "") return false;
    if (line.includes("\n")) {
      await this.#say(line);
      return false;
    }
    if (line === "/exit" || line === "/quit") return true;
    if (line === "/help") process.stderr.write(`${HELP}\n`);
    else if (line === "/reset") this.#reset(this.#options.system);
    else if (line.startsWith("/system ")) this.#reset(line.slice("/system ".length).trim());
    else if (line.startsWith("/")) process.stderr.write(`${line.split(" ")[0]} is not a command.\n${HELP}\n`);
    else await this.#say(line);
    return false;
  }

  #reset(system: string | null): void {
    this.#messages = system === null ? [] : [{ role: "system", content: system }];
  }

  async #say(content: string): Promise<void> {
    this.#messages.push({ role: "user", content });
    this.#answer = new AbortController();
    const { signal } = this.#answer;
    const startedMs = performance.now();
    let firstMs: number | null = null;
    let hasThoughts = false;
    let answer = "";
    let usage: Usage | null = null;
    let failure: unknown = null;
    try {
      for await (const event of streamChat(this.#target, this.#body(), signal)) {
        if (event.kind === "usage") usage = event.usage;
        if (event.kind !== "text" && event.kind !== "thought") continue;
        firstMs ??= performance.now();
        if (event.kind === "thought") {
          hasThoughts = true;
          process.stderr.write(this.#dim(event.text));
          continue;
        }
        if (answer === "" && hasThoughts) process.stderr.write("\n\n");
        answer += event.text;
        process.stdout.write(event.text);
      }
      this.#messages.push({ role: "assistant", content: answer });
    } catch (error) {
      if (!signal.aborted) failure = error;
      // A stopped response stays in the conversation; a message whose request failed does not.
      if (answer === "") this.#messages.pop();
      else this.#messages.push({ role: "assistant", content: answer });
    } finally {
      this.#answer = null;
    }
    if (answer !== "") process.stdout.write("\n");
    else if (hasThoughts) process.stderr.write("\n");
    if (failure !== null) this.#fail(failure);
    if (usage !== null)
      process.stderr.write(
        `${this.#dim(figures(usage, startedMs, firstMs ?? startedMs, performance.now()))}\n`,
      );
  }

  #body(): Record<string, unknown> {
    const { maxTokens, temperature, seed } = this.#options;
    return {
      model: this.#model,
      messages: this.#messages,
      ...(maxTokens > 0 ? { max_tokens: maxTokens } : {}),
      ...(temperature >= 0 ? { temperature } : {}),
      ...(seed >= 0 ? { seed } : {}),
    };
  }

  #fail(error: unknown): void {
    this.#isFailed = true;
    const message = error instanceof Error ? error.message : String(error);
    const advice = error instanceof ServerError && error.status === 400 ? " (/reset starts anew)" : "";
    process.stderr.write(`${message}${advice}\n`);
  }

  #dim(text: string): string {
    return this.#isTerminal ? `\x1b[2m${text}\x1b[0m` : text;
  }
}

/** Shortest time whose speed is shown: in a shorter one tokens arrive together, which says nothing of it. */
const SPEED_MS_MIN = 100;

function figures(usage: Usage, startedMs: number, firstMs: number, endMs: number): string {
  const { completionTokens, promptTokens, cachedTokens } = usage;
  const perSecond =
    endMs - firstMs >= SPEED_MS_MIN ? ((completionTokens - 1) * 1000) / (endMs - firstMs) : null;
  const parts = [
    `${completionTokens} tokens`,
    perSecond === null ? null : `${perSecond.toFixed(1)} tokens/s`,
    `first after ${(firstMs - startedMs).toFixed(0)} ms`,
    `prompt ${promptTokens}, ${promptTokens > 0 ? Math.round((100 * cachedTokens) / promptTokens) : 0} % cached`,
  ];
  return `[${parts.filter((part) => part !== null).join(" · ")}]`;
}
