import { expect, test } from "bun:test";
import { join } from "node:path";
import { compileConstraint } from "../grammar/compile.ts";
import { Masks } from "../grammar/mask/masks.ts";
import { Matcher, parserOf } from "../grammar/mask/matcher.ts";
import { noMarks } from "../grammar/source.ts";
import { callForms } from "./formats/call-forms.ts";
import { textVocabulary } from "./model-text.ts";
import { loadTokenizer } from "./tokenizer.ts";

test("what is forced of a call is cut as the tokenizer cuts it, marks that are tokens of their own among it", () => {
  const tokenizer = loadTokenizer(join(import.meta.dir, "../tests/reference/tokenizers/qwen"));
  expect(tokenizer.isAdded(tokenizer.tokenOf("<tool_call>")!)).toBe(true);
  const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const { grammar } = compileConstraint({
    kind: "calls",
    form: callForms.Hermes,
    controlTexts: [],
    functions: [{ name: "get_weather", parameters, isStrict: true }],
    callsMax: 1,
    mayTalk: false,
    otherwise: null,
    marks: noMarks,
  });
  const masks = new Masks(textVocabulary(tokenizer, tokenizer.vocabSize));
  const forced = new Matcher(parserOf(grammar, masks), masks).forcedTokens(64);
  const call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>';
  const written = tokenizer.encode(call, { addSpecialTokens: false });
  expect(forced.length).toBeGreaterThan(8);
  expect(forced).toEqual(written.slice(0, forced.length));
});

test("a token may come in free text exactly if the text can go on with it, near marks and far from them", () => {
  const tokenizer = loadTokenizer(join(import.meta.dir, "../tests/reference/tokenizers/qwen"));
  const masks = new Masks(textVocabulary(tokenizer, tokenizer.vocabSize));
  const calls = {
    ...{
      kind: "calls" as const,
      form: callForms.Hermes,
      controlTexts: [],
      callsMax: null,
      mayTalk: true,
      otherwise: null,
      marks: noMarks,
    },
    functions: [{ name: "f", parameters: null, isStrict: false }],
  };
  const thinking = {
    opening: "<think>",
    closing: "</think>",
    isOpen: true,
    controlTexts: [],
    answer: calls,
    marks: noMarks,
  };
  for (const source of [calls, { kind: "thinking" as const, ...thinking }]) {
    const matcher = new Matcher(parserOf(compileConstraint(source).grammar, masks), masks);
    for (const text of ["", "We ", "see <", "b> <too", "l", "\n\n</think", ">"]) {
      for (const token of tokenizer.encode(text, { addSpecialTokens: false, continues: true }))
        expect(matcher.accept(token)).toBe(true);
      const mask = matcher.mask();
      for (let token = 0; token < tokenizer.vocabSize; token++) {
        const isAllowed = ((mask[token >>> 5]! >>> (token & 31)) & 1) === 1;
        if (isAllowed !== matcher.fork().accept(token))
          throw new Error(`${text}: token ${token}, ${isAllowed}`);
      }
    }
  }
});
