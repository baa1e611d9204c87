import { expect, test } from "bun:test";
import { ours } from "../../../scheduler/policies.ts";
import { policyOf } from "../../../simulation/baselines/policies.ts";
import { staticBudget } from "../../../simulation/baselines/static-budget.ts";
import { noises } from "../../../simulation/noise.ts";
import { ConfigError } from "../../config.ts";
import { devicesNamed, noiseNamed, parseChanges, withTarget } from "./what-if.ts";

const policy = { ...policyOf("sarathi"), batch: staticBudget(256) };
const changed = (text: string) => parseChanges(text)(arrangement);
const arrangement = { policy, devices: devicesNamed("2xa6000") };

test("devices are a number and a name; their sequences may fill them", () => {
  const [first, second] = arrangement.devices;
  expect(arrangement.devices).toHaveLength(2);
  expect(first).toBe(second!);
  expect(first!.spec.contextMax).toBe(first!.spec.pages * first!.spec.pageTokens);
  expect(devicesNamed("a100")).toHaveLength(1);
  for (const text of ["", "0xa100", "4x", "4xb200", "a100x4"]) {
    expect(() => devicesNamed(text)).toThrow(ConfigError);
  }
});

test("changes are made one after the other", () => {
  expect(changed("engines=3,step-tokens=64,sequences-max=5")).toEqual({
    policy: {
      ...policy,
      batch: staticBudget(64),
      admission: { ...policy.admission, sequencesMax: 5 },
    },
    devices: devicesNamed("3xa6000").map(({ profile, spec }) => ({
      profile,
      spec: { ...spec, stepTokensMax: 64, stepChunksMax: 5 },
    })),
  });
  const own = { policy: ours(), devices: arrangement.devices };
  expect(parseChanges("step-tokens=64")(own).policy).toEqual(ours());
  expect(changed("policy=sglang,engines=1")).toEqual({
    policy: policyOf("sglang"),
    devices: devicesNamed("1xa6000"),
  });
});

test("a target comes and goes", () => {
  const target = { ...policy, batch: ours(200).batch };
  const none = { ...policy, batch: ours().batch };
  expect(changed("tbt-ms=200").policy).toEqual(target);
  expect(parseChanges("tbt-ms=0")({ ...arrangement, policy: target }).policy).toEqual(none);
  expect(withTarget(policy, null)).toEqual(none);
});

test("noise has a name", () => {
  expect(noiseNamed(null)).toBeNull();
  expect(noiseNamed("rough")).toEqual(noises.rough);
  expect(() => noiseNamed("loud")).toThrow('There is no noise "loud"; there are mild, rough.');
});

test("what changes nothing is refused with what could be changed", () => {
  expect(() => parseChanges("speed=2")).toThrow('"speed=2" changes none of policy, engines');
  expect(() => parseChanges("engines=-1")).toThrow('"engines=-1" needs a whole number from 1.');
  expect(() => parseChanges("policy=best")).toThrow('There is no policy "best"; there are vllm');
});
