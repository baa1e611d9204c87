/** Parses simulation setups: devices and a policy by name, and changes in the user's syntax. */

import type { PartedCostModel } from "../../../scheduler/cost/cost-model.ts";
import { openProfile, profileNames } from "../../../scheduler/cost/profiles.ts";
import type { DeviceSpec } from "../../../scheduler/device.ts";
import { ours } from "../../../scheduler/policies.ts";
import type { Policy } from "../../../scheduler/policy.ts";
import { policyNames, policyOf } from "../../../simulation/baselines/policies.ts";
import { type Noise, noiseNames, noises } from "../../../simulation/noise.ts";
import { ConfigError } from "../../config.ts";

/** Policy and the devices that it schedules. */
export interface Arrangement {
  readonly policy: Policy;
  /** Devices by engine. */
  readonly devices: readonly { readonly profile: PartedCostModel; readonly spec: DeviceSpec }[];
}

type Change = (arrangement: Arrangement) => Arrangement;

const changes: Readonly<Record<string, (value: string, name: string) => Change>> = {
  policy: (value) => {
    const policy = policyNamed(value);
    return ({ devices }) => ({ policy, devices });
  },
  engines: (value, name) => {
    const length = countOf(value, name);
    return ({ policy, devices }) => ({
      policy,
      devices: Array.from({ length }, (_, i) => devices[i % devices.length]!),
    });
  },
  "tbt-ms": (value, name) => {
    const tbtMs = value === "0" ? null : countOf(value, name);
    return ({ policy, devices }) => ({ policy: withTarget(policy, tbtMs), devices });
  },
  "step-tokens": (value, name) => {
    const stepTokens = countOf(value, name);
    return ({ policy, devices }) => ({
      policy: withStepTokens(policy, stepTokens),
      devices: withSpec(devices, { stepTokensMax: stepTokens }),
    });
  },
  "sequences-max": (value, name) => {
    const sequencesMax = countOf(value, name);
    return ({ policy, devices }) => ({
      policy: { ...policy, admission: { ...policy.admission, sequencesMax } },
      devices: withSpec(devices, { stepChunksMax: sequencesMax }),
    });
  },
};

/** Names of possible changes, as in "engines=1". */
export const changeNames: readonly string[] = Object.keys(changes);

/** Parses changes, which apply in order: "policy=sarathi,engines=1". Throws ConfigError. */
export function parseChanges(text: string): (arrangement: Arrangement) => Arrangement {
  const parsed = text.split(",").map((part) => {
    const [name = "", value = ""] = part.split("=");
    const change = Object.hasOwn(changes, name) ? changes[name] : undefined;
    if (change !== undefined) return change(value, name);
    throw new ConfigError(`"${part}" changes none of ${changeNames.join(", ")}, as in engines=1.`);
  });
  return (arrangement) => parsed.reduce((result, change) => change(result), arrangement);
}

/** Policy by name. Throws ConfigError. */
export function policyNamed(name: string): Policy {
  if (policyNames.includes(name)) return policyOf(name);
  throw new ConfigError(`There is no policy "${name}"; there are ${policyNames.join(", ")}.`);
}

/** Noise by name; null for none. Throws ConfigError. */
export function noiseNamed(name: string | null): Noise | null {
  if (name === null) return null;
  const known = noiseNames.find((noise) => noise === name);
  if (known !== undefined) return noises[known];
  throw new ConfigError(`There is no noise "${name}"; there are ${noiseNames.join(", ")}.`);
}

/** Policy whose steps keep this target; with null, steps of the size that delays all sequences least. */
export function withTarget(policy: Policy, tbtMs: number | null): Policy {
  return { ...policy, batch: ours(tbtMs).batch };
}

/** Sets the size of fixed-size steps; steps sized by time follow the device's limit. */
function withStepTokens(policy: Policy, stepTokens: number): Policy {
  const { batch } = policy;
  return batch.kind === "time" ? policy : { ...policy, batch: { ...batch, stepTokens } };
}

function withSpec(devices: Arrangement["devices"], changes: Partial<DeviceSpec>): Arrangement["devices"] {
  return devices.map(({ profile, spec }) => ({ profile, spec: { ...spec, ...changes } }));
}

/**
 * Measured devices, as in "4xa6000". Sequences may use all pages, because some traces have sequences longer
 * than the measured model's context. Throws ConfigError.
 */
export function devicesNamed(text: string): Arrangement["devices"] {
  const match = /^(?:([1-9]\d{0,2})x)?(\w+)$/.exec(text);
  const name = profileNames.find((known) => known === match?.[2]);
  if (match === null || name === undefined) {
    throw new ConfigError(`"${text}" is not a number and one of ${profileNames.join(", ")}, as in 4xa6000.`);
  }
  const { pages, pageTokens } = openProfile(name).spec;
  const device = openProfile(name, { spec: { contextMax: pages * pageTokens } });
  return Array.from({ length: Number(match[1] ?? 1) }, () => device);
}

function countOf(value: string, name: string): number {
  if (/^[1-9]\d{0,8}$/.test(value)) return Number(value);
  throw new ConfigError(`"${name}=${value}" needs a whole number from 1.`);
}
