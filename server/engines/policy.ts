import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import type { Config } from "../config.ts";

/** How a server with these settings schedules. Without a target steps are as large as delays everybody least. */
export function servingPolicy({
  tbtMs,
  stepTokens,
  sequencesMax,
}: Pick<Config, "tbtMs" | "stepTokens" | "sequencesMax">): Policy {
  const policy = ours(tbtMs > 0 ? tbtMs : null);
  return {
    ...policy,
    batch: { ...policy.batch, stepTokens },
    admission: { ...policy.admission, sequencesMax },
  };
}
