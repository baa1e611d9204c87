import type { Cancel, Clock } from "../../base/clock.ts";
import { computeMs } from "../cache/tier-prices.ts";
import type { SequenceId } from "../core.ts";
import type { DeviceSpec } from "../device.ts";
import type { Fleet } from "../fleet/fleet.ts";
import type { SessionPolicy } from "../policy.ts";
import { Room } from "./keeping-room.ts";
import { MemoryTurnover } from "./memory-turnover.ts";
import type { PastPrompt } from "./prompt-history.ts";
import type { KeepingTime } from "./return-times.ts";
import type {
  Ending,
  NamedPrompt,
  Session,
  SessionSign,
  SessionTable,
  Turn,
  Waiting,
} from "./session-table.ts";

/** Milliseconds between two decisions about all sessions at least. */
const SETTLE_MS = 20;
/** Safety factor on the price of memory: estimated return times err more than prices. */
const CAUTION = 3;
/** Least gain of keeping, as a share of the time that a return saves. */
const GAIN_LEAST = 0.1;

/** Callbacks that count events of sessions. */
export interface SessionObserver {
  began(by: SessionSign): void;
  /** `kept`: its pages are protected from now on. `returned`: its next prompt came. `given_up`: protection has ended. */
  kept(event: KeepingEvent): void;
}

export const keepingEvents = ["kept", "returned", "given_up"] as const;

export type KeepingEvent = (typeof keepingEvents)[number];

/** The parts of a server that keep its sessions. */
export interface KeeperParts {
  readonly fleet: Pick<Fleet, "expect" | "extend" | "forget" | "loads" | "estimated">;
  readonly specs: readonly DeviceSpec[];
  readonly clock: Clock;
  readonly table: SessionTable;
  readonly policy: SessionPolicy;
  readonly observer: SessionObserver;
}

/** A session whose pages a prefix hint protects. */
interface Kept {
  readonly hint: SequenceId;
  readonly past: PastPrompt;
}

/** A waiting session that is worth keeping. */
interface Candidate {
  readonly session: Session;
  readonly waiting: Waiting;
  readonly untilMs: number;
  /** Milliseconds that keeping it saves on average, per page and millisecond. */
  readonly value: number;
}

/**
 * Keeps the pages of sessions between an answer and the next prompt, by prefix hints (Continuum, arXiv:2511.02230,
 * pins them for a time). The cache evicts their pages after unprotected ones, and still gives them to waiting
 * sequences. If the answer awaits a tool, the hint is warmed: evicted pages are loaded or computed again in time.
 *
 * The keeper protects a session for as long as a return is likelier than a read of an average page. Sessions that
 * save the most per page come first, within the pages that running sequences leave, and each tenant within its share.
 */
export class SessionKeeper {
  readonly #parts: KeeperParts;
  readonly #turnovers: readonly MemoryTurnover[];
  /** Kept sessions by id. */
  readonly #kept = new Map<number, Kept>();
  #settledMs = Number.NEGATIVE_INFINITY;
  /** True if a turn has ended since. */
  #hasEnded = false;
  #isClosed = false;
  #cancel: Cancel = () => {};

  constructor(parts: KeeperParts) {
    this.#parts = parts;
    this.#turnovers = parts.specs.map(() => new MemoryTurnover());
  }

