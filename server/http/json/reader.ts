import { ApiError, badRequest, engineError } from "../errors.ts";
import { type JsonLimits, type ParsedJson, readJson, remembered } from "./parse.ts";

/**
 * Parses JSON without blocking the HTTP thread: small texts inline, large ones on a worker thread that starts
 * with the first of them. The results of both are the same. To receive a large value, to process it and to
 * receive the next each block this thread. The reader yields between them to other work.
 */

/** Larger texts go to the worker thread. */
const INLINE_BYTES_MAX = 128 * 1024;

/**
 * Strings with at least this many UTF-16 units cross threads as messages of their own: Bun shares those, but
 * copies strings within values.
 */
const LIFTED_UNITS_MIN = 64 * 1024;

/** Message to the worker, which answers jobs in their order. */
export interface JsonJob {
  /** The text in UTF-8, in blocks that may end within a character. */
  readonly blocks: readonly Uint8Array<ArrayBuffer>[];
  readonly limits: JsonLimits;
}

/** Answer of the worker, sent after the strings that were lifted out of it. */
export type JsonAnswer =
  /** `parsed.text` is empty if there are no members to slice from it. `lifted`: paths of the missing strings. */
  | { readonly kind: "parsed"; readonly parsed: ParsedJson; readonly lifted: readonly Path[] }
  | { readonly kind: "refused"; readonly message: string; readonly param: string | null };

/** Keys and indices, from the outermost object inwards. */
type Path = readonly (string | number)[];

interface Waiting {
  readonly job: JsonJob;
  readonly resolve: (value: unknown) => void;
  readonly reject: (reason: Error) => void;
}

export class JsonReader {
  readonly #workerUrl: string;
  #worker: Worker | null = null;
  /** Queue of jobs; the first may be with the worker. */
  #waiting: Waiting[] = [];
  #isBusy = false;

  /** `workerUrl` is that of worker.ts. */
  constructor(workerUrl: string) {
    this.#workerUrl = workerUrl;
  }

  /** Takes ownership of the blocks. Rejects with 400 if they are not JSON in UTF-8, or exceed the limits. */
  async read(blocks: readonly Uint8Array<ArrayBuffer>[], limits: JsonLimits): Promise<unknown> {
    const bytes = blocks.reduce((sum, { length }) => sum + length, 0);
    if (bytes <= INLINE_BYTES_MAX) return remembered(readJsonBytes(blocks, limits));
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#waiting.push({ job: { blocks, limits }, resolve, reject });
    if (!this.#isBusy) this.#postNext();
    return promise;
  }

  /** Ends the thread and rejects waiting jobs. */
  close(): void {
    this.#fail("the server is closed");
  }

  #postNext(): void {
    const next = this.#waiting[0];
    this.#isBusy = next !== undefined;
    if (next === undefined) return;
    this.#worker ??= this.#start();
    const buffers = next.job.blocks.map(({ buffer }) => buffer);
    this.#worker.postMessage(next.job, buffers);
  }

  #start(): Worker {
    const worker = new Worker(this.#workerUrl, { name: "json" });
    worker.unref(); // never keeps the process alive by itself
    const strings: string[] = [];
    worker.onmessage = ({ data }: MessageEvent<string | JsonAnswer>) => {
      if (typeof data === "string") {
        strings.push(data);
        return;
      }
      setImmediate(() => {
        if (this.#worker !== worker) return;
        const waiting = this.#waiting.shift();
        if (data.kind === "parsed")
          waiting?.resolve(remembered(putBack(data.parsed, data.lifted, strings.splice(0))));
        else waiting?.reject(badRequest(data.message, data.param ?? undefined));
        setImmediate(() => {
          if (this.#worker === worker) this.#postNext();
        });
      });
    };
    worker.onerror = (event) => this.#fail(event.message);
    return worker;
  }

  /** Rejects waiting jobs because the thread is gone; the next large body starts another. */
  #fail(reason: string): void {
    this.#worker?.terminate();
    this.#worker = null;
    this.#isBusy = false;
    for (const { reject } of this.#waiting.splice(0)) reject(engineError(`the body was not read: ${reason}`));
  }
}

/**
 * Messages of a parsed body, the answer last. An ApiError cannot cross threads, so a refusal crosses as data.
 */
export function answerJob({ blocks, limits }: JsonJob): readonly [...strings: string[], answer: JsonAnswer] {
  try {
    const { value, text, members } = readJsonBytes(blocks, limits);
    const parsed = { value, text: members.length === 0 ? "" : text, members };
    const lifted: Path[] = [];
    const strings: string[] = [];
    lift(parsed, [], (string, path) => {
      strings.push(string);
      lifted.push(path);
    });
    return [...strings, { kind: "parsed", parsed, lifted }];
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return [{ kind: "refused", message: error.message, param: error.detail.param ?? null }];
  }
}

type Container = Record<string | number, unknown>;

/** Replaces long strings by "" and reports each; the caller must be the only owner of `container`. */
function lift(container: object, path: Path, onString: (string: string, path: Path) => void): void {
  for (const key of Array.isArray(container) ? container.keys() : Object.keys(container)) {
    const member = (container as Container)[key];
    if (typeof member === "object" && member !== null) lift(member, [...path, key], onString);
    if (typeof member !== "string" || member.length < LIFTED_UNITS_MIN) continue;
    onString(member, [...path, key]);
    (container as Container)[key] = "";
  }
}

function putBack(parsed: ParsedJson, lifted: readonly Path[], strings: readonly string[]): ParsedJson {
  for (const [index, path] of lifted.entries()) {
    const container = path
      .slice(0, -1)
      .reduce((at, key) => at[key] as Container, parsed as unknown as Container);
    container[path.at(-1)!] = strings[index];
  }
  return parsed;
}

function readJsonBytes(blocks: readonly Uint8Array[], limits: JsonLimits): ParsedJson {
  return readJson(decodeUtf8(blocks), limits);
}

function decodeUtf8(blocks: readonly Uint8Array[]): string {
  const bytes = blocks.length === 1 ? blocks[0]! : Buffer.concat(blocks);
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
    throw badRequest("the request body starts with a byte order mark; JSON is sent without one");
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw badRequest("the request body is not valid UTF-8");
  }
}
