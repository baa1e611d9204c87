/** Reads a file of the hub by concurrent Range requests and yields its bytes in order. */

import { type HubClient, type HubLimits, PassingFailure } from "./client.ts";
import { HubError } from "./hub-error.ts";
import type { HubFile } from "./listing.ts";

/** The server sends whole files only. */
class RangesRefused extends Error {}

export class FileReader {
  readonly file: HubFile;
  readonly #client: HubClient;
  readonly #hubAddress: string;
  /** Address after redirects. Resolved again when it fails, because such addresses expire. */
  #address: string;

  constructor(client: HubClient, repository: string, commit: string, file: HubFile) {
    this.file = file;
    this.#client = client;
    const path = file.path.split("/").map(encodeURIComponent).join("/");
    this.#hubAddress = `${client.settings.endpoint}/${repository}/resolve/${commit}/${path}`;
    this.#address = this.#hubAddress;
  }

  get limits(): HubLimits {
    return this.#client.limits;
  }

  /**
   * Bytes of the file from `start` on, in order. `onReceived` receives numbers of bytes as they arrive, in
   * any order.
   */
  async *from(
    start: number,
    signal: AbortSignal,
    onReceived: (bytes: number) => void,
  ): AsyncGenerator<Uint8Array> {
    let at = start;
    try {
      for await (const piece of this.#parts(start, signal, onReceived)) {
        yield piece;
        at += piece.length;
      }
    } catch (error) {
      if (!(error instanceof RangesRefused)) throw error;
      yield* this.#whole(at, signal, onReceived);
    }
  }

  /** Bytes [start, end) of the file. */
  async range(
    start: number,
    end: number,
    signal: AbortSignal,
    onReceived: (bytes: number) => void = () => {},
  ): Promise<Uint8Array> {
    const bytes = new Uint8Array(end - start);
    let done = 0;
    let before = 0;
    const advanced = (): boolean => {
      const isFurther = done > before;
      before = done;
      return isFurther;
    };
    await this.#client.retrying(
      signal,
      async () => {
        const response = await this.#open(`bytes=${start + done}-${end - 1}`, signal);
        this.#expectRange(response, start + done, end);
        for await (const piece of this.#client.pieces(response, signal)) {
          if (done + piece.length > bytes.length) throw this.#wrong("more bytes than were asked for");
          bytes.set(piece, done);
          done += piece.length;
          onReceived(piece.length);
        }
        if (done < bytes.length) throw new PassingFailure(`${this.#host} broke off in ${this.file.path}`);
      },
      advanced,
    );
    return bytes;
  }

  async *#parts(
    start: number,
    signal: AbortSignal,
    onReceived: (bytes: number) => void,
  ): AsyncGenerator<Uint8Array> {
    const { partBytes, connections } = this.#client.limits;
    const stop = new AbortController();
    const either = AbortSignal.any([signal, stop.signal]);
    const running: Promise<Uint8Array>[] = [];
    let next = start;
    const fill = (count: number): void => {
      while (running.length < count && next < this.file.bytes) {
        const end = Math.min(next + partBytes, this.file.bytes);
        const part = this.range(next, end, either, onReceived);
        part.catch(() => {}); // Awaited below, unless an earlier part fails.
        running.push(part);
        next = end;
      }
    };
    try {
      fill(1);
      while (running.length > 0) {
        const part = await running.shift()!;
        // The first request resolves the address that serves the file; the others use it.
        fill(connections);
        yield part;
      }
    } finally {
      stop.abort(new Error("not needed any more"));
    }
  }

  /** Fetches the whole file in one response, and skips its first `start` bytes. */
  async *#whole(
    start: number,
    signal: AbortSignal,
    onReceived: (bytes: number) => void,
  ): AsyncGenerator<Uint8Array> {
    const pieces = this.#client.pieces(
      await this.#client.retrying(signal, () => this.#open(null, signal)),
      signal,
    );
    let at = 0;
    for await (const piece of pieces) {
      const skipped = Math.min(piece.length, Math.max(0, start - at));
      at += piece.length;
      if (at > this.file.bytes) throw this.#wrong(`more than the ${this.file.bytes} bytes that it listed`);
      onReceived(piece.length - skipped);
      if (skipped < piece.length) yield piece.subarray(skipped);
    }
    if (at < this.file.bytes)
      throw this.#wrong(`${at} of ${this.file.bytes} bytes, and takes no ranges to go on`);
  }

  async #open(range: string | null, signal: AbortSignal): Promise<Response> {
    try {
      const headers = range === null ? {} : { range };
      const { response, address } = await this.#client.get(this.#address, headers, signal);
      this.#address = address;
      return response;
    } catch (error) {
      const wasRedirected = this.#address !== this.#hubAddress;
      this.#address = this.#hubAddress;
      if (!wasRedirected || !(error instanceof HubError)) throw error;
      throw new PassingFailure(error.message.replace(/\.$/, ""));
    }
  }

  #expectRange(response: Response, start: number, end: number): void {
    const { status, headers } = response;
    const given = headers.get("content-range");
    if (headers.get("content-encoding") !== null)
      throw this.#wrong("a compressed form, which was not asked for");
    if (status === 206 && given === `bytes ${start}-${end - 1}/${this.file.bytes}`) return;
    const length = headers.get("content-length");
    const isWhole = start === 0 && end === this.file.bytes;
    if (status === 200 && isWhole && (length === null || Number(length) === this.file.bytes)) return;
    response.body?.cancel().catch(() => {});
    if (status === 200 && (length === null || Number(length) === this.file.bytes)) throw new RangesRefused();
    throw this.#wrong(
      `${given ?? `${length} bytes`} where bytes ${start}-${end - 1} of ${this.file.bytes} were asked for`,
    );
  }

  get #host(): string {
    return new URL(this.#address).host;
  }

  #wrong(what: string): HubError {
    return new HubError(`${this.#host} sends ${what}: ${this.file.path} is not taken.`);
  }
}
