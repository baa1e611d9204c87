import type { TokenId } from "../base/token.ts";
import type { EngineId, SampleRow, Step } from "../scheduler/core.ts";
import type { CostModel, EngineCosts } from "../scheduler/cost/cost-model.ts";
import type { Device, DeviceSpec } from "../scheduler/device.ts";
import type { Engine } from "../scheduler/engine/engine.ts";
import type { EngineSettings } from "../scheduler/engine/engine-options.ts";
import type { EngineLink } from "../scheduler/fleet/fleet.ts";
import { EngineHost, type HostPorts } from "../scheduler/host/engine-host.ts";
import type { EngineLoad, EngineMessage, EngineReport } from "../scheduler/messages.ts";
import { engineRecorder, type RecordingSink } from "../scheduler/recording/recorder.ts";
import type { EventClock } from "./event-clock.ts";
import type { DeviceNoise } from "./noise.ts";
import type { EngineRecord } from "./report.ts";
import { type HostSetup, openTiers } from "./simulated-places.ts";
import type { TierSetup } from "./simulated-tier.ts";
import { TimedDevice } from "./timed-device.ts";

/** Parameters of a simulated engine host. */
export interface SimulatedHostSetup {
  readonly engine: EngineId;
  readonly spec: DeviceSpec;
  /** Real cost model of its steps. */
  readonly profile: CostModel;
  /** Returns the cost model that a new engine here starts with. */
  readonly believe: () => EngineCosts;
  /** Noise of the step times; null: none. */
  readonly noise: DeviceNoise | null;
  readonly settings: EngineSettings;
  /** Delay of the link between fleet and engine in one direction, in milliseconds. */
  readonly delayMs: number;
  readonly nextToken: (row: SampleRow) => TokenId;
  /** True if its decodes read a shared page once. */
  readonly sharesReads: boolean;
  /** Lower tiers; null: none. */
  readonly tier: TierSetup | null;
  readonly host?: HostSetup | null;
  /** Sink of a recording; null: none. */
  readonly record: RecordingSink | null;
}

/** Observer of an engine host. */
export interface HostObserver {
  onStep(engine: EngineId, step: Step): void;
  /**
   * Hears that a report reached the fleet. `learnt`: the engine's cost model; null: unchanged for the fleet.
   */
  onReport(engine: EngineId, report: EngineReport, learnt: EngineCosts | null): void;
}

/** State of one engine's life, kept after its loss. */
interface Life {
  readonly device: TimedDevice;
  readonly costs: EngineCosts;
  /** Messages that have arrived and are not received yet. */
  readonly inbox: EngineMessage[];
  load: EngineLoad | null;
}

/**
 * Simulated engine host: its device and its link to the fleet take virtual time. It also carries out the
 * faults.
 */
export class SimulatedHost implements EngineLink {
  readonly id: EngineId;
  readonly spec: DeviceSpec;
  readonly #setup: SimulatedHostSetup;
  readonly #clock: EventClock;
  readonly #observer: HostObserver;
  readonly #host: EngineHost;
  readonly #tier: Pick<HostPorts, "tier">;
  /** Lives in this place; the last one is in the engine host, unless it is lost. */
  readonly #lives: Life[] = [];
  /** Last messages sent, with their time: those of one moment arrive together. */
  #sent: EngineMessage[] = [];
  #sentMs = -1;
  #slowdown = 1;
  #kvEventsToDrop = 0;
  #waitingMax = 0;

  constructor(setup: SimulatedHostSetup, clock: EventClock, observer: HostObserver) {
    const { engine, record } = setup;
    this.id = engine;
    this.spec = setup.spec;
    this.#setup = setup;
    this.#clock = clock;
    this.#observer = observer;
    this.#host = new EngineHost(record === null ? null : engineRecorder(engine, clock, record));
    const tier = openTiers(setup.host ?? null, setup.tier, clock);
    this.#tier = tier === null ? {} : { tier };
    this.open();
  }

  /** Null while the engine is lost. */
  get engine(): Engine | null {
    return this.#host.engine;
  }

  /** Cost model learnt by the last engine here. */
  get costs(): EngineCosts {
    return this.#lives.at(-1)!.costs;
  }

