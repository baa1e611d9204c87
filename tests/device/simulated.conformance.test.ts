/** Device conformance of the simulated device. */
import { deviceConformance } from "../../gpu/conformance.ts";
import { SimulatedDevice } from "../../gpu/simulated/device.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { deviceSpec } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";

const models = { simulated: {}, "simulated recurrent": { states: { slots: 16, bytes: 1 } } };

for (const [name, states] of Object.entries(models)) {
  deviceConformance(name, () => {
    const clock = new ManualClock();
    const spec = deviceSpec({ hidden: { size: 8, rowsMax: 96 }, ...states });
    const device = new SimulatedDevice(spec, clock, linearCost(1, 0.1));
    return { device, settle: () => clock.runNext() };
  });
}
