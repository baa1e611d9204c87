import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { LowerTier } from "../cache/lower-tier.ts";
import type { EngineCosts } from "../cost/cost-model.ts";
import type { Device } from "../device.ts";
import { Engine } from "../engine/engine.ts";
import type { EngineSettings } from "../engine/engine-options.ts";
import type { EngineMessage, EngineReport } from "../messages.ts";

/** Minimum milliseconds between reports of an engine's learnt costs to the fleet. */
const LEARNT_EVERY_MS = 1000;

/** Engine's end of its link to the fleet. Both directions keep their order. */
export interface EngineEnd {
  /** Returns the next message that has arrived; null: none. */
  next(): EngineMessage | null;
  /**
   * Sends a report. `learnt`: the engine's current cost model; null if one was sent within the last second.
   * The model continues to learn, so a receiver that is slow or on another thread takes a copy.
   */
  report(report: EngineReport, learnt: EngineCosts | null): void;
}

/** Ports of an engine. */
export interface HostPorts {
  readonly link: EngineEnd;
  readonly device: Device;
  readonly clock: Clock;
  /** Lower tier of KV pages; absent: none. It may outlast the engine. */
  readonly tier?: LowerTier;
}

/** Parameters of a hosted engine besides its ports. */
export interface HostedEngine {
  /** Number of the engine's life in this place: 0, plus one for each replacement of a lost engine. */
  readonly epoch: number;
  readonly settings: EngineSettings;
  readonly costs: EngineCosts;
}

/** Inputs of an engine: messages and turns. */
type EngineInput = Pick<Engine, "receive" | "run">;

interface Life {
  readonly engine: Engine;
  readonly clock: Clock;
  /** Time of the next turn that the engine asked for; null: none. */
  wakeMs: number | null;
  /** Engine, or its decorator. */
  readonly input: EngineInput;
  readonly link: EngineEnd;
}

/** Decorators that see all inputs of an engine (recording/recorder.ts). */
export interface HostRecorder {
  engine(engine: EngineInput): EngineInput;
  device(device: Device): Device;
  tier(tier: LowerTier): LowerTier;
}

/**
 * Host of one engine after another. It keeps the hosting rules, which are the same in a thread, a simulation
 * and a replay:
 *
 * - The engine receives messages in the order sent, all that have arrived before it runs.
 * - A step's result comes after every message that arrived while the step was computed.
 * - An engine that asks for a later turn gets one, whatever else arrives.
 * - An engine gets no result of a lost device: its life ends, and its sequences continue elsewhere.
 * - The fleet receives an engine's learnt costs with a report, once a second.
 *
 * The owner of the host decides when turns come, and when to replace a lost engine.
 */
export class EngineHost {
  readonly #recorder: HostRecorder | null;
  #life: Life | null = null;

  /** `recorder` records all inputs and outputs of engines here. */
  constructor(recorder: HostRecorder | null = null) {
    this.#recorder = recorder;
  }

  /** Null while no engine lives here. */
  get engine(): Engine | null {
    return this.#life?.engine ?? null;
  }

  /** Starts the life of an engine. */
  open({ link, device, clock, tier }: HostPorts, { settings, epoch, costs }: HostedEngine): void {
    assert(this.#life === null, "only a lost engine is replaced");
    const answering: Device = {
      spec: device.spec,
      start: (step, done) => {
        device.start(step, (result) => {
          this.receive();
          if (result.kind === "lost") throw new Error(result.reason);
          done(result);
          this.#wakeLater();
        });
      },
      close: () => device.close(),
    };
    let learntMs = clock.nowMs();
    const emit = (report: EngineReport): void => {
      const nowMs = clock.nowMs();
      const isDue = nowMs >= learntMs + LEARNT_EVERY_MS;
      if (isDue) learntMs = nowMs;
      link.report(report, isDue ? costs : null);
    };
    const recorded = this.#recorder?.device(answering) ?? answering;
    const loading = tier === undefined ? null : this.#loading(tier, () => this.#life?.engine === engine);
    const recordedTier = loading === null ? null : (this.#recorder?.tier(loading) ?? loading);
    const engine = new Engine(recorded, clock, { ...settings, epoch }, emit, costs, recordedTier);
    this.#life = { engine, input: this.#recorder?.engine(engine) ?? engine, link, clock, wakeMs: null };
  }

  /** The tier as an engine here uses it: a load that ends after the engine's life is dropped. */
  #loading(tier: LowerTier, isAlive: () => boolean): LowerTier {
    return {
      get costs() {
        return tier.costs;
      },
      find: (prompt, first) => tier.find(prompt, first),
      loadPageMs: (prompt, first, end) => tier.loadPageMs(prompt, first, end),
      store: (prompt, first, pages) => tier.store(prompt, first, pages),
      findState: (prompt, first, end) => tier.findState(prompt, first, end),
      storeState: (prompt, end, slot, first, count) => tier.storeState(prompt, end, slot, first, count),
      load: (prompt, first, pages, slot, done) => {
        tier.load(prompt, first, pages, slot, (valid, fromHost) => {
          if (!isAlive()) return;
          this.receive();
          done(valid, fromHost);
          this.#wakeLater();
        });
      },
    };
  }

  /** Passes the messages that have arrived to the engine. */
  receive(): void {
    const life = this.#life;
    if (life === null) return;
    for (let message = life.link.next(); message !== null; message = life.link.next()) {
      life.input.receive(message);
    }
  }

  /** Runs a turn: messages first, then the engine. */
  turn(): void {
    this.receive();
    this.#life?.input.run();
    this.#wakeLater();
  }

  #wakeLater(): void {
    const life = this.#life;
    const wakeMs = life?.engine.wakeMs ?? null;
    if (life === null || wakeMs === null || wakeMs === life.wakeMs) return;
    life.wakeMs = wakeMs;
    life.clock.after(wakeMs - life.clock.nowMs(), () => {
      if (this.#life !== life || life.wakeMs !== wakeMs) return;
      life.wakeMs = null;
      this.turn();
    });
  }

  /** Drops the engine with all that it held. The owner of the host closes the ports. */
  close(): void {
    this.#life = null;
  }
}
