/** Address and stores of a server: one process has them at a time, and may hand them over to another. */

import { refusalOn } from "./api/refusals.ts";
import { KeptResponses } from "./api/responses/kept.ts";
import type { Config } from "./config.ts";
import { HandOverDoor } from "./hand-over/door.ts";
import type { Predecessor } from "./hand-over/predecessor.ts";
import type { Serve } from "./http/connection.ts";
import { unavailable } from "./http/errors.ts";
import { requestIdOf } from "./http/head.ts";
import type { Lifecycle } from "./http/lifecycle.ts";
import { listen } from "./http/listen.ts";
import type { HttpServer } from "./http/server.ts";
import { openJobs } from "./jobs/data-folder.ts";
import type { JobRunner } from "./jobs/runner.ts";
import type { JobStore } from "./jobs/store.ts";

/** Path prefixes of routes that read a store, or describe the server that has the address. */
const HANDED_OVER = ["/v1/files", "/v1/batches", "/v1/responses", "/state", "/metrics"];

/** Stores of a server, which one process has open at a time. */
export interface Stores {
  /** Store of batch jobs; null if they are not kept. */
  readonly store: JobStore | null;
  readonly jobsNote: string | null;
  readonly responses: KeptResponses;
}

/** Opens the stores. `jobsName` names the default folder of jobs. Throws ConfigError. */
export function openStores(config: Config, jobsName: string): Stores {
  const { store, note } = openJobs(config, jobsName);
  const folder = typeof config.data === "object" ? config.data.folder : null;
  return { store, jobsNote: note, responses: new KeptResponses(folder) };
}

export function closeStores({ store, responses }: Pick<Stores, "store" | "responses">): void {
  store?.close();
  responses.close();
}

export class Front implements Stores {
  readonly store: JobStore | null;
  readonly jobsNote: string | null;
  readonly responses: KeptResponses;
  readonly server: HttpServer;
  readonly #handedOver = Promise.withResolvers<void>();
  #runner: JobRunner | null = null;
  #door: HandOverDoor | null = null;
  #isReleased = false;

  constructor({ store, jobsNote, responses }: Stores, server: HttpServer) {
    this.store = store;
    this.jobsNote = jobsNote;
    this.responses = responses;
    this.server = server;
  }

  /**
   * Opens the stores that the predecessor releases, and listens on its socket. `jobsName` names the default
   * folder of jobs. Throws ConfigError.
   */
  static async takeOver(
    config: Config,
    jobsName: string,
    lifecycle: Lifecycle,
    predecessor: Predecessor,
  ): Promise<Front> {
    await predecessor.release();
    const stores = openStores(config, jobsName);
    return new Front(stores, listen(config, lifecycle, refusalOn, predecessor.descriptor));
  }

  /** Resolves when another process has the address and the stores. */
  get handedOver(): Promise<void> {
    return this.#handedOver.promise;
  }

  /** Serves, runs the jobs of `runner`, and lets a successor take over. */
  serve(serve: Serve, runner: JobRunner | null): void {
    this.#runner = runner;
    this.server.serve = serve;
    const { hostname, port, descriptor } = this.server;
    this.#door = HandOverDoor.open(hostname, port, descriptor, () => this.#release());
  }

  /** Stops running jobs. They resume after the next start. */
  async stopJobs(): Promise<void> {
    if (!this.#isReleased) await this.#runner?.stop();
  }

  /** Ends every connection, and closes the stores. */
  async close(): Promise<void> {
    await this.server.kill();
    await this.#door?.close(this.#isReleased);
    if (!this.#isReleased) closeStores(this);
  }

  /** Gives the address and the stores to a successor. Connections end after their next answers. */
  async #release(): Promise<void> {
    const { serve } = this.server;
    this.server.serve = (request) => handedOverRefusal(request) ?? serve(request);
    void this.server.leave();
    await this.stopJobs();
    this.#isReleased = true;
    closeStores(this);
    this.#handedOver.resolve();
  }
}

/** Refusal of a request that only the successor can answer; null for others. */
function handedOverRefusal(request: Request): Response | null {
  const { pathname } = new URL(request.url);
  if (!HANDED_OVER.some((path) => pathname.startsWith(path))) return null;
  const error = unavailable("draining", "another process serves this address now: connect again", 1);
  return refusalOn(pathname, error, requestIdOf(request.headers));
}