  /** Sends a message; those of one moment arrive together. */
  send(message: EngineMessage): void {
    const life = this.#living();
    if (life === null) return;
    const nowMs = this.#clock.nowMs();
    if (this.#sentMs === nowMs) {
      this.#sent.push(message);
      return;
    }
    const messages = [message];
    this.#sent = messages;
    this.#sentMs = nowMs;
    this.#clock.after(this.#setup.delayMs, () => {
      if (this.#sent === messages) this.#sentMs = -1;
      if (this.#living() !== life) return;
      life.inbox.push(...messages.filter((message) => this.#isReceived(message)));
      this.#host.turn();
    });
  }

  /** Loses the engine with everything in transit to and from it. */
  lose(): void {
    this.#living()?.device.close();
    this.#host.close();
    this.#sentMs = -1;
  }

  /** Opens an engine in an empty place; returns its epoch. */
  open(): number {
    const { spec, profile, believe, noise, settings, nextToken, sharesReads } = this.#setup;
    const clock = this.#clock;
    const took = (ms: number): number => {
      const slowMs = this.#slowdown * ms;
      return noise === null ? slowMs : noise.took(slowMs, clock.nowMs());
    };
    const device = new TimedDevice(spec, clock, profile, took, nextToken, sharesReads);
    const life: Life = { device, costs: believe(), inbox: [], load: null };
    const link = {
      next: () => life.inbox.shift() ?? null,
      report: (report: EngineReport, learnt: EngineCosts | null) => this.#report(life, report, learnt),
    };
    const epoch = this.#lives.length;
    const ports = { link, device: this.#watched(device), clock, ...this.#tier };
    this.#host.open(ports, { epoch, settings, costs: life.costs });
    this.#lives.push(life);
    return epoch;
  }

  /** Makes steps take `factor` times as long from now on. */
  slowDown(factor: number): void {
    this.#slowdown = factor;
  }

  /** Drops the KV events of the next `count` reports that have any. */
  dropKvEvents(count: number): void {
    this.#kvEventsToDrop += count;
  }

  /** Sums over all engines that lived here. */
  record(): EngineRecord {
    const sum = (value: (life: Life) => number): number =>
      this.#lives.reduce((total, life) => total + value(life), 0);
    return {
      steps: sum(({ device }) => device.work.steps),
      busyMs: sum(({ device }) => device.work.busyMs),
      promptTokensComputed: sum(({ device }) => device.work.promptTokens),
      promptTokensCached: sum(({ load }) => load?.prefixHitTotal ?? 0),
      tokensGenerated: sum(({ load }) => load?.generatedTokensTotal ?? 0),
      preemptions: sum(({ load }) => load?.preemptionsTotal ?? 0),
      waitingMax: this.#waitingMax,
      evictedPages: sum(({ load }) => load?.evictedPagesTotal ?? 0),
      tierStoredPages: sum(({ load }) => load?.tierStoredPagesTotal ?? 0),
      tierLoadedPages: sum(({ load }) => load?.tierLoadedPagesTotal ?? 0),
    };
  }

  /** Filters messages: the caches of baselines ignore prefix hints. */
  #isReceived({ kind }: EngineMessage): boolean {
    return kind !== "expect" || (this.#setup.settings.cache ?? null) === null;
  }

  /** Life of the engine that is in the engine host; null: none. */
  #living(): Life | null {
    return this.#host.engine === null ? null : this.#lives.at(-1)!;
  }

  #watched(device: TimedDevice): Device {
    return {
      spec: device.spec,
      start: (step, done) => {
        this.#observer.onStep(this.id, step);
        device.start(step, done);
      },
      close: () => device.close(),
    };
  }

  #report(life: Life, report: EngineReport, learnt: EngineCosts | null): void {
    life.load = report.load;
    if (report.load.waiting > this.#waitingMax) this.#waitingMax = report.load.waiting;
    const isDropped = report.kvEvents !== null && this.#kvEventsToDrop > 0;
    if (isDropped) this.#kvEventsToDrop -= 1;
    const received = isDropped ? { ...report, kvEvents: null } : report;
    this.#clock.after(this.#setup.delayMs, () => {
      if (this.#living() === life) this.#observer.onReport(this.id, received, learnt);
    });
  }
}
