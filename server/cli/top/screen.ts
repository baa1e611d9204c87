/** Full-screen terminal output (alternate screen); closing it restores the previous contents. */

const ENTER = "\x1b[?1049h\x1b[?25l";
const LEAVE = "\x1b[?25h\x1b[?1049l";
const HOME = "\x1b[H";
const CLEAR_LINE = "\x1b[2K";
const CLEAR_REST = "\x1b[J";
const CTRL_C = "\x03";

export class Screen {
  /** Called when the terminal was resized. */
  onResize = (): void => {};
  readonly #onKeys: (typed: Buffer) => void;
  readonly #resized = (): void => this.onResize();

  /** `onQuit`: called when the user presses q or Ctrl-C. */
  constructor(onQuit: () => void) {
    this.#onKeys = (typed) => {
      if (/[qQ]/.test(typed.toString()) || typed.toString().includes(CTRL_C)) onQuit();
    };
    process.stdout.write(ENTER);
    process.stdout.on("resize", this.#resized);
    if (!process.stdin.isTTY) return;
    process.stdin.setRawMode(true);
    process.stdin.on("data", this.#onKeys);
  }

  get size(): { readonly columns: number; readonly rows: number } {
    return { columns: process.stdout.columns, rows: process.stdout.rows };
  }

  draw(lines: readonly string[]): void {
    // After a line as wide as the terminal, the clear code would erase its last character.
    const rest = lines.length < this.size.rows ? `\r\n${CLEAR_REST}` : "";
    process.stdout.write(`${HOME}${lines.map((line) => `${CLEAR_LINE}${line}`).join("\r\n")}${rest}`);
  }

  close(): void {
    process.stdout.off("resize", this.#resized);
    if (process.stdin.isTTY) {
      process.stdin.off("data", this.#onKeys);
      process.stdin.setRawMode(false);
      process.stdin.pause();
    }
    process.stdout.write(LEAVE);
  }
}
