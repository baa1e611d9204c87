import { describe, expect, test } from "bun:test";
import { ControlTexts } from "../text/control-text.ts";
import { ChatTemplate } from "../text/template.ts";
import { settleThinking } from "./thinking.ts";

const templateOf = (template: string) =>
  new ChatTemplate({ template, toolTemplate: null, specialTokens: {} }, new ControlTexts([]));
const asked = { isWanted: null, effort: null, tokensMax: null };
const settled = (template: string | null, more: Partial<Parameters<typeof settleThinking>[0]>) => {
  const made = settleThinking({ ...asked, ...more }, template === null ? null : templateOf(template), false);
  return [made.templateArguments, made.tokensMax, made.hasEffect];
};

const thinks = "{{ '<think>' }}";
const hasSwitch = "{{ enable_thinking }}</think>";
const knowsEffort = "{{ reasoning_effort }}[THINK]";

describe("what is asked of thinking", () => {
  test("reaches templates that have a switch, by its name", () => {
    expect(settled(hasSwitch, { isWanted: false })).toEqual([{ enable_thinking: false }, null, true]);
    expect(settled(hasSwitch, { effort: "none" })).toEqual([{ enable_thinking: false }, null, true]);
    expect(settled("{{ thinking }}<think>", { effort: "high" })).toEqual([{ thinking: true }, null, true]);
    expect(settled(thinks, { isWanted: true })).toEqual([{}, null, false]);
  });

  test("is an effort for templates that know efforts, and a limit for others that think", () => {
    expect(settled(knowsEffort, { effort: "low" })).toEqual([{ reasoning_effort: "low" }, null, true]);
    expect(settled(thinks, { effort: "low" })).toEqual([{}, 1024, true]);
    expect(settled(thinks, { effort: "high" })).toEqual([{}, null, false]);
    expect(settled(thinks, { effort: "low", tokensMax: 9 })).toEqual([{}, 9, true]);
    expect(settled(knowsEffort, { effort: "low", tokensMax: 9 })).toEqual([
      { reasoning_effort: "low" },
      9,
      true,
    ]);
  });

  test("has no effect where nothing is thought", () => {
    for (const template of [null, "{{ messages }}"]) {
      expect(settled(template, { effort: "low", tokensMax: 9, isWanted: true })).toEqual([{}, null, false]);
    }
  });

  test("may be nothing", () => {
    expect(settled(hasSwitch, {})).toEqual([{}, null, false]);
  });
});
