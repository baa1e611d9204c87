import { staticBudget } from "../scheduler/engine-options.ts";
import { ours } from "../scheduler/policies.ts";
import type { Policy } from "../scheduler/policy.ts";
import type { Config } from "./config.ts";

/** How a server with these settings schedules. Without a target every step has the same budget. */
export function servingPolicy({
  tbtMs,
  stepTokens,
  sequencesMax,
}: Pick<Config, "tbtMs" | "stepTokens" | "sequencesMax">): Policy {
  const policy = ours(tbtMs > 0 ? tbtMs : null);
  return {
    ...policy,
    batch: tbtMs > 0 ? { ...policy.batch, stepTokens } : staticBudget(stepTokens),
    admission: { ...policy.admission, sequencesMax },
  };
}
