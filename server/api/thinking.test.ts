import { describe, expect, test } from "bun:test";
import { ControlTexts } from "../../text/control-text.ts";
import { ChatTemplate } from "../../text/template.ts";
import { Fields } from "./fields.ts";
import { settleThinking, thinkingOf } from "./thinking.ts";

const templateOf = (template: string) =>
  new ChatTemplate({ template, toolTemplate: null, specialTokens: {} }, new ControlTexts([]));
const asked = { isWanted: null, effort: null, tokensMax: null };
const settled = (template: string | null, more: Partial<Parameters<typeof settleThinking>[0]>) => {
  const made = settleThinking({ ...asked, ...more }, template === null ? null : templateOf(template), false);
  return [made.templateArguments, made.tokensMax, Object.values(made.has).some(Boolean)];
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

  test("reaches templates without a switch by another argument that switches thoughts off", () => {
    const seed = "{% if thinking_budget == 0 %}{% endif %}<seed:think>";
    expect(settled(seed, { isWanted: false })).toEqual([{ thinking_budget: 0 }, null, true]);
    expect(settled(seed, { effort: "none" })).toEqual([{ thinking_budget: 0 }, null, true]);
    expect(settled(seed, { isWanted: true })).toEqual([{}, null, false]);
    expect(settled(seed, { tokensMax: 512 })).toEqual([{ thinking_budget: 512 }, 512, true]);
    const mistral = "{% if reasoning_effort == 'none' %}{% endif %}[THINK]";
    expect(settled(mistral, { isWanted: false })).toEqual([{ reasoning_effort: "none" }, null, true]);
    expect(settled(knowsEffort, { isWanted: false })).toEqual([{}, null, false]);
  });

  test("reaches a variable of the template alone, not a word of its text", () => {
    expect(settled("Keep thinking. {{ message.thinking }}<think>", { isWanted: false })).toEqual([
      {},
      null,
      false,
    ]);
    const own = "{% set thinking = message.thinking %}{% if thinking is defined %}<think>{% endif %}";
    expect(settled(own, { isWanted: false })).toEqual([{}, null, false]);
    const tested =
      "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{{ thinking }}<think>";
    expect(settled(tested, { isWanted: true })).toEqual([{ thinking: true }, null, true]);
    const itself = "{% set thinking = thinking or message.thinking %}{{ thinking }}<think>";
    expect(settled(itself, { isWanted: true })).toEqual([{ thinking: true }, null, true]);
    expect(settled("{{ reasoning }}<|START_THINKING|>", { isWanted: false })).toEqual([
      { reasoning: false },
      null,
      true,
    ]);
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

describe("fields of thinking", () => {
  const read = (template: string, body: object) => {
    const { templateArguments, tokensMax, ignored } = thinkingOf(
      new Fields(body as Record<string, unknown>),
      templateOf(template),
      false,
    );
    return [templateArguments, tokensMax, ignored];
  };
  const off = [
    { enable_thinking: false },
    { thinking: { type: "disabled" } },
    { thinking: false },
    { think: false },
    { reasoning: { enabled: false } },
    { reasoning: { effort: "none" } },
    { reasoning_effort: "none" },
    { output_config: { effort: "none" } },
    { chat_template_kwargs: { enable_thinking: false } },
  ];

  test.each(off)("%j switches it off where the template can, and is named where it cannot", (body) => {
    expect(read(hasSwitch, body)).toEqual([{ enable_thinking: false }, null, []]);
    const [, tokensMax, ignored] = read(thinks, body);
    expect([tokensMax, (ignored as string[]).length]).toEqual([null, 1]);
  });

  test("are none where they are empty", () => {
    expect(read(hasSwitch, { reasoning_effort: "", reasoning: {} })).toEqual([{}, null, []]);
  });

  test("are named part by part", () => {
    const thinking = { type: "enabled", budget_tokens: 9, display: "summarized" };
    expect(read(thinks, { thinking })).toEqual([{}, 9, ["thinking", "thinking.display"]]);
    expect(read("{{ enable_thinking }}", { thinking })).toEqual([
      { enable_thinking: true },
      null,
      ["thinking.budget_tokens", "thinking.display"],
    ]);
    const reasoning = { effort: "low", summary: "auto" };
    expect(read(thinks, { reasoning })).toEqual([{}, 1024, ["reasoning.summary"]]);
  });

  test("give way to what the template is told by name, and the first of several counts", () => {
    const chat_template_kwargs = { enable_thinking: true };
    const named = read(hasSwitch, { enable_thinking: false, reasoning_effort: "none", chat_template_kwargs });
    expect(named).toEqual([chat_template_kwargs, null, ["enable_thinking", "reasoning_effort"]]);
    expect(read(hasSwitch, { enable_thinking: false, think: true, reasoning_effort: "high" })).toEqual([
      { enable_thinking: false },
      null,
      ["think", "reasoning_effort"],
    ]);
    expect(
      read(thinks, { thinking_token_budget: 5, reasoning_budget: 7, thinking_budget_tokens: -1 }),
    ).toEqual([{}, 5, ["reasoning_budget"]]);
  });
});
