import { within } from "./dom.ts";
import { MarkdownView } from "./markdown.ts";

/**
 * View that streams an answer into its message: the model's thoughts, folded away once the answer begins,
 * then the answer.
 */
export class AnswerView {
  readonly #root: HTMLElement;
  readonly #thoughts: HTMLDetailsElement;
  readonly #thoughtText = document.createTextNode("");
  readonly #text: MarkdownView;
  readonly #onShown: () => void;
  #thinkingSinceMs: number | null = null;

  /** Calls `onShown` whenever more is shown. */
  constructor(root: HTMLElement, onShown: () => void) {
    this.#root = root;
    this.#thoughts = within(root, ".thoughts") as HTMLDetailsElement;
    within(root, ".thoughts .text").append(this.#thoughtText);
    this.#text = new MarkdownView(within(root, ".body"));
    this.#onShown = onShown;
  }

  appendThought(text: string): void {
    this.#root.classList.remove("pending");
    if (this.#thinkingSinceMs === null) {
      this.#thinkingSinceMs = performance.now();
      this.#thoughts.hidden = false;
      this.#thoughts.open = true;
    }
    this.#thoughtText.appendData(text);
    this.#onShown();
  }

  appendText(text: string): void {
    this.#root.classList.remove("pending");
    this.#endThoughts();
    this.#text.append(text, this.#onShown);
  }

  /** Shows a whole answer at once. */
  whole(text: string): void {
    this.appendText(text);
    this.end();
    this.#onShown();
  }

  /** Ends the answer: no more text follows. */
  end(): void {
    this.#root.classList.remove("pending");
    this.#endThoughts();
    this.#text.show();
  }

  #endThoughts(): void {
    if (this.#thinkingSinceMs === null || !this.#thoughts.open) return;
    const seconds = (performance.now() - this.#thinkingSinceMs) / 1000;
    within(this.#thoughts, "summary").textContent = `Thought for ${seconds.toFixed(1)} s`;
    this.#thoughts.open = false;
  }
}
