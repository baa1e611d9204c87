/** GET /state/stream: the server's state as server-sent events. */
import type { CacheSnapshot } from "../../scheduler/cache/cache-snapshot.ts";
import type { QueueRow } from "../../scheduler/fleet/present-sequences.ts";
import type { EngineLoad } from "../../scheduler/messages.ts";
import type { RequestRecords } from "../explain/request-records.ts";
import { RunningRequests } from "../explain/running-requests.ts";
import { keyName, type UsageRow } from "../usage/use.ts";
import type { ActivityLog } from "./activity.ts";
import type { CacheSaltFor } from "./auth.ts";
import { ApiError, badRequest, quote } from "./errors.ts";
import type { Lifecycle } from "./lifecycle.ts";
import { RecentQuantiles } from "./recent-quantiles.ts";
import type { Call } from "./route.ts";
import type { ServerFacts, Snapshot } from "./state.ts";
import {
  type CacheNow,
  type EngineNow,
  type FactsNow,
  type KeyHits,
  type ListEntry,
  type ListView,
  type LiveNow,
  listViews,
  type StateEvent,
  type StateView,
  shownLoad,
  stateViews,
} from "./state-events.ts";
import { ResponseStream, type StreamLimits, sseEvent, sseFraming } from "./stream.ts";
import type { Latencies } from "./telemetry.ts";

/** Streams open at once, of all clients together. */
const STREAMS_MAX = 64;
/** Milliseconds between two reads ("looks") of the state, and number of looks that the quantiles cover. */
const LOOK_MS = 500;
const QUANTILE_LOOKS = 20;
/** Maximum steps in an event, of all engines; each engine has at least STEPS_MIN of them. */
const STEPS_MAX = 1024;
const STEPS_MIN = 8;
const QUEUE_ROWS_MAX = 12;
const PLACEMENTS_SHOWN = 5;
const REQUESTS_MAX = 50;
/** Looks at the state for each read of a list. */
const LIST_LOOKS = 2;
/** Looks at the state for each snapshot of the prefix caches. */
const CACHE_LOOKS = 4;
/** Least time between two snapshots of one API key's nodes: a little less than the interval of one stream. */
const OWN_CACHE_MS = (CACHE_LOOKS - 1) * LOOK_MS;
/** Maximum nodes in a snapshot, of all engines; each engine may have at least NODES_MIN. */
const NODES_MAX = 2000;
const NODES_MIN = 40;
/** Maximum evictions in an event, of all engines; each engine may have at least EVICTIONS_MIN. */
const EVICTIONS_MAX = 256;
const EVICTIONS_MIN = 4;
/** API keys whose cache hits an event holds. */
const KEYS_MAX = 20;

/** Sources of the state. A server of several models joins those of its models. */
export interface StateSources {
  readonly facts: () => ServerFacts;
  readonly snapshot: () => Snapshot;
  readonly activities: () => readonly ActivityLog[];
  /**
   * Asks all engines for snapshots of their prefix caches, which arrive in `activities`. `owner`: beginning of the
   * cache salts whose nodes the snapshots hold; null: all nodes.
   */
  readonly inspect: (nodesMax: number, owner: string | null) => void;
  readonly cacheSaltFor: CacheSaltFor;
  readonly queue: () => readonly QueueRow[];
  /** Use of today; `tenant` null: of all keys. */
  readonly keyUse: (tenant: string | null) => readonly UsageRow[];
  readonly latencies: () => readonly Latencies[];
  readonly requestRecords: Pick<RequestRecords, "running">;
  readonly lifecycle: Pick<Lifecycle, "refusal">;
  readonly limits: StreamLimits;
  /** Readers of the lists' entries, with the parameters of the call. They throw ApiError. */
  readonly lists: Readonly<Record<ListView, (call: Call) => { readonly data: readonly ListEntry[] }>>;
}

/** Streams of the state. Each one has a timer, and computes nothing while its client reads too slowly. */
export class StateStreams {
  readonly #sources: StateSources;
  /** Time of the last snapshot request by owner. */
  readonly #askedMs = new Map<string, number>();
  #open = 0;

