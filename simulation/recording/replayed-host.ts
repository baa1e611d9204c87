import type { LoadDone, LowerTier, TierCosts } from "../../scheduler/cache/lower-tier.ts";
import type { Step, StepResult } from "../../scheduler/core.ts";
import type { EngineCosts } from "../../scheduler/cost/cost-model.ts";
import { unknownCost } from "../../scheduler/cost/linear.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { EngineSettings } from "../../scheduler/engine/engine-options.ts";
import type { EngineLink } from "../../scheduler/fleet/fleet.ts";
import { EngineHost, type HostPorts } from "../../scheduler/host/engine-host.ts";
import type { EngineMessage, EngineReport } from "../../scheduler/messages.ts";
import { type EntryOf, planHash } from "../../scheduler/recording/recording.ts";

const LOST = "The device said so when this was recorded.";

/** Engine host whose time, turns, messages and results come from a recording. */
export class ReplayedHost implements EngineLink {
  readonly #host = new EngineHost();
  #ports: HostPorts;
  readonly #nextAnswer: () => number;
  /** Costs of its tier; null: there is none. */
  #tierCosts: TierCosts | null = null;
  /** Loads in flight by their number, and the number of the next one. */
  readonly #loading = new Map<number, LoadDone>();
  #loads = 0;
  readonly #settings: EngineSettings;
  #atMs = 0;
  /** Epoch and cost model of the next engine in this place. */
  #next: { readonly epoch: number; readonly costs: EngineCosts } = { epoch: 0, costs: unknownCost };
  /** Messages that the fleet has sent and no engine has received. */
  #sent: EngineMessage[] = [];
  /** Messages received in the recording and not yet by the engine. */
  #inbox: EngineMessage[] = [];
  /** Reports that the fleet has not received. */
  #reports: EngineReport[] = [];
  /** Step in flight. */
  #flying: { readonly step: Step; readonly done: (result: StepResult) => void } | null = null;
  /** True after a failure, until the recording reaches its loss. */
  isDown = false;

  /** `nextAnswer` returns the next recorded reply of this engine's tier. */
  constructor(spec: DeviceSpec, settings: EngineSettings, nextAnswer: () => number) {
    this.#settings = settings;
    this.#nextAnswer = nextAnswer;
    this.#ports = {
      clock: {
        nowMs: () => this.#atMs,
        // The recording has entries for timer turns like for all others.
        after: () => () => {},
      },
      device: {
        spec,
        start: (step, done) => {
          this.#flying = { step, done };
        },
        close: () => {},
      },
      link: {
        next: () => this.#inbox.shift() ?? null,
        report: (report) => {
          this.#reports.push(report);
        },
      },
    };
  }

  /** Hash of the step in flight; null: none. */
  get plan(): number | null {
    return this.#flying === null ? null : planHash(this.#flying.step);
  }

  send(message: EngineMessage): void {
    this.#sent.push(message);
  }

  /** Returns the next message that the fleet has sent and no engine has received. */
  nextSent(): EngineMessage | null {
    return this.#sent.shift() ?? null;
  }

  nextReport(): EngineReport | null {
    return this.#reports.shift() ?? null;
  }

  /** Sets the cost model, or the epoch, of the next engine here. */
  expect(next: { readonly costs: EngineCosts } | { readonly epoch: number }): void {
    this.#next = { ...this.#next, ...next };
  }

  message({ message, atMs }: EntryOf<"message">): void {
    this.#openAt(atMs);
    this.#inbox.push(message);
    this.#host.receive();
  }

  run({ atMs }: EntryOf<"run">): void {
    this.#openAt(atMs);
    this.#host.turn();
  }

  /** Completes the step in flight. */
  answer({ atMs, result, ...more }: EntryOf<"step">): void {
    this.#openAt(atMs);
    const { done } = this.#flying!;
    this.#flying = null;
    done(result === "done" ? { ...more, kind: result } : { kind: result, reason: LOST });
  }

  /** Sets the costs of the tier here. */
  tierCosts({ costs }: EntryOf<"tierCosts">): void {
    if (this.#tierCosts === null) this.#ports = { ...this.#ports, tier: this.#tier() };
    this.#tierCosts = costs;
  }

  /** Completes a load; false if the engine has not begun it. */
  loaded({ atMs, load, right, fromHost }: EntryOf<"loaded">): boolean {
    this.#openAt(atMs);
    const done = this.#loading.get(load);
    this.#loading.delete(load);
    done?.(right, fromHost);
    return done !== undefined;
  }

  #tier(): LowerTier {
    const costs = (): TierCosts => this.#tierCosts!;
    return {
      get costs() {
        return costs();
      },
      find: () => this.#nextAnswer(),
      loadPageMs: () => this.#nextAnswer(),
      store: () => this.#nextAnswer(),
      findState: () => this.#nextAnswer(),
      storeState: () => this.#nextAnswer(),
      load: (_prompt, _first, _pages, _slot, done) => {
        this.#loading.set(this.#loads, done);
        this.#loads += 1;
      },
    };
  }

  lose(): void {
    this.#host.close();
    this.#loading.clear();
    this.#loads = 0;
    [this.#sent, this.#inbox, this.#reports] = [[], [], []];
    this.#flying = null;
    this.isDown = false;
  }

  /** Starts an engine's life at its first entry. */
  #openAt(atMs: number): void {
    this.#atMs = atMs;
    if (this.#host.engine === null) this.#host.open(this.#ports, { ...this.#next, settings: this.#settings });
  }
}
