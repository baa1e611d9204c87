/** Property: calls of any names and arguments, written in any form, come back equal however they are cut. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { compileConstraint } from "../../grammar/compile.ts";
import { Masks } from "../../grammar/mask/masks.ts";
import { Matcher, parserOf } from "../../grammar/mask/matcher.ts";
import { vocabularyOf } from "../../grammar/mask/vocabulary.ts";
import { type CallableFunction, type CallsSource, noMarks } from "../../grammar/source.ts";
import type { CallForm } from "../../grammar/tools/call-form.ts";
import { runs } from "../../tests/support/property.ts";
import { cutsOf, readCalls } from "../../tests/support/read-calls.ts";
import { callForms } from "./call-forms.ts";
import { writtenCalls } from "./written-calls.ts";

/** Beginnings, ends and delimiters of a form, and characters that matter in JSON, tags and Python. */
function scrapsOf(form: CallForm): string[] {
  const { begin, beforeName, afterName, afterArguments, between, end } = form;
  const marks = [
    begin,
    beforeName,
    afterName,
    afterArguments,
    between,
    end,
    ...Object.values(form.arguments),
  ];
  const texts = marks.filter((text): text is string => typeof text === "string" && text !== "");
  const halves = texts.flatMap((text) => [text.slice(0, text.length / 2), text.slice(text.length / 2)]);
  return [...texts, ...halves, ..."\"'\\{}[]()<>=:,| \n\t", "True", "null", "</", "é", "小", "🐦", "\\u0041"];
}

/** Strings that the form can hold as arguments. */
function textsOf(form: CallForm): fc.Arbitrary<string> {
  const text = fc.array(fc.constantFrom(...scrapsOf(form), "a", "b"), { maxLength: 6 });
  const { arguments: given } = form;
  const forbidden = given.kind === "tagged" ? given.closing : given.kind === "bare" ? given.quote : null;
  return text
    .map((all) => all.join(""))
    .filter((one) => forbidden === null || !(one + forbidden).slice(0, -1).includes(forbidden));
}

/** Names of arguments: any text where the form quotes or tags names, else letters. */
function argumentNamesOf(form: CallForm): fc.Arbitrary<string> {
  const { arguments: given } = form;
  if (given.kind === "json") return fc.string({ maxLength: 8 });
  if (given.kind !== "tagged") return fc.stringMatching(/^[a-z_][a-z0-9_]{0,5}$/);
  const ends = [given.afterName, given.afterTextName ?? given.afterName];
  const characters = fc.constantFrom(..."ab.-_:/ é小", "🐦", "{", "}", "'");
  return fc
    .array(characters, { minLength: 1, maxLength: 6 })
    .map((all) => all.join(""))
    .filter((name) => !ends.some((end) => (name + end).indexOf(end) < name.length));
}

function valuesOf(form: CallForm): fc.Arbitrary<unknown> {
  const text = textsOf(form);
  const keys = form.arguments.kind === "bare" ? fc.stringMatching(/^[a-z]{1,4}$/) : text;
  const scalar = fc.oneof(text, fc.integer(), fc.boolean(), fc.constant(null), fc.constantFrom(1.5, -0.25));
  const nested = fc.oneof(fc.array(scalar, { maxLength: 3 }), fc.dictionary(keys, scalar, { maxKeys: 3 }));
  return fc.oneof(scalar, nested);
}

interface Call {
  readonly name: string;
  readonly arguments: object;
  readonly parameters: { readonly properties: object };
}

function callsOf(form: CallForm): fc.Arbitrary<Call[]> {
  const name =
    form.arguments.kind === "python"
      ? fc.stringMatching(/^[a-z_][a-z0-9_.-]{0,12}$/)
      : fc.stringMatching(/^[A-Za-z0-9_.:/ -]{1,20}$/);
  const one = fc
    .tuple(name, fc.dictionary(argumentNamesOf(form), valuesOf(form), { maxKeys: 4 }))
    .map(([called, given]) => {
      const types = Object.entries(given).map(([key, value]) => [
        key,
        typeof value === "string" ? { type: "string" } : {},
      ]);
      return { name: called, arguments: given, parameters: { properties: Object.fromEntries(types) } };
    });
  const max = form.callsMax ?? 3;
  return fc.uniqueArray(one, { minLength: 1, maxLength: max, selector: (call) => call.name });
}

/** True if the grammar of calls accepts the text as a whole answer. */
function isAllowed(form: CallForm, functions: readonly CallableFunction[], text: string): boolean {
  const source: CallsSource = {
    ...{ kind: "calls", form, controlTexts: [], functions, callsMax: null, mayTalk: false },
    ...{ otherwise: null, marks: noMarks },
  };
  const matcher = new Matcher(parserOf(compileConstraint(source).grammar, bytes), bytes);
  return new TextEncoder().encode(text).every((byte) => matcher.accept(byte)) && matcher.mayEnd;
}

/** Vocabulary with a token for each byte. */
const bytes = new Masks(vocabularyOf(256, (token) => Uint8Array.of(token)));

const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 6 });

test.each(Object.entries<CallForm>(callForms))("%s", (_, form) => {
  fc.assert(
    fc.property(callsOf(form), sizes, (calls, cut) => {
      const functions = calls.map(
        ({ name, parameters }): CallableFunction => ({ name, parameters, isStrict: false }),
      );
      const answer = writtenCalls(form, calls);
      expect(isAllowed(form, functions, answer)).toBe(true);
      for (const pieces of [[answer], ...cutsOf(answer, cut).slice(-2)]) {
        const parts = readCalls(form, functions, pieces);
        const told = parts.map((part) => {
          if (part.kind === "arguments") return JSON.parse(part.text) as unknown;
          return part.kind === "call" ? part.name : { text: part.text };
        });
        expect(told).toEqual(calls.flatMap((call) => [call.name, call.arguments]));
      }
    }),
    runs(15),
  );
});
