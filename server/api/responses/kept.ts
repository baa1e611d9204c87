import { join } from "node:path";
import { ConfigError } from "../../config.ts";
import { ApiError, badRequest, quote } from "../../http/errors.ts";
import { asStoreTrouble } from "../../jobs/store-error.ts";
import { ownFolder } from "../../own-files.ts";
import { storageError } from "../openai/files.ts";
import { nowSeconds } from "./codec.ts";
import type { Item } from "./items.ts";
import { type KeptResponse, ResponseStore, type StoreLimits } from "./store.ts";

/** Abort reason of a deleted response: the server stores nothing of it. */
export const DELETED = "deleted";

interface Running {
  readonly ending: AbortController;
  readonly ended: Promise<void>;
}

/** Stored responses, and those among them that still run in the background. */
export class KeptResponses {
  readonly #store: ResponseStore;
  readonly #running = new Map<string, Running>();

  /**
   * Opens the store, and marks the responses that ran when an earlier process ended as failed. `folder` null: the
   * responses live as long as the process. Throws ConfigError for an unusable folder.
   */
  constructor(folder: string | null, limits?: StoreLimits) {
    const own = folder === null ? null : join(folder, "responses");
    const path = own === null ? null : join(own, "index.sqlite");
    try {
      if (own !== null) ownFolder(own);
      this.#store = new ResponseStore(path, nowSeconds, limits);
      for (const { owner, response, ...rest } of this.#store.interrupted()) {
        const error = { code: "server_error", message: "the server ended while this response was made" };
        this.#store.put(owner, {
          ...rest,
          response: { ...response, status: "failed", error } as typeof response,
        });
      }
    } catch (error) {
      throw new ConfigError(`Responses cannot be kept in ${path}: ${(error as Error).message}.`);
    }
  }

  /** Stores a response. Returns false and logs the error if that fails. */
  keep(owner: string, kept: KeptResponse): boolean {
    try {
      this.#store.put(owner, kept);
      return true;
    } catch (error) {
      console.error(`the response ${kept.response.id} is not kept: ${String(error)}`);
      return false;
    }
  }

  /** Stores a response. Throws 507 if that fails. */
  mustKeep(owner: string, kept: KeptResponse): void {
    if (this.keep(owner, kept)) return;
    throw new ApiError(507, "server_error", "this response cannot be kept here; the server's log tells why");
  }

  /** Returns a response. Throws 404 if there is none or it belongs to another key. */
  expect(owner: string, id: string): KeptResponse {
    const kept = this.#store.get(owner, id);
    if (kept === null) throw missing(id, "id");
    return kept;
  }

  /** The response and all its predecessors, oldest first. Throws 404 if one is missing, 400 beyond `chainMax`. */
  async chain(owner: string, id: string): Promise<readonly KeptResponse[]> {
    const chain = await this.#store.chain(owner, id);
    if ("kept" in chain) return chain.kept;
    if ("missing" in chain) throw missing(chain.missing, "previous_response_id");
    throw badRequest(
      `${quote(id)} goes on from more responses than the ${this.#store.limits.chainMax} that may stand one behind the other: send the conversation as input`,
      "previous_response_id",
    );
  }

  /** Finds an item by its id, which contains the id of its response; null if there is none. */
  item(owner: string, id: string): Item | null {
    const key = /^[a-z]+_([0-9a-f]{32})_(?:in)?\d+$/.exec(id)?.[1];
    const kept = key === undefined ? null : this.#store.get(owner, `resp_${key}`);
    if (kept === null) return null;
    return (
      [...kept.input, ...(kept.response.output as readonly Item[])].find((item) => item.id === id) ?? null
    );
  }

  /** Deletes a response and stops it if it still runs. Throws 404, and 507 if the disk is full. */
  delete(owner: string, id: string): void {
    try {
      if (!this.#store.delete(owner, id)) throw missing(id, "id");
    } catch (error) {
      throw storageError(asStoreTrouble(error));
    }
    this.#running.get(id)?.ending.abort(DELETED);
  }

  /** Runs a response in the background. `make` does not reject. */
  run(id: string, make: (signal: AbortSignal) => Promise<void>): void {
    const ending = new AbortController();
    const ended = make(ending.signal).finally(() => this.#running.delete(id));
    this.#running.set(id, { ending, ended });
  }

  /** Stops a running response. Resolves when it has ended. */
  async stop(id: string): Promise<void> {
    const running = this.#running.get(id);
    running?.ending.abort();
    await running?.ended;
  }

  /** Closes the store. No response may run any more. */
  close(): void {
    this.#store.close();
  }
}

function missing(id: string, param: string): ApiError {
  const isPrevious = param === "previous_response_id";
  const message = `there is no response ${quote(id)}: it never was, was deleted, or is no longer kept`;
  const apiCode = isPrevious ? "previous_response_not_found" : undefined;
  return new ApiError(404, "not_found_error", message, { param, apiCode });
}
