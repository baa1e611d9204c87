import { programLimits, type Limits as SchedulerLimits } from "../../scheduler/program/limits.ts";

/** What programs may ask of the server. Every limit is per program, but for those per key. */
export interface HostLimits {
  /** Calls and variables, and what they are made of. */
  readonly scheduler: SchedulerLimits;
  /** Programs that one API key may have open at once, sessions and others. */
  readonly programsPerKeyMax: number;
  /** Bytes of all values that a program holds. */
  readonly valuesBytesMax: number;
  /** Calls of a program that are at work at once; others wait here for their turn. */
  readonly runningMax: number;
  /** Calls that wait for values and whose prompt's beginning is told to the fleet; of others it is not. */
  readonly headsMax: number;
  /** What reading such a beginning must be expected to take: making tokens of it takes time too, on the thread that serves. */
  readonly headMsMin: number;
  /** A program that no client asks for, and that has nothing to do, is ended after so long. */
  readonly idleMs: number;
  /** How long a request may wait for a value. A connection that says nothing for longer is closed by the server. */
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
