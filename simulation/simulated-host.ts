import type { TokenId } from "../base/token.ts";
import type { EngineId, SampleRow, Step } from "../scheduler/core.ts";
import type { CostModel, EngineCosts } from "../scheduler/cost/cost-model.ts";
import type { Device, DeviceSpec } from "../scheduler/device.ts";
import type { Engine } from "../scheduler/engine/engine.ts";
import type { EngineSettings } from "../scheduler/engine/engine-options.ts";
import type { EngineLink } from "../scheduler/fleet/fleet.ts";
import { EngineHost } from "../scheduler/host/engine-host.ts";
import type { EngineLoad, EngineMessage, EngineReport } from "../scheduler/messages.ts";
import { engineRecorder, type RecordingSink } from "../scheduler/recording/recorder.ts";
import type { EventClock } from "./event-clock.ts";
import type { DeviceNoise } from "./noise.ts";
import type { EngineRecord } from "./report.ts";
import { TimedDevice } from "./timed-device.ts";

/** What a simulated engine host is made of. */
export interface SimulatedHostSetup {
  readonly engine: EngineId;
  readonly spec: DeviceSpec;
  /** How long its steps take. */
  readonly profile: CostModel;
  /** How long a new engine here thinks that they take. */
  readonly believe: () => EngineCosts;
  /** How its steps differ from that; null: not at all. */
  readonly noise: DeviceNoise | null;
  readonly settings: EngineSettings;
  /** One way between fleet and engine, in milliseconds. */
  readonly delayMs: number;
  readonly nextToken: (row: SampleRow) => TokenId;
  /** Whether its decodes read a page that they have in common once. */
  readonly sharesReads: boolean;
  /** Takes a recording of what is told here; null: none is made. */
  readonly record: RecordingSink | null;
}

/** Hears of an engine host, as it happens. */
export interface HostObserver {
  onStep(engine: EngineId, step: Step): void;
  /** A report reached the fleet. `learnt`: what the engine has learnt of its costs; null: the fleet knows. */
  onReport(engine: EngineId, report: EngineReport, learnt: EngineCosts | null): void;
}

/** What is left of an engine when it is lost. */
interface Life {
  readonly device: TimedDevice;
  readonly costs: EngineCosts;
  /** Arrived, not yet received. */
  readonly inbox: EngineMessage[];
  load: EngineLoad | null;
}

/** An engine host in a simulated machine: its device takes time, and so does the way to the fleet. What goes wrong with it is done
 *  to it here. */
export class SimulatedHost implements EngineLink {
  readonly id: EngineId;
  readonly spec: DeviceSpec;
  readonly #setup: SimulatedHostSetup;
  readonly #clock: EventClock;
  readonly #observer: HostObserver;
  readonly #host: EngineHost;
  /** The last one is in the engine host, unless it is lost. */
  readonly #lives: Life[] = [];
  /** The last messages sent, and when: those of one moment arrive together. */
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
    this.open();
  }

  /** Null while it is lost. */
  get engine(): Engine | null {
    return this.#host.engine;
  }

  /** What the last engine here has learnt. */
  get costs(): EngineCosts {
    return this.#lives.at(-1)!.costs;
  }

  /** Messages of one moment arrive together. */
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

  /** The engine is gone, with everything that is on its way from or to it. */
  lose(): void {
    this.#living()?.device.close();
    this.#host.close();
    this.#sentMs = -1;
  }

  /** An engine begins where there is none; returns its epoch. */
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
    this.#host.open({ link, device: this.#watched(device), clock }, { epoch, settings, costs: life.costs });
    this.#lives.push(life);
    return epoch;
  }

  /** From now on steps take `factor` times as long. */
  slowDown(factor: number): void {
    this.#slowdown = factor;
  }

  /** The next `count` reports with notices lose them. */
  dropKvEvents(count: number): void {
    this.#kvEventsToDrop += count;
  }

  /** Sums over all that lived here. */
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
    };
  }

  /** The caches of baselines keep no pages for calls to come. */
  #isReceived({ kind }: EngineMessage): boolean {
    return kind !== "expect" || (this.#setup.settings.cache ?? null) === null;
  }

  /** The engine that is in the engine host. */
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