  constructor(sources: StateSources) {
    const inspect: StateSources["inspect"] = (nodesMax, owner) => {
      if (owner === null || this.#isFirst(owner)) sources.inspect(nodesMax, owner);
    };
    this.#sources = { ...sources, inspect };
  }

  open(call: Call): Response {
    const { request, reply } = call;
    const asked = new URL(request.url).searchParams.get("view") ?? "facts";
    const view = stateViews.find((one) => one === asked);
    if (view === undefined)
      throw badRequest(`view is ${stateViews.join(" or ")}, not ${quote(asked)}`, "view");
    if (this.#open >= STREAMS_MAX) throw tooMany();
    const listed = listViews.find((one) => one === view);
    const list = listed === undefined ? null : new ListLook(listed, () => this.#sources.lists[listed](call));
    list?.answer(); // refuses a wrong parameter
    this.#open += 1;
    const write = (event: StateEvent) => stream.write(sseEvent(JSON.stringify(event)));
    const look = new Look(this.#sources, view, call, write, list);
    const stream = new ResponseStream(reply, sseFraming, this.#sources.limits, {
      pause: () => look.pause(),
      resume: () => look.resume(),
      abort: (by) => {
        look.pause();
        this.#open -= 1;
        if (by === "slowReader") stream.end();
      },
    });
    look.resume();
    return stream.response();
  }

  /** Limits the snapshots of one owner: a key may open many streams, and each snapshot takes engine time. */
  #isFirst(owner: string): boolean {
    const nowMs = performance.now();
    if (nowMs - (this.#askedMs.get(owner) ?? Number.NEGATIVE_INFINITY) < OWN_CACHE_MS) return false;
    this.#askedMs.set(owner, nowMs);
    return true;
  }
}

/** State as one client sees it. */
class Look {
  readonly #sources: StateSources;
  readonly #view: StateView;
  readonly #sender: Pick<Call, "tenant" | "isAdmin">;
  readonly #write: (event: StateEvent) => void;
  readonly #firstToken = new RecentQuantiles(QUANTILE_LOOKS);
  readonly #betweenTokens = new RecentQuantiles(QUANTILE_LOOKS);
  readonly #requests = new RunningRequests();
  /** Number of the next step to send, by engine. */
  readonly #nextSteps = new Map<string, number>();
  #timer: ReturnType<typeof setInterval> | undefined;
  #facts = "";
  #looks = 0;
  #caches: readonly (CacheSnapshot | null)[] = [];
  /** JSON of the last `cache` event. */
  #told = "";
  readonly #list: ListLook | null;

  constructor(
    sources: StateSources,
    view: StateView,
    sender: Pick<Call, "tenant" | "isAdmin">,
    write: (event: StateEvent) => void,
    list: ListLook | null,
  ) {
    this.#list = list;
    this.#sources = sources;
    this.#view = view;
    this.#sender = sender;
    this.#write = write;
  }

  resume(): void {
    this.#look();
    this.#timer = setInterval(() => this.#look(), LOOK_MS);
  }

  pause(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const facts = this.#factsNow();
    const text = JSON.stringify(facts);
    if (text !== this.#facts) this.#write({ kind: "facts", facts });
    this.#facts = text;
    const showsLive = this.#view === "live" || this.#view === "top";
    if (showsLive && this.#sender.isAdmin) this.#write({ kind: "live", ...this.#live() });
    if (this.#view === "top" && this.#sender.isAdmin) {
      const requests = this.#requests.look(this.#sources.requestRecords.running(REQUESTS_MAX));
      this.#write({ kind: "requests", requests });
    }
    if (this.#view === "cache") this.#lookAtCaches();
    if (this.#list !== null && this.#looks++ % LIST_LOOKS === 0) {
      const change = this.#list.look();
      if (change !== null) this.#write(change);
    }
  }

  #lookAtCaches(): void {
    const { tenant, isAdmin } = this.#sender;
    const owner = isAdmin ? null : this.#sources.cacheSaltFor(tenant, "");
    const caches = this.#cachesOf(owner);
    const isDue = this.#looks++ % CACHE_LOOKS === 0;
    if (isDue && caches.length > 0)
      this.#sources.inspect(Math.max(NODES_MIN, Math.floor(NODES_MAX / caches.length)), owner);
    if (!isDue && caches.every((cache, engine) => cache === this.#caches[engine])) return;
    this.#caches = caches;
    const keys = hitsOf(this.#sources.keyUse(isAdmin ? null : tenant));
    const evictionsMax = Math.max(EVICTIONS_MIN, Math.floor(EVICTIONS_MAX / Math.max(1, caches.length)));
    const now = {
      caches: caches.map((cache) => (cache === null ? null : cacheNow(cache, evictionsMax))),
      isWithheld: owner === "",
      keys,
    };
    const text = JSON.stringify(now);
    if (text !== this.#told) this.#write({ kind: "cache", ...now });
    this.#told = text;
  }

  /** Snapshots by engine; none for "", the owner if keys share their prefixes. */
  #cachesOf(owner: string | null): readonly (CacheSnapshot | null)[] {
    if (owner === "") return [];
    return this.#sources.activities().flatMap((log) => (owner === null ? log.caches : log.ownCaches(owner)));
  }

  #factsNow(): FactsNow {
    const { version, model, contextMax, status } = this.#sources.facts();
    const refusal = this.#sources.lifecycle.refusal()?.message ?? null;
    return { version, model, contextMax, status, refusal, isAdmin: this.#sender.isAdmin };
  }

  #live(): LiveNow {
    const { snapshot, activities, queue, latencies } = this.#sources;
    const { timeMs, engines, placements, jobs, computed } = snapshot();
    const logs = activities();
    const steps = logs.flatMap((log, at) => this.#steps(log, at, engines.length));
    const counts = latencies();
    return {
      timeMs,
      targetMs: logs[0]?.targetMs ?? null,
      engines: engines.map(
        ({ device, load }, engine): EngineNow => ({
          name: device.name,
          load: shown(load),
          steps: steps[engine] ?? [],
        }),
      ),
      queue: queue().slice(0, QUEUE_ROWS_MAX),
      firstToken: this.#firstToken.look(counts.map(({ firstToken }) => firstToken)),
      betweenTokens: this.#betweenTokens.look(counts.map(({ betweenTokens }) => betweenTokens)),
      placements: placements.slice(0, PLACEMENTS_SHOWN),
      jobs,
      computed,
    };
  }

  #steps(log: ActivityLog, at: number, engines: number): EngineNow["steps"][] {
    const max = Math.max(STEPS_MIN, Math.floor(STEPS_MAX / engines));
    return Array.from({ length: log.engines }, (_, engine) => {
      const key = `${at} ${engine}`;
      const { steps, next } = log.stepsFrom(engine, this.#nextSteps.get(key) ?? 0, max);
      this.#nextSteps.set(key, next);
      return steps;
    });
  }
}

/** List as one client sees it. */
class ListLook {
  readonly #view: ListView;
  readonly #read: () => { readonly data: readonly ListEntry[] };
  /** JSON of the entries sent before, by id, and of the last event without entries. */
  #told = new Map<string, string>();
  #frame = "";

  constructor(view: ListView, read: () => { readonly data: readonly ListEntry[] }) {
    this.#view = view;
    this.#read = read;
  }

  /** The change since the last look; null: there is none. */
  look(): StateEvent | null {
    const { data, problem } = this.answer();
    const told = new Map(data.map((entry) => [entry.id, JSON.stringify(entry)]));
    const entries = data.filter(({ id }) => told.get(id) !== this.#told.get(id));
    const frame = { kind: "list", view: this.#view, ids: [...told.keys()], problem } as const;
    const text = JSON.stringify(frame);
    if (entries.length === 0 && text === this.#frame) return null;
    this.#told = told;
    this.#frame = text;
    return { ...frame, entries };
  }

  /** Entries of the list, or an error message in place of them. Throws ApiError for a wrong parameter. */
  answer(): { readonly data: readonly ListEntry[]; readonly problem: string | null } {
    try {
      return { data: this.#read().data, problem: null };
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 400) throw error;
      return { data: [], problem: error.message };
    }
  }
}

function hitsOf(rows: readonly UsageRow[]): readonly KeyHits[] {
  return rows
    .map(({ tenant, promptTokens, cachedTokens }) => ({ key: keyName(tenant), promptTokens, cachedTokens }))
    .filter(({ promptTokens }) => promptTokens > 0)
    .sort((a, b) => b.promptTokens - a.promptTokens)
    .slice(0, KEYS_MAX);
}

/** Snapshot for a client: names API keys in place of cache keys, which hold secret cache salts. */
function cacheNow({ beginnings, ...cache }: CacheSnapshot, evictionsMax: number): CacheNow {
  const evictions = cache.evictions.slice(0, evictionsMax).map(({ of, by, ...one }) => ({
    ...one,
    of: keyName(tenantOf(of)),
    by: keyName(tenantOf(by)),
    isOwn: of === by,
  }));
  return { ...cache, evictions, showsText: beginnings !== null };
}

/** Tenant in a cache key of an adapter, a tenant and a salt; "" if it names none. */
function tenantOf(key: string): string {
  return /^[^:]*:([0-9a-f]{64}):/.exec(key)?.[1] ?? "";
}

function shown(load: EngineLoad): EngineNow["load"] {
  return Object.fromEntries(shownLoad.map((name) => [name, load[name]])) as EngineNow["load"];
}

function tooMany(): ApiError {
  const message = `${STREAMS_MAX} clients look at the state already, and more are not allowed`;
  return new ApiError(503, "overloaded_error", message, { apiCode: "too_many_state_streams" });
}
