/** Service class of a request: OpenAI's `service_tier`, vLLM's `priority`, and latency targets from headers. */

import { chatService } from "../../../scheduler/core.ts";
import type { RequestedService } from "../../answer/generation.ts";
import { badRequest } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import { type Fields, refusal } from "../fields.ts";
import { type Targets, tbtHeaders, ttftHeaders } from "../targets.ts";

/** Service tier that a response reports. */
export type ServiceTier = "default" | "flex" | "priority";

/** Priority of the tier `priority`: ahead of all requests with the default priority. */
const PRIORITY_TIER = -1;

/** Service class and tier of a request; `tier` is null when it names none. Throws 400. */
export function serviceOf(
  fields: Fields,
  targets: Targets,
): { readonly service: RequestedService; readonly tier: ServiceTier | null } {
  const tier = tierOf(fields);
  const { priorityMax } = requestLimits;
  const priority =
    fields.integer("priority", { min: -priorityMax, max: priorityMax }) ??
    (tier === "priority" ? PRIORITY_TIER : 0);
  if (tier !== "flex") {
    return { tier, service: { objective: chatService.objective, ...targets, priority } };
  }
  if (targets.tbtMs !== null || targets.ttftMs !== null) {
    const header = (targets.tbtMs === null ? ttftHeaders : tbtHeaders).join(" or ");
    throw badRequest(
      `service_tier flex is for answers that nobody reads as they come: it takes no ${header}`,
      "service_tier",
    );
  }
  return { tier, service: { objective: "throughput", ...targets, priority } };
}

/** Service class on routes without tier and priority: online, with the latency targets of its headers. */
export function serviceWith(targets: Targets): RequestedService {
  return { objective: chatService.objective, ...targets, priority: 0 };
}

function tierOf(fields: Fields): ServiceTier | null {
  const given = fields.raw("service_tier", { enum: ["auto", "default", "flex", "priority"] });
  switch (given) {
    case undefined:
      return null;
    case "auto":
    case "default":
      return "default";
    case "flex":
    case "priority":
      return given;
    default:
      throw refusal("service_tier", "auto, default, flex or priority", given);
  }
}
