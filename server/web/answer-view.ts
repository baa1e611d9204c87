import { within } from "./dom.ts";
import { MarkdownView } from "./markdown.ts";

/** An answer that is being streamed into its message: what the model thinks, folded away once the answer begins, and the answer. */
export class AnswerView {
  readonly #root: HTMLElement;
  readonly #thoughts: HTMLDetailsElement;
  readonly #thoughtText = document.createTextNode("");
  readonly #text: MarkdownView;
  readonly #onShown: () => void;
  #thinkingSinceMs: number | null = null;

  /** `onShown` is called whenever more is shown. */
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

  /** All of an answer at once. */
  whole(text: string): void {
    this.appendText(text);
    this.end();
    this.#onShown();
  }

  /** Nothing more comes. */
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
