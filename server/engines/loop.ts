import type { HostedDevice } from "../../gpu/hosted-device.ts";
import type { Device } from "../../scheduler/device.ts";
import type { EngineHost } from "../../scheduler/host/engine-host.ts";
import type { LoopClock } from "./loop-clock.ts";
import { AWAITED, RINGS, STOPPED } from "./protocol.ts";

/**
 * Loop of an engine's thread. A turn delivers the device's result, if there is one, receives messages and
 * starts a step. The loop then blocks until the step is computed, or sleeps until `bell` rings. It never
 * returns to the thread's event loop. `beforeTurn` may call the engine. `beforeSleep` returns the
 * milliseconds after which it wants to be called again, infinite for none. An abortable step of offline work
 * is aborted when an awaited message arrives. The clock drives a device that is not hosted (the simulated
 * one).
 *
 * Returns when stopped. A step in flight is computed to its end; its result is dropped.
 */
export function runEngineLoop(
  host: EngineHost,
  device: Device,
  clock: LoopClock,
  bell: Int32Array<SharedArrayBuffer>,
  beforeTurn: () => void,
  beforeSleep: () => number,
): void {
  const hosted = isHosted(device) ? device : null;
  const way = bell.subarray(AWAITED, AWAITED + 1);
  for (;;) {
    // Read before messages are received, so that a later message changes the value.
    const rings = Atomics.load(bell, RINGS);
    Atomics.store(bell, AWAITED, 0);
    if (Atomics.load(bell, STOPPED) === 1) return;
    clock.turn();
    const isComputed = hosted?.inFlight === true;
    beforeTurn(); // may start a step, which is not computed yet
    if (isComputed) hosted!.deliver();
    clock.runDue();
    host.turn();
    if (hosted?.inFlight) hosted.wait(way);
    else {
      const sleepMsMax = beforeSleep();
      Atomics.wait(bell, RINGS, rings, Math.min(sleepMsMax, clock.msUntilNext()));
    }
  }
}

function isHosted(device: Device): device is HostedDevice {
  return "deliver" in device;
}
