/** A fleet of one engine with sessions, for tests: runs turns one after the other, or beside each other. */
import type { TokenId } from "../../base/token.ts";
import { SimulatedDevice } from "../../gpu/simulated/device.ts";
import type { AdapterId, EngineId, SessionPlace } from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import { Fleet } from "../../scheduler/fleet/fleet.ts";
import { HashedTokens } from "../../scheduler/session/hashed-tokens.ts";
import type { PastPrompt } from "../../scheduler/session/prompt-history.ts";
import { type KeepingEvent, SessionKeeper } from "../../scheduler/session/session-keeper.ts";
import {
  noNames,
  type SessionNames,
  type SessionSign,
  SessionTable,
  type Turn,
} from "../../scheduler/session/session-table.ts";
import { deviceSpec, sequenceSpec } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";

/** A prompt of a client. */
export interface Asked {
  readonly tenant?: string;
  readonly salt?: string;
  readonly adapter?: AdapterId;
  readonly names?: Partial<SessionNames>;
  readonly tools?: readonly string[];
  readonly tokensMax?: number;
  /** False: its answer never becomes a part of the history. */
  readonly isKept?: boolean;
}

/** Outcome of a prompt so far. */
export interface Told {
  readonly place: SessionPlace;
  readonly by: SessionSign;
  /** Tokens found in the cache; null: it has not begun. */
  cached: number | null;
  /** Prompt and answer; null: it has not ended. */
  whole: readonly TokenId[] | null;
}

export class SessionRig {
  readonly clock = new ManualClock();
  readonly table: SessionTable;
  readonly keeper: SessionKeeper;
  readonly fleet: Fleet;
  readonly events: KeepingEvent[] = [];
  readonly #engine: Engine;

  constructor(pages: number, table = new SessionTable()) {
    const device = deviceSpec({ pages, pageTokens: 16, contextMax: pages * 16 });
    const cost = linearCost(1, 0.1);
    const simulated = new SimulatedDevice(device, this.clock, cost);
    this.#engine = new Engine(
      simulated,
      this.clock,
      { integrity: "always", kvEvents: true },
      (report) => this.fleet.report(0 as EngineId, report),
      cost,
    );
    this.fleet = new Fleet([{ link: { send: (message) => this.#engine.receive(message) }, spec: device }], {
      clock: this.clock,
    });
    this.table = table;
    this.keeper = new SessionKeeper({
      fleet: this.fleet,
      specs: [device],
      clock: this.clock,
      table,
      policy: { kind: "priced" },
      observer: { began: () => {}, kept: (event) => this.events.push(event) },
    });
  }

  /** Submits a prompt. */
  begin(tokens: readonly TokenId[], asked: Asked = {}): Told {
    const { tenant = "", names = {}, tools = [], tokensMax = 4, isKept = true } = asked;
    const salt = `${tenant}:${asked.salt ?? ""}`;
    const { adapter = 0 } = asked;
    const hashed = HashedTokens.of(tokens);
    const shared = { tenant, salt, adapter };
    const turn: Turn = this.keeper.begin({ ...shared, tokens: hashed, names: { ...noNames, ...names } });
    const told: Told = { place: turn.place, by: turn.by, cached: null, whole: null };
    let past: PastPrompt | null = null;
    const { history } = this.table;
    this.fleet.submit(sequenceSpec(tokens, tokensMax, { cacheSalt: salt, adapter }), {
      onStarted: (cached) => {
        told.cached = cached;
        if (!isKept) return;
        past = {
          ...shared,
          ...{ engine: 0 as EngineId, epoch: 0, session: turn.place.id, tokens: hashed },
          ...{ isRunning: true, isLost: false, endedMs: 0, evictedPages: 0, tenantTokens: 0 },
        };
        history.begin(
          past,
          history.nearest(tenant, hashed, (one) => one.salt === salt && one.adapter === adapter),
        );
      },
      onToken: () => {},
      onFinish: (_, drawn) => {
        told.whole = [...tokens, ...drawn];
        if (past !== null) history.end(past, drawn);
        this.keeper.ended(turn, past, { tools });
      },
    });
    this.keeper.submitted(turn);
    return told;
  }

  /** Runs until all sequences have ended. */
  finish(): void {
    while (this.fleet.active > 0) this.#turn();
  }

  /** Runs one turn after the other. */
  run(tokens: readonly TokenId[], asked: Asked = {}): Told & { readonly whole: readonly TokenId[] } {
    const told = this.begin(tokens, asked);
    this.finish();
    return { ...told, whole: told.whole! };
  }

  /** Lets time pass in which no client sends anything. */
  wait(ms: number): void {
    let isThere = false;
    this.clock.after(ms, () => {
      isThere = true;
    });
    while (!isThere) this.#turn();
  }

  #turn(): void {
    this.#engine.run();
    this.clock.runNext();
  }
}
