import type { Target } from "../cli/client.ts";
import { element } from "./dom.ts";

const STORED = "bunting-api-key";

/** Form that asks for an API key once the server demands one, and keeps it for the lifetime of the tab. */
export class ApiKeyForm {
  readonly #form = element("key", HTMLFormElement);
  readonly #value = element("key-value", HTMLInputElement);
  readonly #reason = element("key-reason", HTMLParagraphElement);

  constructor(onGiven: () => void) {
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(STORED, this.#value.value.trim());
      this.#value.value = "";
      this.#form.hidden = true;
      onGiven();
    });
  }

  /** Address of the server that sent this page, also behind a proxy that put it below a path. */
  get target(): Target {
    return { url: new URL("v1", document.baseURI).href, apiKey: sessionStorage.getItem(STORED) };
  }

  /** `reason` is the server's sentence. */
  ask(reason: string): void {
    if (!this.#form.hidden) return;
    this.#reason.textContent = reason;
    this.#form.hidden = false;
    this.#value.focus();
  }
}
