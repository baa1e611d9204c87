/**
 * A hub of models on this machine: Hugging Face's API for listings and files, with a second origin that serves
 * large files, as a CDN does. Tests make it misbehave.
 */

import { createHash } from "node:crypto";

export interface HubRequest {
  readonly method: string;
  readonly path: string;
  readonly range: string | null;
  readonly authorization: string | null;
  readonly from: "hub" | "cdn";
}

export interface FakeHubOptions {
  /** Files by path, each a large file (LFS) from this size on. */
  readonly largeBytes?: number;
  /** Bytes per second of the CDN, all connections together; absent: as fast as it goes. */
  readonly bytesPerSecond?: number;
  /** Answers a request in place of the hub; null leaves it to the hub. */
  readonly misbehave?: (
    request: HubRequest,
    answer: () => Promise<Response>,
  ) => Promise<Response | null> | null;
  /** Changes the list of files. */
  readonly list?: (entries: readonly object[]) => unknown;
}

export class FakeHub {
  readonly requests: HubRequest[] = [];
  readonly #options: FakeHubOptions;
  readonly #repositories = new Map<string, { commit: string; files: Map<string, Uint8Array> }[]>();
  readonly #hub: Bun.Server<undefined>;
  readonly #cdn: Bun.Server<undefined>;
  #sentAtMs = 0;

  constructor(options: FakeHubOptions = {}) {
    this.#options = options;
    const serve = (from: HubRequest["from"]) =>
      Bun.serve({
        port: 0,
        hostname: "127.0.0.1",
        idleTimeout: 0,
        fetch: (request) => this.#receive(request, from),
      });
    this.#hub = serve("hub");
    this.#cdn = serve("cdn");
  }

  get endpoint(): string {
    return `http://127.0.0.1:${this.#hub.port}`;
  }

  get cdn(): string {
    // Another name of the same machine: another host for the client.
    return `http://localhost:${this.#cdn.port}`;
  }

  /** Adds a commit to a repository's branch `main`; returns its hash. */
  commit(name: string, files: Readonly<Record<string, string | Uint8Array>>): string {
    const commits = this.#repositories.get(name) ?? [];
    const contents = new Map(
      Object.entries(files).map(([path, content]) => [
        path,
        typeof content === "string" ? Buffer.from(content) : content,
      ]),
    );
    const commit = createHash("sha1").update(`${name} ${commits.length}`).digest("hex");
    commits.push({ commit, files: contents });
    this.#repositories.set(name, commits);
    return commit;
  }

  async stop(): Promise<void> {
    await Promise.all([this.#hub.stop(true), this.#cdn.stop(true)]);
  }

  async #receive(request: Request, from: HubRequest["from"]): Promise<Response> {
    const url = new URL(request.url);
    const { headers, method } = request;
    const path = decodeURIComponent(url.pathname);
    const told: HubRequest = {
      method,
      path,
      range: headers.get("range"),
      authorization: headers.get("authorization"),
      from,
    };
    this.requests.push(told);
    const answer = async (): Promise<Response> => this.#answer(told);
    return (await this.#options.misbehave?.(told, answer)) ?? (await answer());
  }

  #answer({ path, range, from, method }: HubRequest): Response {
    const api = /^\/api\/models\/([^/]+\/[^/]+)\/(revision|tree)\/(.+)$/.exec(path);
    if (api !== null) return this.#describe(api[1]!, api[2]!, api[3]!);
    const file = /^\/([^/]+\/[^/]+)\/resolve\/([^/]+)\/(.+)$/.exec(path);
    const found = file === null ? null : this.#at(file[1]!, file[2]!);
    const content = found?.files.get(file?.[3] ?? "");
    if (found === null || found === undefined || content === undefined)
      return new Response("not found", { status: 404 });
    const isLarge = this.#isLarge(content);
    const etag = isLarge ? sha256(content) : gitHash(content);
    const headers = {
      "x-repo-commit": found.commit,
      etag: `"${etag}"`,
      "accept-ranges": "bytes",
      ...(isLarge ? { "x-linked-etag": `"${etag}"`, "x-linked-size": String(content.length) } : {}),
    };
    if (isLarge && from === "hub") {
      const location = `${this.cdn}${encodeURI(path)}`;
      return new Response(null, { status: 302, headers: { ...headers, location } });
    }
    if (method === "HEAD")
      return new Response(null, { headers: { ...headers, "content-length": String(content.length) } });
    return this.#send(content, range, headers);
  }

  #describe(name: string, what: string, revision: string): Response {
    const found = this.#at(name, revision);
    if (found === null) return Response.json({ error: "not found" }, { status: 404 });
    const { commit, files } = found;
    const entries = [...files].map(([path, content]) => ({
      type: "file",
      path,
      size: content.length,
      oid: gitHash(content),
      ...(this.#isLarge(content)
        ? { lfs: { oid: sha256(content), size: content.length, pointerSize: 134 } }
        : {}),
    }));
    if (what === "tree") return Response.json(this.#options.list?.(entries) ?? entries);
    const siblings = entries.map(({ path }) => ({ rfilename: path }));
    return Response.json({ id: name, modelId: name, sha: commit, private: false, gated: false, siblings });
  }

  #at(name: string, revision: string): { commit: string; files: Map<string, Uint8Array> } | null {
    const commits = this.#repositories.get(name) ?? [];
    if (revision === "main") return commits.at(-1) ?? null;
    return commits.find(({ commit }) => commit === revision) ?? null;
  }

  #isLarge(content: Uint8Array): boolean {
    return content.length >= (this.#options.largeBytes ?? 1024);
  }

  #send(content: Uint8Array, range: string | null, headers: Record<string, string>): Response {
    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(range ?? "") ?? [];
    if (first === undefined)
      return new Response(this.#paced(content), {
        headers: { ...headers, "content-length": String(content.length) },
      });
    const start = Number(first);
    const end = Math.min(last === "" ? content.length : Number(last) + 1, content.length);
    if (start >= content.length)
      return new Response(null, { status: 416, headers: { "content-range": `bytes */${content.length}` } });
    return new Response(this.#paced(content.subarray(start, end)), {
      status: 206,
      headers: {
        ...headers,
        "content-range": `bytes ${start}-${end - 1}/${content.length}`,
        "content-length": String(end - start),
      },
    });
  }

  #paced(content: Uint8Array): ReadableStream<Uint8Array> | Uint8Array<ArrayBuffer> {
    const { bytesPerSecond } = this.#options;
    if (bytesPerSecond === undefined) return content as Uint8Array<ArrayBuffer>;
    let at = 0;
    const pieceBytes = 1 << 18;
    return new ReadableStream({
      pull: async (controller) => {
        const piece = content.subarray(at, at + pieceBytes);
        at += piece.length;
        const now = performance.now();
        this.#sentAtMs = Math.max(now, this.#sentAtMs) + (piece.length / bytesPerSecond) * 1000;
        if (this.#sentAtMs > now + 1) await Bun.sleep(this.#sentAtMs - now);
        if (piece.length > 0) controller.enqueue(piece);
        if (at >= content.length) controller.close();
      },
    });
  }
}

const hashes = new WeakMap<Uint8Array, string>();

function sha256(content: Uint8Array): string {
  const known = hashes.get(content) ?? createHash("sha256").update(content).digest("hex");
  hashes.set(content, known);
  return known;
}

function gitHash(content: Uint8Array): string {
  if (content.length > 1 << 20) return createHash("sha1").update(`pointer ${content.length}`).digest("hex");
  return createHash("sha1").update(`blob ${content.length}\0`).update(content).digest("hex");
}
