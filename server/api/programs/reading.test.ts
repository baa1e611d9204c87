import { expect, test } from "bun:test";
import { noDefaults } from "../../../tests/support/served-model.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { Fields } from "../fields.ts";
import { ProgramReader } from "./schema.ts";

const generationDefaults = noDefaults;

/** A model that records the texts it tokenises. */
function counted(): { readonly served: ServedModel; readonly texts: string[] } {
  const texts: string[] = [];
  const tokensOf = (text: string): readonly number[] => [texts.push(text)];
  return {
    served: { names: ["m"], contextMax: 64, vocabSize: 99, generationDefaults, tokensOf },
    texts,
  };
}

const partOf = (served: ServedModel, calls: readonly object[]) =>
  new ProgramReader(served).part(new Fields({ calls }));

test("words that outputs of a call have in common become tokens once", () => {
  const { served, texts } = counted();
  const outputs = { a: {}, b: { temperature: 0 }, c: { bad_words: ["z"] } };
  partOf(served, [{ prompt: "{{a}}{{b}}{{c}}", outputs, bad_words: ["x", "y"] }]);
  expect(texts).toEqual(["x", " x", "y", " y", "z", " z"]);
});

test("words of many calls have a limit together, and outputs have", () => {
  const { served } = counted();
  const words = Array.from({ length: 128 }, (_, i) => `${i} `.padEnd(250, "w"));
  const wordy = (name: string) => ({ prompt: "", output: name, bad_words: words.map((word) => name + word) });
  expect(partOf(served, [wordy("a"), wordy("b")]).nodes).toHaveLength(2);
  expect(() => partOf(served, [wordy("a"), wordy("b"), wordy("c")])).toThrow(/65536 characters together/);
  const full = Array.from({ length: 9 }, (_, call) => {
    const outputs = Array.from({ length: 4096 }, (_, i) => `${call}.${i}`);
    return { prompt: outputs.map((name) => `{{${name}}}`).join(""), outputs };
  });
  expect(partOf(served, full.slice(1)).nodes).toHaveLength(8);
  expect(() => partOf(served, full)).toThrow(/32768 outputs together/);
});
