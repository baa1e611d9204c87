/**
 * Residency policy: decides which models of a server are loaded and which are dropped, so that their planned
 * bytes stay within a limit.
 *
 * Requests for a model that is not loaded wait, and the model of the longest waiting request is loaded next.
 * Idle models make room for it first, the least recently used one before the others. A model in demand makes
 * room once it has been loaded for as long as its load took: of the time in which models in demand take turns,
 * loads take half at most. Then it leaves: it answers the requests that it has, and takes no new ones.
 */

/** Time that a model in demand stays loaded, in loads of itself. */
export const STAY_LOADS = 1;
/** Time after its last request for which a model counts as in demand, in loads of itself. */
export const DEMAND_LOADS = 0.1;

/** State of a model, as far as decisions depend on it. */
export interface ModelState {
  readonly name: string;
  /** Planned memory: weights, KV cache and workspaces. */
  readonly bytes: number;
  /** Time that a load takes: that of the last one, else an estimate. */
  readonly loadMs: number;
  /** "leaving": it takes no new requests, finishes those that it has, and is closed. */
  readonly phase: "out" | "loading" | "in" | "leaving";
  /** Requests that the model computes. */
  readonly users: number;
  /** Arrival of the longest waiting request; null if none waits. */
  readonly waitingSinceMs: number | null;
  /** End of the last load. */
  readonly loadedMs: number;
  /** Last time at which a request began or ended. */
  readonly usedMs: number;
  /** Time to which an idle model stays loaded; infinite for no limit. */
  readonly keptUntilMs: number;
  /** True if the model is never dropped. */
  readonly isPinned: boolean;
}

/** Models to load and to drop now. */
export interface ResidencyDecision {
  readonly load: readonly string[];
  readonly leave: readonly string[];
  /** Time of the next decision if nothing happens before; null for none. */
  readonly againMs: number | null;
}

/** Bytes of all models that are not out. */
export function residentBytes(models: readonly ModelState[]): number {
  return models.reduce((sum, { phase, bytes }) => sum + (phase === "out" ? 0 : bytes), 0);
}

/** Decides for the present states. A caller repeats this after every change, and at `againMs`. */
export function decideResidency(
  models: readonly ModelState[],
  limitBytes: number,
  nowMs: number,
): ResidencyDecision {
  const load: string[] = [];
  const leave = models.filter((model) => isExpired(model, nowMs)).map(({ name }) => name);
  const times = models.filter((model) => isIdle(model)).map(({ keptUntilMs }) => keptUntilMs);
  let freeBytes = limitBytes - residentBytes(models);
  let comingBytes = 0;
  for (const { name, bytes, phase } of models)
    if (phase === "leaving" || leave.includes(name)) comingBytes += bytes;

  const askers = models
    .filter(({ phase, waitingSinceMs }) => phase === "out" && waitingSinceMs !== null)
    .toSorted((a, b) => a.waitingSinceMs! - b.waitingSinceMs!);
  for (const { name, bytes } of askers) {
    if (bytes <= freeBytes) {
      load.push(name);
      freeBytes -= bytes;
      continue;
    }
    // Later askers wait too: else small models could keep a large one out for good.
    const others = models.filter((model) => model.phase === "in" && !leave.includes(model.name));
    const room = roomFor(bytes - freeBytes - comingBytes, others, nowMs);
    leave.push(...room.leave);
    times.push(...room.times);
    break;
  }
  const againMs = Math.min(...times.filter((time) => time > nowMs));
  return { load, leave, againMs: Number.isFinite(againMs) ? againMs : null };
}

/** Models that make room of `bytes`; none if they cannot yet, with the times at which more of them may leave. */
function roomFor(
  bytes: number,
  models: readonly ModelState[],
  nowMs: number,
): { readonly leave: readonly string[]; readonly times: readonly number[] } {
  if (bytes <= 0) return { leave: [], times: [] };
  const movable = models.filter(({ isPinned }) => !isPinned);
  const free = movable.filter((model) => freeFromMs(model) <= nowMs).toSorted(idleFirst);
  const chosen: ModelState[] = [];
  let gained = 0;
  for (const model of free) {
    if (gained >= bytes) break;
    chosen.push(model);
    gained += model.bytes;
  }
  if (gained < bytes) return { leave: [], times: movable.map(freeFromMs) };
  // A large model chosen last can make those chosen before it unnecessary.
  for (const model of chosen.toReversed()) {
    if (gained - model.bytes < bytes) continue;
    chosen.splice(chosen.indexOf(model), 1);
    gained -= model.bytes;
  }
  return { leave: chosen.map(({ name }) => name), times: [] };
}

/** Orders idle models before busy ones, and each by their last use. */
function idleFirst(a: ModelState, b: ModelState): number {
  return Math.min(a.users, 1) - Math.min(b.users, 1) || a.usedMs - b.usedMs;
}

/** Time from which the model may make room for another one. */
function freeFromMs({ users, usedMs, loadMs, loadedMs }: ModelState): number {
  const stayedMs = loadedMs + STAY_LOADS * loadMs;
  return users > 0 ? stayedMs : Math.min(stayedMs, usedMs + DEMAND_LOADS * loadMs);
}

function isIdle({ phase, users, isPinned }: ModelState): boolean {
  return phase === "in" && users === 0 && !isPinned;
}

function isExpired(model: ModelState, nowMs: number): boolean {
  return isIdle(model) && model.keptUntilMs <= nowMs;
}
