/** Device conformance of the simulated device. */
import { deviceConformance } from "../../gpu/conformance.ts";
import { SimulatedDevice } from "../../gpu/simulated/device.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { deviceSpec } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";

deviceConformance("simulated", () => {
  const clock = new ManualClock();
  const device = new SimulatedDevice(
    deviceSpec({ hidden: { size: 8, rowsMax: 96 } }),
    clock,
    linearCost(1, 0.1),
  );
  return { device, settle: () => clock.runNext() };
});