  /** Ids of the sessions whose pages are protected. */
  get kept(): readonly number[] {
    return [...this.#kept.keys()];
  }

  /** Finds the session of a prompt that is about to be submitted. */
  begin(prompt: NamedPrompt): Turn {
    const { fleet, table, clock, observer } = this.#parts;
    const turn = table.begin(prompt, clock.nowMs());
    observer.began(turn.by);
    for (const [engine, turnover] of this.#turnovers.entries()) {
      turnover.measure(fleet.loads()[engine]!, clock.nowMs());
      turnover.asked(familyOf(turn.session), prompt.tokens.length, turn.knownTokens);
    }
    // Decides first, so that the subagent evicts sessions that are no longer kept, not its agent.
    if (turn.place.parent !== null && this.#hasEnded) this.#settle();
    return turn;
  }

  /** Records that the turn's sequence was submitted: its own waiter protects the prefix from now on. */
  submitted({ place: { id, parent } }: Turn): void {
    this.#drop(id, "returned");
    const kept = parent === null ? undefined : this.#kept.get(parent);
    // Renews the parent's hint, which makes its prefix the most recently used one.
    if (kept !== undefined) this.#parts.fleet.extend(kept.hint, kept.past.tokens.values);
  }

  /** Records the end of a turn's answer; see `SessionTable.end`. */
  ended(turn: Turn, past: PastPrompt | null, ending: Ending): void {
    const { table, clock } = this.#parts;
    table.end(turn, past, ending, clock.nowMs());
    this.#hasEnded = true;
    const waitMs = this.#settledMs + SETTLE_MS - clock.nowMs();
    if (waitMs <= 0) this.#settle();
    else this.#settleIn(waitMs);
  }

  /** Decides nothing any more: the engines end. */
  close(): void {
    this.#isClosed = true;
    this.#cancel();
  }

  #settleIn(delayMs: number): void {
    this.#cancel();
    this.#cancel = this.#parts.clock.after(delayMs, () => this.#settle());
  }

  /** Decides anew which sessions are kept. */
  #settle(): void {
    if (this.#isClosed) return;
    const { clock, table } = this.#parts;
    const nowMs = clock.nowMs();
    this.#settledMs = nowMs;
    this.#hasEnded = false;
    const wanted = this.#affordable(this.#candidates(nowMs));
    for (const id of [...this.#kept.keys()]) {
      const waiting = table.find(id)?.waiting ?? null;
      if (
        !wanted.some(({ session }) => session.place.id === id) ||
        this.#kept.get(id)!.past !== waiting?.past
      )
        this.#drop(id, "given_up");
    }
    for (const { session, waiting } of wanted) this.#keep(session, waiting);
    const nextMs = Math.min(...wanted.map(({ untilMs }) => untilMs));
    if (nextMs < Number.POSITIVE_INFINITY) this.#settleIn(Math.max(SETTLE_MS, nextMs - nowMs));
    else this.#cancel();
  }

  #candidates(nowMs: number): Candidate[] {
    const { fleet, specs, table, policy } = this.#parts;
    const loads = fleet.loads();
    const candidates: Candidate[] = [];
    for (const session of table.all) {
      const { waiting } = session;
      if (waiting === null) continue;
      const { past, sinceMs } = waiting;
      if (!table.history.has(past) || past.isLost) {
        session.waiting = null;
        continue;
      }
      const elapsedMs = nowMs - sinceMs;
      const { pages: all, pageTokens } = specs[past.engine]!;
      const pages = Math.ceil(past.tokens.length / pageTokens);
      // The others have the rest of the memory, which is evicted sooner.
      const turnover = this.#turnovers[past.engine]!;
      const averageRent = turnover.rent(loads[past.engine]!, familyOf(session), nowMs);
      const rent = (CAUTION * averageRent * all) / Math.max(1, all - pages);
      const { untilMs, gainMs, keptMs } = keepingTime(policy, table, session, waiting, elapsedMs, rent);
      if (gainMs < GAIN_LEAST || untilMs <= elapsedMs) continue;
      const savedMs = computeMs(fleet.estimated[past.engine]!, past.tokens.length, 0);
      const value = (gainMs * savedMs) / (pages * keptMs);
      candidates.push({ session, waiting, untilMs: sinceMs + untilMs, value });
    }
    return candidates.sort((a, b) => b.value - a.value);
  }

  /**
   * The candidates, in order, for which there are pages besides those of running sessions. An agent that does not fit
   * beside its running subagents is left out, as they are read sooner.
   */
  #affordable(candidates: readonly Candidate[]): readonly Candidate[] {
    const { specs, table } = this.#parts;
    const tenants = new Set([...table.all].map(({ tenant }) => tenant)).size;
    const rooms = specs.map(({ pages, pageTokens }) => new Room(pages, pageTokens, tenants));
    for (const { running, engine, lastTokens, tenant, salt, adapter } of table.all)
      if (running > 0 && engine !== null) rooms[engine]!.use({ tenant, salt, adapter, tokens: lastTokens });
    return candidates.filter(({ session: { tenant, salt, adapter }, waiting: { past } }) =>
      rooms[past.engine]!.take({ tenant, salt, adapter, tokens: past.tokens }),
    );
  }

  #keep({ place: { id }, salt: cacheSalt, adapter }: Session, { past, awaitsTool }: Waiting): void {
    if (this.#kept.has(id)) return;
    const { fleet, observer } = this.#parts;
    const { values: tokens } = past.tokens;
    const hint = fleet.expect({
      tokens,
      cacheSalt,
      adapter,
      program: null,
      isWarmed: awaitsTool,
      engine: past.engine,
    });
    this.#kept.set(id, { hint, past });
    observer.kept("kept");
  }

  #drop(id: number, event: KeepingEvent): void {
    const kept = this.#kept.get(id);
    if (kept === undefined) return;
    this.#kept.delete(id);
    this.#parts.fleet.forget(kept.hint);
    this.#parts.observer.kept(event);
  }
}

/** The agent of a session. Subagents have none of their own. */
function familyOf({ place: { id, parent } }: Session): number {
  return parent ?? id;
}

/** The time for which a policy keeps a session, counted from its answer. The gain is that of a saved millisecond. */
function keepingTime(
  policy: SessionPolicy,
  table: SessionTable,
  session: Session,
  waiting: Waiting,
  elapsedMs: number,
  rent: number,
): KeepingTime {
  if (policy.kind === "baseline") {
    const untilMs = policy.keepMs(waiting.awaitsTool);
    return { untilMs, gainMs: 1, keptMs: untilMs };
  }
  return table.timesOf(session, waiting).worth(elapsedMs, 1, rent);
}
