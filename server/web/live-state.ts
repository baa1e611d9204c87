import { authorization, ServerError, serverError } from "../cli/client.ts";
import type { EngineSnapshot, ServerFacts, Snapshot } from "../http/state.ts";
import type { ApiKeyForm } from "./api-key.ts";
import { element } from "./dom.ts";
import { EngineView } from "./engine-view.ts";

const POLL_MS = 1000;
/** Longest wait between two tries to reach the server. */
const RETRY_MS_MAX = 8000;

/**
 * Polls the server's state once a second while the page is visible, with a growing interval while the server
 * cannot be reached.
 */
export class LiveState {
  readonly #apiKey: ApiKeyForm;
  readonly #panel = element("live", HTMLDetailsElement);
  readonly #engines = element("engines", HTMLDivElement);
  readonly #glance = element("glance", HTMLSpanElement);
  #views: EngineView[] = [];
  #last: Snapshot | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isAsking = false;
  #waitMs = POLL_MS;
  /** Reason in the server's last answer for accepting no work; null if it accepted work. */
  #reason: string | null = null;
  readonly #onProblem: (problem: string | null) => void;

  /** Calls `onProblem` with a sentence why the user cannot ask now, or null if the user can. */
  constructor(apiKey: ApiKeyForm, onProblem: (problem: string | null) => void) {
    this.#apiKey = apiKey;
    this.#onProblem = onProblem;
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.refresh();
      else clearTimeout(this.#timer);
    });
  }

  /** Polls now, and from now on. */
  refresh(): void {
    clearTimeout(this.#timer);
    if (!this.#isAsking) void this.#ask();
  }

  async #ask(): Promise<void> {
    this.#isAsking = true;
    let mayAskAgain = true;
    try {
      const now = await fetchSnapshot(this.#apiKey);
      element("model", HTMLParagraphElement).textContent = now.model;
      document.title = `${now.model} – Bunting`;
      this.#panel.classList.toggle("stale", now.status !== "ready");
      if ("engines" in now) this.#show(now);
      else this.#showNothing(now);
      this.#waitMs = POLL_MS;
      this.#tell(now.status === "ready" ? null : await this.#refusal());
    } catch (error) {
      const message = error instanceof ServerError ? error.message : "the server cannot be reached";
      mayAskAgain = !(error instanceof ServerError && error.status === 401);
      if (!mayAskAgain) this.#apiKey.ask(message);
      this.#glance.textContent = mayAskAgain ? message : "needs an API key";
      this.#panel.classList.add("stale");
      this.#failed(error);
    }
    this.#isAsking = false;
    if (mayAskAgain && document.visibilityState === "visible") {
      this.#timer = setTimeout(() => this.refresh(), this.#waitMs);
    }
  }

  /** Reason why the server accepts no work; null if it does. */
  async #refusal(): Promise<string | null> {
    const { target } = this.#apiKey;
    const response = await fetch(new URL("../health/ready", `${target.url}/`), { cache: "no-store" });
    return response.ok ? null : (await serverError(response, target)).message;
  }

  #failed(error: unknown): void {
    if (error instanceof ServerError) {
      this.#waitMs = POLL_MS;
      this.#tell(error.status === 503 ? error.message : null);
      return;
    }
    this.#waitMs = Math.min(2 * this.#waitMs, RETRY_MS_MAX);
    const before = this.#reason === null ? "" : ` It said last: ${this.#reason}.`;
    this.#onProblem(
      `The server cannot be reached.${before} If it has ended, the terminal that it ran in says why; this page goes on when it is back.`,
    );
  }

  #tell(reason: string | null): void {
    this.#reason = reason;
    const goesOn = "This page goes on by itself when the server is ready.";
    this.#onProblem(reason === null ? null : `${reason[0]!.toUpperCase()}${reason.slice(1)}. ${goesOn}`);
  }

  /** Hides the engines, since the key may not see others' requests. */
  #showNothing({ status }: ServerFacts): void {
    this.#last = null;
    this.#engines.replaceChildren();
    this.#glance.textContent = status === "ready" ? "engines are shown to the operator's key" : status;
  }

  #show(now: Snapshot): void {
    const { engines, placements } = now;
    // A clock that went back is another server's.
    const before = this.#last !== null && this.#last.timeMs < now.timeMs ? this.#last : null;
    this.#last = now;
    if (before === null || this.#views.length !== engines.length) {
      this.#views = engines.map((_, index) => new EngineView(engines.length === 1 ? null : index));
      this.#engines.replaceChildren(...this.#views.map((view) => view.root));
    }
    const seconds = before === null ? null : (now.timeMs - before.timeMs) / 1000;
    engines.forEach((engine, index) => {
      const view = this.#views[index]!;
      view.show(engine, before?.engines[index] ?? null, seconds);
      view.showPlacements(placements.filter(({ placement }) => placement.engine === index));
    });
    this.#glance.textContent =
      now.status === "ready" ? `${glance(engines, this.#views)}${ofJobs(now)}` : now.status;
  }
}

async function fetchSnapshot({ target }: ApiKeyForm): Promise<Snapshot | ServerFacts> {
  const response = await fetch(new URL("../state", `${target.url}/`), {
    headers: authorization(target),
    cache: "no-store",
  });
  if (!response.ok) throw await serverError(response, target);
  return (await response.json()) as Snapshot | ServerFacts;
}

/** Running jobs, and the shares of jobs and requests in all tokens computed for answers. */
function ofJobs({ jobs, computed }: Snapshot): string {
  if (jobs === null || jobs.active === 0) return "";
  const all = computed.jobs + computed.requests;
  const share = all === 0 ? 0 : Math.round((100 * computed.jobs) / all);
  const shares = all === 0 ? "" : ` with ${share} % of all tokens, requests with ${100 - share} %`;
  return `, ${jobs.active} job${jobs.active > 1 ? "s" : ""}${shares}`;
}

/** Summary of all engines in one line. */
function glance(engines: readonly EngineSnapshot[], views: readonly EngineView[]): string {
  const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0);
  const rate = sum(views.map((view) => view.tokensPerSecond));
  const running = sum(engines.map(({ load }) => load.running));
  const waiting = sum(engines.map(({ load }) => load.waiting));
  return `${rate.toFixed(0)} tokens/s, ${running} running${waiting > 0 ? `, ${waiting} waiting` : ""}`;
}
