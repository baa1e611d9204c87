import type { Device } from "../scheduler/device.ts";

/**
 * Device that blocks a thread while it computes; the host provides the thread. The host calls `wait` and then
 * `deliver` after every `start`, and may do other work in between.
 */
export interface HostedDevice extends Device {
  /** True from `start` until the result is delivered. */
  readonly inFlight: boolean;
  /**
   * Blocks until the step in flight is computed or aborted: an abortable step ends at its next abort point after
   * `way[0]` becomes non-zero.
   */
  wait(way?: Int32Array<SharedArrayBuffer>): void;
  /** Calls `done` of the step that `wait` finished; `done` may start the next one. */
  deliver(): void;
}
