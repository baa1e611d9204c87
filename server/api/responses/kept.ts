import { join } from "node:path";
import { ConfigError } from "../../config.ts";
import { ApiError, badRequest, quote } from "../../http/errors.ts";
import { asStoreTrouble } from "../../jobs/store-error.ts";
import { ownFolder } from "../../own-files.ts";
import { requestLimits } from "../../request/limits.ts";
import { storageError } from "../openai/files.ts";
import { nowSeconds } from "./codec.ts";
import type { Item, Reference } from "./items.ts";
import {
  isConversation,
  type KeptConversation,
  type KeptResponse,
  ResponseStore,
  type StoreLimits,
} from "./store.ts";

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

  /** Items with references replaced by those of stored responses, or of `known` ones. Throws 404. */
  resolve(
    owner: string,
    items: readonly (Item | Reference)[],
    { known, param }: { readonly known: readonly Item[]; readonly param: string },
  ): Item[] {
    return items.map((item, index) => {
      if (item.type !== "item_reference") return item;
      const found = this.item(owner, item.id) ?? known.find(({ id }) => id === item.id);
      if (found !== undefined) return found;
      const message = `there is no item ${quote(item.id)}`;
      throw new ApiError(404, "not_found_error", message, { param: `${param}[${index}].id` });
    });
  }

  /** Deletes a response and stops it if it still runs. Throws 404, and 507 if the disk is full. */
  delete(owner: string, id: string): void {
    if (isConversation(id) || !this.#delete(owner, id)) throw missing(id, "id");
    this.#running.get(id)?.ending.abort(DELETED);
  }

  /** Returns a conversation. Throws 404 if there is none or it belongs to another key. */
  conversation(owner: string, id: string, param: string): KeptConversation {
    const kept = this.#store.conversation(owner, id);
    if (kept === null) throw missingConversation(id, param);
    return kept;
  }

  /** Stores a conversation. Throws 507 if that fails. */
  keepConversation(owner: string, kept: KeptConversation): void {
    try {
      this.#store.putConversation(owner, kept);
    } catch (error) {
      console.error(`the conversation ${kept.id} is not kept: ${String(error)}`);
      throw new ApiError(507, "server_error", "this conversation cannot be kept; the server's log tells why");
    }
  }

  /** Appends the items of an ended response to a conversation. Returns false and logs the error if that fails. */
  append(owner: string, id: string, items: readonly Item[]): boolean {
    try {
      this.keepConversation(owner, withItems(this.conversation(owner, id, "conversation"), items));
      return true;
    } catch (error) {
      console.error(`the items of a response are not in ${id}: ${String(error)}`);
      return false;
    }
  }

  /** Deletes a conversation. Throws 404, and 507 if the disk is full. */
  deleteConversation(owner: string, id: string): void {
    if (!isConversation(id) || !this.#delete(owner, id)) throw missingConversation(id, "id");
  }

  #delete(owner: string, id: string): boolean {
    try {
      return this.#store.delete(owner, id);
    } catch (error) {
      throw storageError(asStoreTrouble(error));
    }
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

/** Bytes of the items of a conversation, which is read and written as a whole. */
const CONVERSATION_BYTES_MAX = 8 * 2 ** 20;

/** Throws 400 if a conversation cannot hold these items. `param`: the field that adds some of them. */
export function expectItemsFit(items: readonly Item[], param: string): void {
  const { messagesMax } = requestLimits;
  const bytes = Buffer.byteLength(JSON.stringify(items));
  if (items.length <= messagesMax && bytes <= CONVERSATION_BYTES_MAX) return;
  throw badRequest(
    `a conversation may hold ${messagesMax} items of ${CONVERSATION_BYTES_MAX} bytes together at most, but would hold ${items.length} of ${bytes} bytes: delete some, or begin another one`,
    param,
  );
}

/** The conversation with further items behind its own. An item that it has already is not added again. */
export function withItems(kept: KeptConversation, items: readonly Item[]): KeptConversation {
  const known = new Set(kept.items.map(({ id }) => id));
  return { ...kept, items: [...kept.items, ...items.filter(({ id }) => !known.has(id))] };
}

function missingConversation(id: string, param: string): ApiError {
  const message = `there is no conversation ${quote(id)}: it never was, was deleted, or is no longer kept`;
  return new ApiError(404, "not_found_error", message, { param, apiCode: "conversation_not_found" });
}

function missing(id: string, param: string): ApiError {
  const isPrevious = param === "previous_response_id";
  const message = `there is no response ${quote(id)}: it never was, was deleted, or is no longer kept`;
  const apiCode = isPrevious ? "previous_response_not_found" : undefined;
  return new ApiError(404, "not_found_error", message, { param, apiCode });
}
