import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { EngineCosts } from "../cost/cost-model.ts";
import type { Device } from "../device.ts";
import { Engine } from "../engine/engine.ts";
import type { EngineSettings } from "../engine/engine-options.ts";
import type { EngineMessage, EngineReport } from "../messages.ts";

/** How often the fleet is told what an engine has learnt of its costs, at most. */
const LEARNT_EVERY_MS = 1000;

/** The engine's end of its link to the fleet. Both directions keep their order. */
export interface EngineEnd {
  /** The next message that has arrived; null: none has. */
  next(): EngineMessage | null;
  /** `learnt`: what the engine believes of its costs by now; null when the fleet was told less than a second ago. It goes
   *  on learning: what takes time or crosses threads takes a copy. */
  report(report: EngineReport, learnt: EngineCosts | null): void;
}

/** What an engine touches the world with. */
export interface HostPorts {
  readonly link: EngineEnd;
  readonly device: Device;
  readonly clock: Clock;
}

/** What an engine in an engine host is besides its ports. */
export interface HostedEngine {
  /** Which life of the place this is: 0, and one more each time that a lost engine is replaced. */
  readonly epoch: number;
  readonly settings: EngineSettings;
  readonly costs: EngineCosts;
}

/** What an engine is told through messages and turns. */
type EngineInput = Pick<Engine, "receive" | "run">;

interface Life {
  readonly engine: Engine;
  readonly clock: Clock;
  /** Of the turn that comes by itself; null: there is none. */
  wakeMs: number | null;
  /** The engine, or what decorates it. */
  readonly input: EngineInput;
  readonly link: EngineEnd;
}

/** Decorators that see all that goes into an engine (recording/recorder.ts). */
export interface HostRecorder {
  engine(engine: EngineInput): EngineInput;
  device(device: Device): Device;
}

/**
 * A place for an engine, in which one engine lives after another. It keeps the rules of hosting, which are the same in a
 * thread, in a simulation and in a replay:
 *
 *   - messages are received in the order in which they were sent, all that have arrived before the engine goes on;
 *   - a step's result comes after every message that arrived while the step was computed;
 *   - an engine that asks for it has a turn at a later time, whatever comes;
 *   - an engine is never told that its device is lost: its life ends with an error, so that what ran there goes on
 *     elsewhere instead of failing;
 *   - the fleet hears what an engine has learnt of its costs with a report, once a second.
 *
 * When turns come, and when a lost engine is replaced, is up to the host.
 */
export class EngineHost {
  readonly #recorder: HostRecorder | null;
  #life: Life | null = null;

  /** `recorder` writes down all that engines here are told and answer. */
  constructor(recorder: HostRecorder | null = null) {
    this.#recorder = recorder;
  }

  /** Null while nothing lives here. */
  get engine(): Engine | null {
    return this.#life?.engine ?? null;
  }

  /** An engine's life begins. */
  open({ link, device, clock }: HostPorts, { settings, epoch, costs }: HostedEngine): void {
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
    const engine = new Engine(recorded, clock, { ...settings, epoch }, emit, costs);
    this.#life = { engine, input: this.#recorder?.engine(engine) ?? engine, link, clock, wakeMs: null };
  }

  /** The engine takes note of the messages that have arrived. */
  receive(): void {
    const life = this.#life;
    if (life === null) return;
    for (let message = life.link.next(); message !== null; message = life.link.next()) {
      life.input.receive(message);
    }
  }

  /** Messages first, then the engine goes on. */
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

  /** The engine is gone, with all that it held. Its ports are the host's to close. */
  close(): void {
    this.#life = null;
  }
}
