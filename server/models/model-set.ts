/**
 * Models of a server: loads one when a request names it, and unloads others to stay within the memory limit.
 */

import { formatBytes } from "../../gpu/memory.ts";
import { decideResidency, type ModelState, residentBytes } from "../../scheduler/residency/residency.ts";
import { ApiError, clientGone, unavailable } from "../http/errors.ts";
import { whenAborted } from "../http/route.ts";

/** A model with engines. */
export interface LoadedModel {
  /** Resolves when the model has no work. */
  whenIdle(): Promise<void>;
  /** Resolves with the reason when its last engine is lost. */
  readonly lost: Promise<string>;
  /** Stops the engines and frees their memory. */
  close(): Promise<void>;
}

/** Receives the loaded share of a model, 0 to 1; null where it is unknown. */
export type OnLoading = (share: number | null) => void;

/** A model that the set can load. */
export interface ModelRow<Loaded extends LoadedModel> {
  readonly name: string;
  /** Planned memory: weights, KV cache and workspaces. */
  readonly bytes: number;
  /** Estimated time of the first load. */
  readonly loadMs: number;
  readonly isPinned: boolean;
  /** Time for which the model stays loaded without requests; infinite for no limit. */
  readonly keepAliveMs: number;
  /** Checks the files before other models make room. Throws an error whose message is for users. */
  check(): void;
  load(onLoading: OnLoading): Promise<Loaded>;
}

export interface ModelSetLimits {
  /** Planned bytes of all loaded models together. */
  readonly memoryBytes: number;
  /** Maximum time that a request waits for its model. */
  readonly waitMs: number;
  /** Maximum requests that wait for one model. */
  readonly waitingMax: number;
}

/** Right to use a loaded model, which stays loaded until the lease ends. */
export interface Lease<Loaded> {
  readonly loaded: Loaded;
  end(): void;
}

/** State of a model, for people and clients. */
export interface ModelStatus extends ModelState {
  /** Requests that wait for the model. */
  readonly waiting: number;
  /** Loaded share while it loads; null otherwise or if unknown. */
  readonly loadedShare: number | null;
}

interface Waiting<Loaded> {
  readonly sinceMs: number;
  readonly onLoading: OnLoading;
  readonly resolve: (lease: Lease<Loaded>) => void;
  readonly reject: (reason: Error) => void;
}

interface Entry<Loaded extends LoadedModel> {
  readonly row: ModelRow<Loaded>;
  readonly waiting: Set<Waiting<Loaded>>;
  phase: ModelState["phase"];
  loaded: Loaded | null;
  loadedShare: number | null;
  leases: number;
  loadMs: number;
  loadedMs: number;
  usedMs: number;
  keepAliveMs: number;
}

export class ModelSet<Loaded extends LoadedModel> {
  readonly limits: ModelSetLimits;
  readonly #entries: ReadonlyMap<string, Entry<Loaded>>;
  readonly #nowMs: () => number;
  #again: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;
  readonly #busy = new Set<Promise<void>>();

  constructor(
    rows: readonly ModelRow<Loaded>[],
    limits: ModelSetLimits,
    nowMs: () => number = () => performance.now(),
  ) {
    this.limits = limits;
    this.#nowMs = nowMs;
    this.#entries = new Map(rows.map((row) => [row.name, entryOf(row)]));
  }

