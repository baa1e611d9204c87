/** Measured device profiles: they grow with every number in the shape and keep the hardware's tiles. */

import { describe, expect, test } from "bun:test";
import { InvariantError } from "../../base/assert.ts";
import { SeededRandom } from "../../base/random.ts";
import { type CostModel, decodeStepMs, promptMs, type StepShape } from "./cost-model.ts";
import { linearCost } from "./linear.ts";
import { ProfileCostModel } from "./profile.ts";
import { openProfile, profileNames } from "./profiles.ts";

/**
 * Returns the first pair of shapes in which the larger one takes less time; null if none does. The two differ
 * in one number.
 */
function fallsAt(model: CostModel): { smaller: StepShape; larger: StepShape } | null {
  const random = new SeededRandom(11);
  for (let i = 0; i < 20_000; i++) {
    const prompts = Array.from({ length: random.below(4) }, () => ({
      tokens: 1 + random.below(random.below(8) === 0 ? 8000 : 600),
      context: random.below(8000),
    }));
    const decodes = random.below(256);
    const smaller: StepShape = { prompts, decodes, decodeContext: decodes * random.below(4000) };
    const more = 1 + random.below(random.below(2) === 0 ? 3 : 300);
    const grown = prompts.length > 0 ? random.below(5) : random.below(3);
    const [first, ...rest] = prompts;
    const larger: StepShape[] = [
      { ...smaller, decodes: decodes + more },
      { ...smaller, decodeContext: smaller.decodeContext + more },
      { ...smaller, prompts: [...prompts, { tokens: more, context: 0 }] },
      {
        ...smaller,
        prompts: [{ tokens: (first?.tokens ?? 0) + more, context: first?.context ?? 0 }, ...rest],
      },
      {
        ...smaller,
        prompts: [{ tokens: first?.tokens ?? 1, context: (first?.context ?? 0) + more }, ...rest],
      },
    ];
    if (model.stepMs(larger[grown]!) < model.stepMs(smaller)) return { smaller, larger: larger[grown]! };
  }
  return null;
}

describe.each(profileNames)("%s", (name) => {
  const { profile, spec, table } = openProfile(name);

  test("no step becomes faster by more work, and none is free", () => {
    expect(fallsAt(profile)).toBeNull();
    expect(profile.stepMs({ prompts: [], decodes: 1, decodeContext: 0 })).toBeGreaterThan(5);
  });

  test("a token more than tiles hold takes a tile's time, a token within a tile next to none", () => {
    const tokens = 2 * profile.tileTokens;
    const more = (from: number): number => promptMs(profile, from + 1, 0) / promptMs(profile, from, 0) - 1;
    expect(more(tokens)).toBeGreaterThan(0.05);
    expect(more(tokens - 2)).toBeLessThan(0.002);
    expect(spec.pages * spec.pageTokens).toBeGreaterThan(spec.contextMax);
  });

  test("beyond the table's end it goes on as it ended", () => {
    const end = table.linear.tokens.at(-1)!;
    const perToken = (tokens: number): number => profile.stepMs(prompts(tokens)) / tokens;
    const prompts = (tokens: number): StepShape => ({
      prompts: Array.from({ length: tokens / 256 }, () => ({ tokens: 256, context: 0 })),
      decodes: 0,
      decodeContext: 0,
    });
    expect(perToken(end * 2) / perToken(end)).toBeGreaterThan(0.95);
    expect(perToken(end * 2) / perToken(end)).toBeLessThan(1.05);
  });

  test("the file names its source and licence, and how far off it is", () => {
    expect(table.source).toMatch(/[0-9a-f]{7}/);
    expect(table.licence).toBe("MIT");
    for (const error of Object.values(table.error)) expect(error).toBeLessThan(0.06);
  });
});

test("tile_step: the tiles are where they were measured", () => {
  const a100 = openProfile("a100").profile;
  expect(promptMs(a100, 257, 0)).toBeGreaterThan(1.2 * promptMs(a100, 256, 0));
  const a6000 = openProfile("a6000").profile;
  expect(promptMs(a6000, 129, 0)).toBeGreaterThan(1.2 * promptMs(a6000, 128, 0));
});

test("the figures that the profiles are known by", () => {
  const near = (ms: number, wanted: number): void => expect(Math.abs(ms / wanted - 1)).toBeLessThan(0.1);
  near(promptMs(openProfile("a100").profile, 1024, 0), 77 + 6 + 2 + 1);
  near(promptMs(openProfile("a6000").profile, 512, 0), 84 + 2.1 + 2);
  near(promptMs(openProfile("rtx4090").profile, 512, 0), 45.9 + 2.5);
  // 100 decodes of 1,000 tokens read 13 GB of keys and values, at 0.77 TB/s, besides 16 GB of weights.
  near(decodeStepMs(openProfile("a6000").profile, 100, 1000), 17 + 28 + 7);
});

test("what is added to every step is added", () => {
  const [plain, slower] = [openProfile("rtx4090"), openProfile("rtx4090", { overheadMs: 3 })];
  expect(promptMs(slower.profile, 700, 9) - promptMs(plain.profile, 700, 9)).toBeCloseTo(3, 9);
});

test("monotone_profile_rejects_preble_fit: a published regression of a prompt's time falls, and is found out", () => {
  // Milliseconds of the linear layers as a function of tokens, in pieces (Preble's artifact, A6000).
  const regression = (tokens: number): number => {
    if (tokens >= 384) return 0.10842571 * tokens + 4.2098;
    return tokens >= 192 ? -118 + 1.25 * tokens - 2.56e-3 * tokens * tokens : 22;
  };
  const model: CostModel = {
    ...linearCost(0, 0),
    stepMs: ({ prompts, decodes }) =>
      regression(decodes + prompts.reduce((sum, { tokens }) => sum + tokens, 0)),
  };
  const found = fallsAt(model);
  expect(found).not.toBeNull();
  expect(model.stepMs(found!.larger)).toBeLessThan(model.stepMs(found!.smaller));
});

test("a table that falls is refused", () => {
  const { table } = openProfile("a100");
  const falling = { ...table, linear: { tokens: [1, 2, 3], ms: [1, 3, 2] } };
  expect(() => new ProfileCostModel(falling)).toThrow(InvariantError);
});
