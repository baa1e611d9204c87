/** Runs the command line as a person would: as a process, seen through its output, signals and exit code. */

import { resolve } from "node:path";

const root = resolve(import.meta.dir, "../..");

export interface ProgramOptions {
  readonly cwd?: string;
  readonly environment?: Readonly<Record<string, string>>;
}

/** A running program. Kill it, or let it end, before the test ends. */
export class Program {
  readonly #process: Bun.Subprocess<"pipe", "pipe", "pipe">;
  readonly #out: Output;
  readonly #errors: Output;

  /** `bunting …` from the source tree. */
  static bunting(args: readonly string[], options: ProgramOptions = {}): Program {
    return new Program([process.execPath, resolve(root, "server/main.ts"), ...args], options);
  }

  constructor(
    command: readonly string[],
    { cwd = root, environment = process.env as Record<string, string> }: ProgramOptions = {},
  ) {
    this.#process = Bun.spawn([...command], {
      cwd,
      env: { ...environment },
      stdin: "pipe",
      stdout: "pipe",
      stderr: "pipe",
    });
    this.#out = new Output(this.#process.stdout);
    this.#errors = new Output(this.#process.stderr);
  }

  /** Everything written to standard output so far. */
  get output(): string {
    return this.#out.text;
  }

  get errors(): string {
    return this.#errors.text;
  }

  type(line: string): void {
    this.#process.stdin.write(`${line}\n`);
    this.#process.stdin.flush();
  }

  /** Nothing more is typed. */
  endInput(): void {
    this.#process.stdin.end();
  }

  signal(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  /** The first match in standard output, as soon as it is there. Rejects when the output ends without it. */
  async outputMatch(pattern: RegExp): Promise<RegExpExecArray> {
    const match = await this.#out.match(pattern);
    if (match === null) throw new Error(`no ${pattern} in:\n${this.output}${this.errors}`);
    return match;
  }

  /** Waits for `serve` to say that it is ready; its address, without a path. */
  async url(): Promise<string> {
    return (await this.outputMatch(/ at (http:\/\/\S+)\/v1/))[1]!;
  }

  /** Resolves when the program has ended and all its output is read. */
  async exitCode(): Promise<number> {
    const code = await this.#process.exited;
    await Promise.all([this.#out.ended, this.#errors.ended]);
    return code;
  }
}

/** A program that runs in a terminal of its own, as a person sees it. */
export class TerminalProgram {
  readonly #process: Bun.Subprocess;
  readonly #screen: Output;

  /** `bunting …` from the source tree. */
  constructor(args: readonly string[]) {
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    const shown = writable.getWriter();
    this.#screen = new Output(readable);
    const terminal: Bun.TerminalOptions = {
      cols: 80,
      rows: 24,
      data: (_, bytes) => void shown.write(bytes),
      exit: () => void shown.close(),
    };
    const command = [process.execPath, resolve(root, "server/main.ts"), ...args];
    this.#process = Bun.spawn(command, { cwd: root, env: { ...process.env }, terminal });
  }

  /** Everything that was written, with what moves the cursor. */
  get output(): string {
    return this.#screen.text;
  }

  signal(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  /** Sends keys as a terminal does: Enter is a carriage return. */
  press(keys: string): void {
    this.#process.terminal!.write(keys);
  }

  /** The first match in what is written from now on or was before. */
  async outputMatch(pattern: RegExp): Promise<RegExpExecArray> {
    const match = await this.#screen.match(pattern);
    if (match === null) throw new Error(`no ${pattern} in:\n${this.output}`);
    return match;
  }

  async exitCode(): Promise<number> {
    const code = await this.#process.exited;
    await this.#screen.ended;
    this.#process.terminal!.close();
    return code;
  }
}

/** A stream's text as it grows. */
class Output {
  text = "";
  readonly ended: Promise<void>;
  #isEnded = false;
  #onChange: (() => void)[] = [];

  constructor(stream: ReadableStream<Uint8Array>) {
    this.ended = this.#read(stream);
  }

  async match(pattern: RegExp): Promise<RegExpExecArray | null> {
    for (;;) {
      const match = pattern.exec(this.text);
      if (match !== null || this.#isEnded) return match;
      await new Promise<void>((resolve) => this.#onChange.push(resolve));
    }
  }

  async #read(stream: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    for await (const bytes of stream) {
      this.text += decoder.decode(bytes, { stream: true });
      this.#changed();
    }
    this.#isEnded = true;
    this.#changed();
  }

  #changed(): void {
    const waiting = this.#onChange;
    this.#onChange = [];
    for (const resolve of waiting) resolve();
  }
}
