/**
 * Sends requests to the hub. Follows redirects itself, one by one, so that only the hub's own origin receives
 * the token. Retries after transient failures.
 */

import { HubError } from "./hub-error.ts";
import type { HubSettings } from "./settings.ts";

export interface HubLimits {
  /** Consecutive attempts without a new byte, including the first. */
  readonly attempts: number;
  /** Pause before the second attempt, doubled before each further one. */
  readonly pauseMs: number;
  /** Longest pause, even if the hub asks for a longer one. */
  readonly pauseMsMax: number;
  /** Maximum time without data on a connection. */
  readonly stallMs: number;
  /** Bytes per Range request. */
  readonly partBytes: number;
  /** Concurrent Range requests. */
  readonly connections: number;
  /** Bytes fetched first from the start of a weight file, to plan the model. */
  readonly headBytes: number;
}

export const defaultHubLimits: HubLimits = Object.freeze({
  attempts: 6,
  pauseMs: 500,
  pauseMsMax: 60_000,
  stallMs: 30_000,
  partBytes: 4 << 20,
  connections: 8,
  headBytes: 1 << 20,
});

const REDIRECTS_MAX = 5;
/** Maximum bytes of an API response. */
const ANSWER_BYTES_MAX = 32 << 20;

/** Transient failure, after which a request is retried. */
export class PassingFailure extends Error {
  /** Pause that the hub asks for (Retry-After); null for none. */
  readonly retryAfterMs: number | null;

  constructor(message: string, retryAfterMs: number | null = null) {
    super(message);
    this.retryAfterMs = retryAfterMs;
  }
}

export class HubClient {
  readonly settings: HubSettings;
  readonly limits: HubLimits;
  readonly #origin: string;
  /** True after the first response: from then on, failures to connect count as transient. */
  #isReached = false;

  constructor(settings: HubSettings, limits: HubLimits = defaultHubLimits) {
    this.settings = settings;
    this.limits = limits;
    this.#origin = new URL(settings.endpoint).origin;
  }

