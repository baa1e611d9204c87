import { programLimits, type Limits as SchedulerLimits } from "../../scheduler/program/spec.ts";

/** Limits of programs. Every limit is per program, except for those per key. */
export interface HostLimits {
  /** Limits of the graph: calls, variables, and their parts. */
  readonly scheduler: SchedulerLimits;
  /** Maximum open programs of one API key, sessions included. */
  readonly programsPerKeyMax: number;
  /** Maximum bytes of all values of a program. */
  readonly valuesBytesMax: number;
  /** Maximum running calls of a program; others wait for a free place. */
  readonly runningMax: number;
  /** Maximum waiting calls whose known prompt prefix the fleet receives. */
  readonly headsMax: number;
  /**
   * Minimum expected prefill time of such a prefix in milliseconds; tokenising a cheaper one is not worth the
   * serving thread's time.
   */
  readonly headMsMin: number;
  /** Time after which a program without client requests and running calls is ended. */
  readonly idleMs: number;
  /**
   * Maximum time that a request may wait for a value. The server closes connections that are silent for
   * longer.
   */
  readonly waitMsMax: number;
  readonly waitMsDefault: number;
}

export const hostLimits: HostLimits = Object.freeze({
  scheduler: programLimits,
  programsPerKeyMax: 256,
  valuesBytesMax: 64 * 1024 * 1024,
  runningMax: 512,
  headsMax: 256,
  headMsMin: 4,
  idleMs: 600_000,
  waitMsMax: 240_000,
  waitMsDefault: 60_000,
});

/** Limits concurrent work to a maximum; further work waits in order. */
export class Turns {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(max: number) {
    this.#free = max;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free++;
      else next();
    }
  }
}
