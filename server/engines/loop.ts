import type { HostedDevice } from "../../gpu/hosted-device.ts";
import type { Device } from "../../scheduler/device.ts";
import type { Engine } from "../../scheduler/engine/engine.ts";
import type { LoopClock } from "./loop-clock.ts";
import type { InboxMessage } from "./protocol.ts";

/** Where an engine's messages come from. */
export interface Inbox {
  /** The next message, or null; never blocks. */
  next(): InboxMessage | null;
  /** Changes whenever a message is sent. */
  bell(): number;
  /** Sleeps until the bell differs from `seen`, at most `timeoutMs` (which may be infinite). */
  sleep(seen: number, timeoutMs: number): void;
}

/**
 * An engine's thread: drain the inbox, start a step, block until it is computed, report. It never returns to
 * the thread's event loop, and sleeps without a timeout when there is nothing to do. A device that is not
 * hosted (the simulated one) is driven by the clock.
 *
 * Returns after a stop message. The step in flight is computed to its end; its outcome is dropped.
 */
export function runEngineLoop(
  engine: Pick<Engine, "receive" | "run">,
  device: Device,
  clock: LoopClock,
  inbox: Inbox,
): void {
  const hosted = isHosted(device) ? device : null;

  /** Whether to go on. */
  const drain = (): boolean => {
    for (let message = inbox.next(); message !== null; message = inbox.next()) {
      if (message.kind === "stop") return false;
      engine.receive(message);
    }
    return true;
  };

  for (;;) {
    const seen = inbox.bell(); // read before draining: a message that comes later changes it
    clock.turn();
    if (!drain()) return;
    clock.runDue();
    engine.run();
    if (hosted?.inFlight) {
      hosted.wait();
      clock.turn();
      if (!drain()) return;
      hosted.deliver();
    } else {
      inbox.sleep(seen, clock.msUntilNext() ?? Number.POSITIVE_INFINITY);
    }
  }
}

function isHosted(device: Device): device is HostedDevice {
  return "deliver" in device;
}