  /**
   * Sends a GET and follows redirects. Resolves to the successful response and its address; the caller reads
   * or cancels the body. Throws PassingFailure and HubError.
   */
  async get(
    address: string,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<{ readonly response: Response; readonly address: string }> {
    let url = new URL(address);
    for (let redirects = 0; redirects <= REDIRECTS_MAX; redirects += 1) {
      const response = await this.#fetch(url, headers, signal);
      if (response.ok) return { response, address: url.href };
      await response.body?.cancel().catch(() => {});
      const location = response.headers.get("location");
      const isRedirect = [301, 302, 303, 307, 308].includes(response.status);
      if (!isRedirect || location === null) throw this.#refusal(response, url);
      const next = URL.canParse(location, url.href) ? new URL(location, url) : null;
      const isSafe = next?.protocol === "https:" || (next?.protocol === "http:" && url.protocol === "http:");
      if (next === null || !isSafe)
        throw new HubError(`${url.host} redirects to ${location.slice(0, 200)}, which is not followed.`);
      url = next;
    }
    throw new HubError(`${this.settings.endpoint} redirects more than ${REDIRECTS_MAX} times in a row.`);
  }

  /** Reads a JSON response of bounded size, and the address of the next page (null for none). */
  async json(
    address: string,
    signal: AbortSignal,
  ): Promise<{ readonly value: unknown; readonly next: string | null }> {
    return await this.retrying(signal, async () => {
      const { response } = await this.get(address, { accept: "application/json" }, signal);
      const pieces: Uint8Array[] = [];
      let bytes = 0;
      for await (const piece of this.pieces(response, signal)) {
        bytes += piece.length;
        if (bytes > ANSWER_BYTES_MAX)
          throw new HubError(`${address} answers with more than ${ANSWER_BYTES_MAX} bytes of JSON.`);
        pieces.push(piece);
      }
      return { value: this.#parse(address, Buffer.concat(pieces)), next: this.#nextPage(response) };
    });
  }

  /** Pieces of a body. Throws PassingFailure if the connection breaks, or sends nothing for too long. */
  async *pieces(response: Response, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const reader = response.body?.getReader();
    if (reader === undefined) return;
    let isDone = false;
    try {
      for (;;) {
        const { done, value } = await this.#inTime(reader.read(), signal);
        if (done) break;
        yield value;
      }
      isDone = true;
    } finally {
      if (!isDone) await reader.cancel().catch(() => {});
    }
  }

  /**
   * Retries the work after transient failures. `advanced`: returns true if the last attempt received new
   * bytes.
   */
  async retrying<Value>(
    signal: AbortSignal,
    work: () => Promise<Value>,
    advanced: () => boolean = () => false,
  ): Promise<Value> {
    const { attempts, pauseMs, pauseMsMax } = this.limits;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await work();
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof PassingFailure)) throw error;
        if (advanced()) attempt = 1;
        if (attempt >= attempts) throw new HubError(`${error.message}, ${attempts} times in a row.`);
        const wantedMs = error.retryAfterMs ?? pauseMs * 2 ** (attempt - 1);
        await pause(Math.min(wantedMs, pauseMsMax), signal);
      }
    }
  }

  async #fetch(url: URL, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<Response> {
    const { token } = this.settings;
    const isHub = url.origin === this.#origin;
    try {
      const response = await this.#inTime(
        fetch(url, {
          redirect: "manual",
          headers: {
            "user-agent": "bunting",
            // Ranges must count bytes of the file itself, not of a compressed form.
            "accept-encoding": "identity",
            ...headers,
            ...(token !== null && isHub ? { authorization: `Bearer ${token}` } : {}),
          },
          signal,
        }),
        signal,
      );
      this.#isReached = true;
      return response;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof PassingFailure)) throw error;
      if (this.#isReached) throw new PassingFailure(`${url.host}: ${error.message}`);
      throw new HubError(
        `${url.host} cannot be reached (${error.message}). A model on this machine is named by its path.`,
      );
    }
  }

  async #inTime<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
    const late = Promise.withResolvers<never>();
    const { stallMs } = this.limits;
    const timer = setTimeout(
      () => late.reject(new PassingFailure(`nothing came for ${stallMs} ms`)),
      stallMs,
    );
    try {
      return await Promise.race([work, late.promise]);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof PassingFailure) throw error;
      throw new PassingFailure(`the connection broke off (${(error as Error).message})`);
    } finally {
      clearTimeout(timer);
    }
  }

  #refusal({ status, headers }: Response, { host, pathname }: URL): Error {
    const path = subjectOf(host, pathname);
    if (status === 401 || status === 403) {
      const advice =
        this.settings.token === null
          ? "set HF_TOKEN if the model is private or gated"
          : "the token does not allow it, or its owner has not accepted the model's terms on its page";
      return new HubError(`${path} is not allowed (status ${status}), or does not exist: ${advice}.`);
    }
    if (status === 429 || status === 408 || status >= 500) {
      const seconds = Number(headers.get("retry-after") ?? Number.NaN);
      return new PassingFailure(
        `${path} answers with status ${status}`,
        Number.isFinite(seconds) ? seconds * 1000 : null,
      );
    }
    return new HubError(
      status === 404 ? `${path} does not exist.` : `${path} answers with status ${status}.`,
    );
  }

  #parse(address: string, bytes: Uint8Array): unknown {
    try {
      return JSON.parse(new TextDecoder().decode(bytes));
    } catch {
      throw new HubError(`${address} does not answer with JSON; is HF_ENDPOINT the address of a hub?`);
    }
  }

  #nextPage(response: Response): string | null {
    const next = /<([^>]+)>;\s*rel="next"/.exec(response.headers.get("link") ?? "")?.[1];
    return next !== undefined && URL.canParse(next, this.settings.endpoint)
      ? new URL(next, this.settings.endpoint).href
      : null;
  }
}

/** Waits; rejects when the signal aborts. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  const stop = (): void => reject(signal.reason);
  signal.addEventListener("abort", stop, { once: true });
  return promise.finally(() => {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  });
}

/** Name for error messages: the model that an address belongs to, else the address. */
function subjectOf(host: string, pathname: string): string {
  const [, name, revision] =
    /^\/api\/models\/([^/]+\/[^/]+)\/(?:revision|tree)\/([^/]+)/.exec(pathname) ?? [];
  if (name === undefined) return `${host}${pathname}`;
  return `${name} at ${decodeURIComponent(revision!)} on ${host}`;
}
