import { assert, type EngineId, type SampleRow, type Step, type StepResult, type TokenId } from "../core.ts";
import type { CostModel, EngineCosts } from "../cost/cost-model.ts";
import type { Device, DeviceSpec } from "../device.ts";
import { Engine } from "../engine/engine.ts";
import type { EngineSettings } from "../engine/engine-options.ts";
import type { EngineLink } from "../fleet/fleet.ts";
import type { EngineLoad, EngineMessage, EngineReport } from "../messages.ts";
import type { EventClock } from "./event-clock.ts";
import type { DeviceNoise } from "./noise.ts";
import type { EngineRecord } from "./report.ts";
import { TimedDevice } from "./timed-device.ts";

/** What a slot is made of. */
export interface SlotSetup {
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
}

/** Whoever is told what happens in a slot, as it happens. */
export interface SlotObserver {
  /** An engine begins, and believes this of its costs. */
  onOpen(engine: EngineId, epoch: number, costs: EngineCosts): void;
  onMessage(engine: EngineId, message: EngineMessage): void;
  /** All messages of the moment were received. */
  onRun(engine: EngineId): void;
  onStep(engine: EngineId, step: Step): void;
  /** The device is about to answer the step. */
  onResult(engine: EngineId, step: Step, result: StepResult): void;
  /** A report reached the fleet. */
  onReport(engine: EngineId, epoch: number, report: EngineReport): void;
}

/** An engine from its start to its loss. */
interface Life {
  readonly epoch: number;
  readonly device: TimedDevice;
  readonly engine: Engine;
  load: EngineLoad | null;
}

/** A place for an engine in a simulated machine: the engine, its device, and the way between them and the fleet, which
 *  takes time and keeps the order. What goes wrong with it is done to it here. */
export class EngineSlot implements EngineLink {
  readonly id: EngineId;
  readonly spec: DeviceSpec;
  readonly #setup: SlotSetup;
  readonly #clock: EventClock;
  readonly #observer: SlotObserver;
  readonly #past: Life[] = [];
  #life: Life | null;
  /** The last messages sent, and when: those of one moment arrive together. */
  #sent: EngineMessage[] = [];
  #sentMs = -1;
  #slowdown = 1;
  #noticesToDrop = 0;
  #waitingMax = 0;

  constructor(setup: SlotSetup, clock: EventClock, observer: SlotObserver) {
    this.id = setup.engine;
    this.spec = setup.spec;
    this.#setup = setup;
    this.#clock = clock;
    this.#observer = observer;
    this.#life = this.#open(0);
  }

  /** Null while it is lost. */
  get engine(): Engine | null {
    return this.#life?.engine ?? null;
  }

  /** Messages of one moment arrive together: the engine takes note of all, and then runs. */
  send(message: EngineMessage): void {
    const life = this.#life;
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
      if (this.#life === life) this.#deliver(life, messages);
    });
  }

  /** The engine is gone, with everything that is on its way from or to it. */
  lose(): void {
    const life = this.#life;
    if (life === null) return;
    life.device.close();
    this.#past.push(life);
    this.#life = null;
    this.#sentMs = -1;
  }

  /** Another engine takes the place of the lost one; returns its epoch. */
  replace(): number {
    assert(this.#life === null, "only a lost engine is replaced");
    this.#life = this.#open(this.#past.length);
    return this.#life.epoch;
  }

  /** From now on steps take `factor` times as long. */
  slowDown(factor: number): void {
    this.#slowdown = factor;
  }

  /** The next `count` reports with notices lose them. */
  dropNotices(count: number): void {
    this.#noticesToDrop += count;
  }

  /** Sums over all that lived here. */
  record(): EngineRecord {
    const lives = this.#life === null ? this.#past : [...this.#past, this.#life];
    const sum = (value: (life: Life) => number): number =>
      lives.reduce((total, life) => total + value(life), 0);
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

  #open(epoch: number): Life {
    const { spec, profile, believe, noise, settings, nextToken } = this.#setup;
    const costs = believe();
    this.#observer.onOpen(this.id, epoch, costs);
    const slowdown = (): number => this.#slowdown * (noise?.next(this.#clock.nowMs()) ?? 1);
    const device = new TimedDevice(spec, this.#clock, profile, slowdown, nextToken);
    const emit = (report: EngineReport): void => this.#emit(life, report);
    const engine = new Engine(this.#watched(device), this.#clock, { ...settings, epoch }, emit, costs);
    const life: Life = { epoch, device, engine, load: null };
    return life;
  }

  #watched(device: TimedDevice): Device {
    return {
      spec: device.spec,
      start: (step, done) => {
        this.#observer.onStep(this.id, step);
        device.start(step, (result) => {
          this.#observer.onResult(this.id, step, result);
          done(result);
        });
      },
      close: () => device.close(),
    };
  }

  #deliver({ engine }: Life, messages: readonly EngineMessage[]): void {
    for (const message of messages) {
      this.#observer.onMessage(this.id, message);
      engine.receive(message);
    }
    this.#observer.onRun(this.id);
    engine.run();
  }

  #emit(life: Life, report: EngineReport): void {
    life.load = report.load;
    if (report.load.waiting > this.#waitingMax) this.#waitingMax = report.load.waiting;
    const isDropped = report.notices !== null && this.#noticesToDrop > 0;
    if (isDropped) this.#noticesToDrop -= 1;
    const received = isDropped ? { ...report, notices: null } : report;
    this.#clock.after(this.#setup.delayMs, () => {
      if (this.#life === life) this.#observer.onReport(this.id, life.epoch, received);
    });
  }
}