  /** States of all models, in their order. */
  states(): readonly ModelStatus[] {
    return [...this.#entries.values()].map(stateOf);
  }

  /** All loaded models, including those that are being unloaded. */
  loaded(): readonly Loaded[] {
    return [...this.#entries.values()].flatMap(({ loaded }) => (loaded === null ? [] : [loaded]));
  }

  /** The model if it is loaded and takes requests; else null. */
  present(name: string): Loaded | null {
    const entry = this.#entries.get(name)!;
    return entry.phase === "in" ? entry.loaded : null;
  }

  /** The loaded model for the holder of a lease. */
  expectPresent(name: string): Loaded {
    const { loaded } = this.#entries.get(name)!;
    if (loaded === null) throw new Error(`the model ${name} is used without a lease`);
    return loaded;
  }

  /** Sets, from now on, how long the model stays loaded without requests. */
  keep(name: string, keepAliveMs: number): void {
    const entry = this.#entries.get(name)!;
    entry.keepAliveMs = keepAliveMs;
    this.#decide();
  }

  /**
   * Resolves when the model is loaded. Rejects with an ApiError if the model cannot be loaded, was not loaded
   * in time, or the client has disconnected.
   */
  use(
    name: string,
    signal: AbortSignal | null = null,
    onLoading: OnLoading = () => {},
  ): Promise<Lease<Loaded>> {
    const entry = this.#entries.get(name)!;
    if (entry.phase === "in" && !this.#isClosed) return Promise.resolve(this.#lease(entry));
    return this.#wait(entry, signal, onLoading);
  }

  /** Keeps a loaded model from being freed until the lease ends, even one that is being unloaded. */
  hold(loaded: Loaded): Lease<Loaded> {
    return this.#lease([...this.#entries.values()].find((entry) => entry.loaded === loaded)!);
  }

  /** Refuses requests that wait, and loads no more models. */
  refuse(): void {
    this.#isClosed = true;
    clearTimeout(this.#again);
    const draining = unavailable("draining", "the server is shutting down and takes no new requests", 5);
    for (const { waiting } of this.#entries.values()) {
      for (const { reject } of waiting) reject(draining);
      waiting.clear();
    }
  }

  /** Refuses requests that wait, and closes all models. */
  async close(): Promise<void> {
    this.refuse();
    while (this.#busy.size > 0) await Promise.all(this.#busy);
    for (const entry of this.#entries.values()) await this.#close(entry);
  }

  async #wait(
    entry: Entry<Loaded>,
    signal: AbortSignal | null,
    onLoading: OnLoading,
  ): Promise<Lease<Loaded>> {
    const { name } = entry.row;
    const { waitMs, waitingMax } = this.limits;
    if (entry.waiting.size >= waitingMax)
      throw unavailable(
        "server_overloaded",
        `${waitingMax} requests wait for the model ${name} already, and no more may`,
        this.#retrySeconds(entry),
      );
    if (entry.phase === "out" && entry.waiting.size === 0) expectChecked(entry.row);
    const turn = Promise.withResolvers<Lease<Loaded>>();
    const waiting = { sinceMs: this.#nowMs(), onLoading, resolve: turn.resolve, reject: turn.reject };
    entry.waiting.add(waiting);
    const giveUp = (refusal: ApiError): void => {
      // Removed at once: a lease for a request that has ended would never end.
      if (entry.waiting.delete(waiting)) turn.reject(refusal);
    };
    const unheed = signal === null ? () => {} : whenAborted(signal, () => giveUp(clientGone()));
    const timer = setTimeout(() => giveUp(this.#tooLate(entry)), waitMs);
    this.#decide();
    try {
      return await turn.promise;
    } finally {
      clearTimeout(timer);
      unheed();
    }
  }

  #tooLate(entry: Entry<Loaded>): ApiError {
    const { name, bytes } = entry.row;
    const { waitMs, memoryBytes } = this.limits;
    const others = this.states().filter((state) => state.phase !== "out" && state.name !== name);
    const taken =
      others.length === 0
        ? ""
        : `; of the ${formatBytes(memoryBytes)} of --memory ${formatBytes(residentBytes(others))} are taken by ${others.map((state) => state.name).join(", ")}`;
    return unavailable(
      "loading",
      `the model ${name} takes ${formatBytes(bytes)} and was not loaded within the ${waitMs / 1000} s of --model-wait-s${taken}`,
      this.#retrySeconds(entry),
    );
  }

  /**
   * Estimated seconds until the model is loaded: its load, after the models that are loading or being
   * unloaded.
   */
  #retrySeconds(entry: Entry<Loaded>): number {
    const others = [...this.#entries.values()].filter(
      ({ phase }) => phase === "loading" || phase === "leaving",
    );
    const ms = others.reduce((sum, { loadMs }) => sum + loadMs, entry.loadMs);
    return Math.max(1, Math.ceil(ms / 1000));
  }

  #lease(entry: Entry<Loaded>): Lease<Loaded> {
    const loaded = entry.loaded!;
    entry.leases += 1;
    entry.usedMs = this.#nowMs();
    let hasEnded = false;
    return {
      loaded,
      end: () => {
        if (hasEnded) return;
        hasEnded = true;
        if (entry.leases > 1) this.#ended(entry);
        // A streamed response outlives its lease: the last lease ends when the model is idle.
        else void loaded.whenIdle().then(() => this.#ended(entry));
      },
    };
  }

  #ended(entry: Entry<Loaded>): void {
    entry.leases -= 1;
    entry.usedMs = this.#nowMs();
    this.#decide();
  }

  #decide(): void {
    if (this.#isClosed) return;
    clearTimeout(this.#again);
    const nowMs = this.#nowMs();
    const { load, leave, againMs } = decideResidency(this.states(), this.limits.memoryBytes, nowMs);
    for (const name of leave) this.#entries.get(name)!.phase = "leaving";
    for (const name of load) this.#run(this.#load(this.#entries.get(name)!));
    for (const entry of this.#entries.values()) {
      if (entry.phase === "leaving" && entry.leases === 0 && entry.loaded !== null)
        this.#run(this.#leave(entry));
    }
    if (againMs === null) return;
    this.#again = setTimeout(
      () => this.#decide(),
      Math.min(Math.max(1, Math.ceil(againMs - nowMs)), 2 ** 31 - 1),
    );
    this.#again.unref();
  }

  #run(work: Promise<void>): void {
    this.#busy.add(work);
    void work.finally(() => {
      this.#busy.delete(work);
      this.#decide();
    });
  }

  async #load(entry: Entry<Loaded>): Promise<void> {
    entry.phase = "loading";
    const startedMs = this.#nowMs();
    try {
      const loaded = await entry.row.load((share) => {
        entry.loadedShare = share;
        for (const { onLoading } of entry.waiting) onLoading(share);
      });
      entry.loaded = loaded;
      entry.phase = "in";
      entry.loadedMs = this.#nowMs();
      entry.usedMs = entry.loadedMs;
      entry.loadMs = entry.loadedMs - startedMs;
      void loaded.lost.then((reason) => this.#lost(entry, loaded, reason));
      for (const { resolve } of entry.waiting) resolve(this.#lease(entry));
    } catch (error) {
      entry.phase = "out";
      const refusal = loadFailed(entry.row.name, error);
      for (const { reject } of entry.waiting) reject(refusal);
    }
    entry.waiting.clear();
    entry.loadedShare = null;
  }

  async #leave(entry: Entry<Loaded>): Promise<void> {
    await this.#close(entry);
    entry.phase = "out";
    entry.keepAliveMs = entry.row.keepAliveMs;
  }

  async #close(entry: Entry<Loaded>): Promise<void> {
    const { loaded } = entry;
    entry.loaded = null;
    await loaded?.close();
  }

  #lost(entry: Entry<Loaded>, loaded: Loaded, reason: string): void {
    if (entry.loaded !== loaded) return;
    console.error(`The model ${entry.row.name} has lost its last engine and is dropped: ${reason}`);
    entry.phase = "leaving";
    this.#decide();
  }
}

function entryOf<Loaded extends LoadedModel>(row: ModelRow<Loaded>): Entry<Loaded> {
  return {
    row,
    waiting: new Set(),
    phase: "out",
    loaded: null,
    loadedShare: null,
    leases: 0,
    loadMs: row.loadMs,
    loadedMs: 0,
    usedMs: 0,
    keepAliveMs: row.keepAliveMs,
  };
}

function stateOf<Loaded extends LoadedModel>(entry: Entry<Loaded>): ModelStatus {
  const { row, waiting, phase, leases, loadMs, loadedMs, usedMs, keepAliveMs, loadedShare } = entry;
  const sinceMs = Math.min(...[...waiting].map((one) => one.sinceMs));
  return {
    name: row.name,
    bytes: row.bytes,
    isPinned: row.isPinned,
    phase,
    users: leases,
    waiting: waiting.size,
    waitingSinceMs: waiting.size === 0 ? null : sinceMs,
    loadMs,
    loadedMs,
    usedMs,
    keptUntilMs: usedMs + keepAliveMs,
    loadedShare,
  };
}

function expectChecked({ name, check }: Pick<ModelRow<LoadedModel>, "name" | "check">): void {
  try {
    check();
  } catch (error) {
    throw loadFailed(name, error);
  }
}

/** Seconds after which a client may try again to load a model whose load has failed. */
const FAILED_RETRY_SECONDS = 30;

function loadFailed(name: string, error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return unavailable("loading", `the model ${name} cannot be loaded: ${reason}`, FAILED_RETRY_SECONDS);
}
