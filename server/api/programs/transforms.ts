import type { TransformStep } from "../../../scheduler/program/spec.ts";
import { parseStep } from "../../../scheduler/program/transforms/transform.ts";
import { badRequest } from "../../http/errors.ts";
import type { Fields } from "../fields.ts";
import { programRequestLimits } from "./request-limits.ts";

/** A list of transforms; empty when the field is missing. */
export function transformsOf(fields: Fields, name: string): TransformStep[] {
  const list = fields.list(name, programRequestLimits.transformsMax) ?? [];
  return list.map((given, index) => transformOf(given, `${fields.pathOf(name)}[${index}]`));
}

/** Throws 400. */
export function transformOf(given: unknown, path: string): TransformStep {
  const step = parseStep(given);
  if ("problem" in step) throw badRequest(`${path} ${step.problem}`, path);
  return step;
}
