import type { HostedDevice } from "../../gpu/hosted-device.ts";
import type { Device } from "../../scheduler/device.ts";
import type { Seat } from "../../scheduler/seat/seat.ts";
import type { LoopClock } from "./loop-clock.ts";
import { AWAITED, RINGS, STOPPED } from "./protocol.ts";

/**
 * An engine's thread: in each turn the device's result, if one is there, messages, and a step that is started; then it
 * blocks until the step is computed, or sleeps until `bell` rings. It never returns to the thread's event loop, and sleeps
 * without a timeout when there is nothing to do. A step that gives way is given up when a message comes that is awaited. A device that is not hosted (the simulated one) is driven by the clock.
 *
 * Returns when it is stopped. The step in flight is computed to its end; its outcome is dropped.
 */
export function runEngineLoop(
  seat: Seat,
  device: Device,
  clock: LoopClock,
  bell: Int32Array<SharedArrayBuffer>,
  beforeSleep: () => void,
): void {
  const hosted = isHosted(device) ? device : null;
  const way = bell.subarray(AWAITED, AWAITED + 1);
  for (;;) {
    // Before messages are received: one that comes later changes them.
    const rings = Atomics.load(bell, RINGS);
    Atomics.store(bell, AWAITED, 0);
    if (Atomics.load(bell, STOPPED) === 1) return;
    clock.turn();
    if (hosted?.inFlight) hosted.deliver();
    clock.runDue();
    seat.turn();
    if (hosted?.inFlight) hosted.wait(way);
    else {
      beforeSleep();
      Atomics.wait(bell, RINGS, rings, clock.msUntilNext());
    }
  }
}

function isHosted(device: Device): device is HostedDevice {
  return "deliver" in device;
}
