import type { Device } from "../scheduler/device.ts";

/** A device whose computing needs a thread to wait for it: the host's. The host calls `wait` and then
 *  `deliver` after every `start`, and may do other things between the three. */
export interface HostedDevice extends Device {
  /** A step was started and its result is not delivered yet. */
  readonly inFlight: boolean;
  /** Blocks until the step in flight is computed, or, if it gives way, until it was given up: some time after `way[0]` is no longer 0. */
  wait(way?: Int32Array<SharedArrayBuffer>): void;
  /** Calls `done` of the step that `wait` saw through; `done` may start the next one. */
  deliver(): void;
}
