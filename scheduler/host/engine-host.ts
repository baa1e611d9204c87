import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { EngineCosts } from "../cost/cost-model.ts";
import type { Device } from "../device.ts";
import { Engine } from "../engine/engine.ts";
import type { EngineSettings } from "../engine/engine-options.ts";
import type { EngineMessage, EngineReport } from "../messages.ts";

/** Shortest time between two reports of an engine's cost model to the fleet. */
const LEARNT_EVERY_MS = 1000;

/** The engine's end of its link to the fleet. Both directions keep their order. */
export interface EngineEnd {
  /** Takes the next message that has arrived; null: none has. */
  next(): EngineMessage | null;
  /** Sends a report. `learnt`: the engine's cost model; null if the fleet got it less than a second ago. It goes on learning, so that a receiver
   *  that keeps it takes a copy. */
  report(report: EngineReport, learnt: EngineCosts | null): void;
}

/** The ports of an engine. */
export interface HostPorts {
  readonly link: EngineEnd;
  readonly device: Device;
  readonly clock: Clock;
}

/** An engine's state besides its ports. */
export interface HostedEngine {
  /** The engine's incarnation: 0, and one more each time that a lost engine is replaced. */
  readonly epoch: number;
  readonly settings: EngineSettings;
  readonly costs: EngineCosts;
}

/** The inputs of a hosted engine. */
type EngineInput = Pick<Engine, "receive" | "run">;

interface Life {
  readonly engine: Engine;
  readonly clock: Clock;
  /** Time of the turn that comes without a message; null: there is none. */
  wakeMs: number | null;
  /** The engine, or what decorates it. */
  readonly input: EngineInput;
  readonly link: EngineEnd;
}

/** Decorators that record all inputs of an engine (recording/recorder.ts). */
export interface HostRecorder {
  engine(engine: EngineInput): EngineInput;
  device(device: Device): Device;
}

/**
 * Runs one engine after another. The rules of hosting are the same in a thread, in a simulation and in a replay:
 *
 *   - the engine receives messages in the order in which they were sent, and all that have arrived before it goes on;
 *   - a step's result comes after every message that arrived while the step was computed;
 *   - an engine that asks for it has a turn at a later time, whatever comes;
 *   - an engine never sees that its device is lost: it ends with an error, so that its sequences continue elsewhere instead of
 *     failing;
 *   - the fleet gets an engine's cost model with a report, once a second.
 *
 * The caller decides when turns come, and when a lost engine is replaced.
 */
export class EngineHost {
  readonly #recorder: HostRecorder | null;
  #life: Life | null = null;

  /** `recorder` records the inputs of engines here. */
  constructor(recorder: HostRecorder | null = null) {
    this.#recorder = recorder;
  }

  /** The engine; null: there is none. */
  get engine(): Engine | null {
    return this.#life?.engine ?? null;
  }

  /** Opens an engine. */
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

  /** Hands the messages that have arrived to the engine. */
  receive(): void {
    const life = this.#life;
    if (life === null) return;
    for (let message = life.link.next(); message !== null; message = life.link.next()) {
      life.input.receive(message);
    }
  }

  /** Hands messages over, then lets the engine go on. */
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

  /** Drops the engine with all that it holds. The caller closes its ports. */
  close(): void {
    this.#life = null;
  }
}
