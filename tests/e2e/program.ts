/** Runs the command line as a user would: as a process, seen through its output, signals and exit code. */

import { resolve } from "node:path";

const root = resolve(import.meta.dir, "../..");

export interface ProgramOptions {
  readonly cwd?: string;
  readonly environment?: Readonly<Record<string, string>>;
}

/** Running program. The test must kill it or let it end. */
export class Program {
  readonly #process: Bun.Subprocess<"pipe", "pipe", "pipe">;
  readonly #out: Output;
  readonly #errors: Output;

  /** Starts `bunting …` from the source tree. */
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

  /** Standard output so far. */
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

  /** Closes standard input. */
  endInput(): void {
    this.#process.stdin.end();
  }

  signal(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  /** Resolves to the first match in standard output; rejects if the output ends without one. */
  async outputMatch(pattern: RegExp): Promise<RegExpExecArray> {
    return this.#matched(pattern, await this.#out.match(pattern));
  }

  /** Resolves to the first match in standard error; rejects if that ends without one. */
  async errorsMatch(pattern: RegExp): Promise<RegExpExecArray> {
    return this.#matched(pattern, await this.#errors.match(pattern));
  }

  #matched(pattern: RegExp, match: RegExpExecArray | null): RegExpExecArray {
    if (match === null) throw new Error(`no ${pattern} in:\n${this.output}${this.errors}`);
    return match;
  }

  /** Resolves to the first match in standard error; rejects if that ends without one. */
  async errorMatch(pattern: RegExp): Promise<RegExpExecArray> {
    const match = await this.#errors.match(pattern);
    if (match === null) throw new Error(`no ${pattern} in:\n${this.output}${this.errors}`);
    return match;
  }

  /** Waits until `serve` reports that it is ready; resolves to its address, without a path. */
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

/** Program in a terminal of its own, as a user sees it. */
export class TerminalProgram {
  readonly #process: Bun.Subprocess;
  readonly #screen: Output;

  /** Starts `bunting …` from the source tree. */
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

  /** Output so far, with cursor control sequences. */
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

  /** Changes the size of the terminal's window. */
  resize(columns: number, rows: number): void {
    this.#process.terminal!.resize(columns, rows);
  }

  /** Resolves to the first match in past or future output. */
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

/** Text of a stream as it grows. */
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
