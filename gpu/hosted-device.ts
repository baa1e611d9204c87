import type { Device } from "../scheduler/device.ts";

/** A device whose computing needs a thread to wait for it: the host's. The host calls `wait` and then
 *  `deliver` after every `start`, and may do other things between the three. */
export interface HostedDevice extends Device {
  /** A step was started and its result is not delivered yet. */
  readonly inFlight: boolean;
  /** Blocks until the step in flight is computed. */
  wait(): void;
  /** Calls `done` of the step that `wait` saw through; `done` may start the next one. */
  deliver(): void;
}
