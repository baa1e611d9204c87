import type { TokenId } from "../base/token.ts";
import type { SessionPlace } from "../scheduler/core.ts";
import { objectives } from "../scheduler/objective.ts";
import { HashedTokens } from "../scheduler/session/hashed-tokens.ts";
import type { PastPrompt } from "../scheduler/session/prompt-history.ts";
import { type KeeperParts, SessionKeeper } from "../scheduler/session/session-keeper.ts";
import { noNames, SessionTable, type Turn } from "../scheduler/session/session-table.ts";
import type { SimulatedClient } from "./client.ts";

interface RunningTurn {
  readonly turn: Turn;
  past: PastPrompt | null;
}

/** Counts of a simulation's sessions. */
export interface SessionCounts {
  turns: number;
  kept: number;
  returned: number;
}

/**
 * Finds and retains the sessions of simulated clients as a server does: by their tokens, and by their names
 * if the workload has sessions. Calls of programs and offline work belong to none.
 */
export class SimulatedSessions {
  readonly #table = new SessionTable();
  readonly #keeper: SessionKeeper;
  readonly #turns = new Map<SimulatedClient, RunningTurn>();
  readonly counts: SessionCounts = { turns: 0, kept: 0, returned: 0 };

  constructor(parts: Omit<KeeperParts, "table" | "observer">) {
    const observer = {
      began: () => {
        this.counts.turns += 1;
      },
      kept: (event: string) => {
        if (event === "kept") this.counts.kept += 1;
        if (event === "returned") this.counts.returned += 1;
      },
    };
    this.#keeper = new SessionKeeper({ ...parts, table: this.#table, observer });
  }

  /** Finds the session of a call that is about to be submitted; null: it belongs to none. */
  begin(client: SimulatedClient, prompt: ArrayLike<TokenId>): SessionPlace | null {
    const { service, cacheSalt: salt, adapter = 0 } = client.arrival;
    if (service.program !== null || objectives[service.objective].isOffline) return null;
    const tokens = HashedTokens.of(prompt);
    const names = { ...noNames, session: nameOf(service.session) };
    const turn = this.#keeper.begin({ tenant: service.tenant, salt, adapter, tokens, names });
    this.#turns.set(client, { turn, past: null });
    return turn.place;
  }

  submitted(client: SimulatedClient): void {
    const running = this.#turns.get(client);
    if (running !== undefined) this.#keeper.submitted(running.turn);
  }

  started(client: SimulatedClient): void {
    const running = this.#turns.get(client);
    if (running === undefined) return;
    const { tokens, session, place } = running.turn;
    const { tenant, salt, adapter } = session;
    const { history } = this.#table;
    running.past = {
      ...{ tenant, salt, adapter, engine: client.engine!, epoch: 0, session: place.id, tokens },
      ...{ isRunning: true, isLost: false, endedMs: 0, evictedPages: 0, tenantTokens: 0 },
    };
    history.begin(
      running.past,
      history.nearest(tenant, tokens, (past) => past.salt === salt),
    );
  }

  ended(client: SimulatedClient): void {
    const running = this.#turns.get(client);
    if (running === undefined) return;
    this.#turns.delete(client);
    const { turn, past } = running;
    if (past !== null) this.#table.history.end(past, client.tokens);
    const tools = client.arrival.ending === "calls" ? ["tool"] : [];
    this.#keeper.ended(turn, client.tokens.length === 0 ? null : past, { tools });
  }
}

/** Session name that a client sends; for a subagent that of its agent. */
function nameOf(session: SessionPlace | null): string | null {
  return session === null ? null : `${session.parent ?? session.id}`;
}
