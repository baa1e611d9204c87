import { expect, test } from "bun:test";
import { ThinkingReader, thinkingForm, thinkingMarksIn } from "./thinking.ts";

test("a model's marks are those that its template names, opening or closing", () => {
  const opening = (template: string) => thinkingMarksIn(template)?.opening ?? null;
  expect(opening("{{ '<think>' }}")).toBe("<think>");
  expect(opening("{{ content.split('</think>')[-1] }}")).toBe("<think>");
  expect(opening("{{ '[THINK]' + thinking }}")).toBe("[THINK]");
  expect(opening("{{ '<|inner_prefix|>' }}")).toBe("<|inner_prefix|>");
  expect(thinkingMarksIn("<global_setting> </think>")?.afterText).toBe("</response>");
  expect(thinkingMarksIn("'</think>' '<response>' + result + '</response>'")?.afterText).toBeUndefined();
  expect(opening("{{ messages }} I think")).toBeNull();
});

test("text with marks of its own is told without them, after thoughts or at once", () => {
  const read = (answer: string) => {
    const reader = new ThinkingReader({
      ...thinkingMarksIn("<|START_THINKING|>")!,
      isOpen: false,
      tokensMax: null,
    });
    const told = [...[...answer].map((unit) => reader.push(unit)), reader.end()];
    return [told.map(({ reasoning }) => reasoning).join(""), told.map(({ answer }) => answer).join("")];
  };
  const thoughts = "<|START_THINKING|>Two.<|END_THINKING|>";
  expect(read(`${thoughts}<|START_RESPONSE|>Four.`)).toEqual(["Two.", "Four."]);
  expect(read("<|START_RESPONSE|>Four.")).toEqual(["", "Four."]);
  expect(read(`${thoughts}<|START_RESPONSE|>Four <|END.<|END_RESPONSE|>`)).toEqual(["Two.", "Four <|END."]);
  expect(read("<|START_RESPONSE|>Four.<|END_RES")).toEqual(["", "Four.<|END_RES"]);
  expect(read(`${thoughts}<|START_ACTION|>[`)).toEqual(["Two.", "<|START_ACTION|>["]);
});

test("tags around text are no text, nor are line breaks inside them; either may be missing", () => {
  const read = (answer: string) => {
    const reader = new ThinkingReader({
      ...thinkingMarksIn("'<think>' content.split('<answer>')")!,
      isOpen: false,
      tokensMax: null,
    });
    const told = [...[...answer].map((unit) => reader.push(unit)), reader.end()];
    return [told.map(({ reasoning }) => reasoning).join(""), told.map(({ answer }) => answer).join("")];
  };
  const thoughts = "<think>\nTwo.\n</think>\n";
  expect(read(`${thoughts}<answer>\nFour.\n</answer>`)).toEqual(["Two.", "Four."]);
  expect(read(`${thoughts}<answer>Four.</answer>\n`)).toEqual(["Two.", "Four."]);
  expect(read("<answer>\n Four <b>\n\nand\n")).toEqual(["", " Four <b>\n\nand\n"]);
  expect(read(`${thoughts}Four.`)).toEqual(["Two.", "Four."]);
  expect(read(`${thoughts}<tool_calls>[`)).toEqual(["Two.", "<tool_calls>["]);
  expect(read(`${thoughts}<answer>\nLook.\n</answer>\n<tool_calls>[`)).toEqual([
    "Two.",
    "Look.<tool_calls>[",
  ]);
});

test("how an answer begins is told from the end of its prompt", () => {
  const marks = { opening: "<think>", closing: "</think>" };
  const form = { ...marks, tokensMax: 7 };
  expect(thinkingForm(marks, "<|im_start|>assistant\n<think>\n", 7)).toEqual({ ...form, isOpen: true });
  expect(thinkingForm(marks, "<think> is a mark<|im_start|>assistant\n", 7)).toEqual({
    ...form,
    isOpen: false,
  });
  expect(thinkingForm(marks, "<|im_start|>assistant\n<think>\n\n</think>\n\n", 7)).toBeNull();
});
