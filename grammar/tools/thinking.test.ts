import { expect, test } from "bun:test";
import { compileConstraint } from "../compile.ts";
import { Masks } from "../mask/masks.ts";
import { Matcher, parserOf } from "../mask/matcher.ts";
import { controlBytes, vocabularyOf } from "../mask/vocabulary.ts";
import { noMarks, type ThinkingSource } from "../source.ts";
import { markBytes } from "./marked-texts.ts";

const encode = (text: string) => new TextEncoder().encode(text);
/** Token texts; the last two are halves of one character. */
const texts = ["", "<think>", "</", "think", ">", "\n", "hm", "yes", "no", "[THINK]", "[/THINK]", "{", "}"];
const halves = [encode("é").slice(0, 1), encode("é").slice(1)];
const [open, close, mark, end, line, hm, yes, no, controlOpen, controlClose] = [
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
] as const;
const [firstHalf, secondHalf] = [texts.length, texts.length + 1];
const masks = new Masks(
  vocabularyOf(texts.length + 2, (token) => {
    if (token >= texts.length) return halves[token - texts.length]!;
    const bytes = encode(texts[token]!);
    return token === controlOpen || token === controlClose ? controlBytes(bytes) : bytes;
  }),
);

const plain: ThinkingSource = {
  kind: "thinking",
  opening: "<think>",
  closing: "</think>",
  isOpen: false,
  controlTexts: [],
  answer: { kind: "choice", texts: ["yes"] },
  marks: noMarks,
};
const control = { ...plain, opening: "[THINK]", closing: "[/THINK]", controlTexts: ["[THINK]", "[/THINK]"] };

function matcherOf(
  source: ThinkingSource,
  tokensMax: number | null,
  closingTokens: readonly number[],
): Matcher {
  const { opening, closing, isOpen, controlTexts } = source;
  const parser = parserOf(compileConstraint(source).grammar, masks);
  if (tokensMax === null) return new Matcher(parser, masks);
  const bytesOf = (text: string) => markBytes(text, controlTexts);
  const limit = { tokensMax, isOpen, opening: bytesOf(opening), closing: bytesOf(closing), closingTokens };
  return new Matcher(parser, masks, limit);
}

/** True if a text of these tokens is allowed, and may end. */
function obeys(source: ThinkingSource, tokens: readonly number[]): boolean {
  const matcher = matcherOf(source, null, []);
  return tokens.every((token) => matcher.accept(token)) && matcher.mayEnd;
}

test("thoughts are any text up to their mark, then the answer obeys", () => {
  const thoughts = [hm, line, no, firstHalf, secondHalf, yes];
  expect(obeys(plain, [open, ...thoughts, close, mark, end, line, line, yes])).toBe(true);
  expect(obeys(plain, [line, open, close, mark, end, yes])).toBe(true);
  expect(obeys(plain, [open, ...thoughts, close, mark, end, no])).toBe(false);
  expect(obeys(plain, [open, ...thoughts])).toBe(false);
  expect(obeys(plain, [yes])).toBe(true);
  expect(obeys(plain, [no])).toBe(false);
  const begun = { ...plain, isOpen: true };
  expect(obeys(begun, [hm, close, mark, end, yes])).toBe(true);
  expect(obeys(begun, [yes])).toBe(false);
  expect(obeys({ ...begun, answer: null }, [hm, close, mark, end, no, open, hm])).toBe(true);
});

test("a mark that is a control token is that token alone", () => {
  expect(obeys(control, [controlOpen, hm, controlClose, yes])).toBe(true);
  expect(obeys(control, [controlOpen, hm, controlOpen, controlClose, yes])).toBe(false);
});

test("text may have marks of its own, after thoughts and without them; the last need not come", () => {
  const marked = { ...plain, marks: { before: "{", after: "}", areTags: false } };
  expect(obeys(marked, [open, hm, close, mark, end, texts.indexOf("{"), yes])).toBe(true);
  expect(obeys(marked, [texts.indexOf("{"), yes])).toBe(true);
  expect(obeys(marked, [texts.indexOf("{"), yes, texts.indexOf("}")])).toBe(true);
  expect(obeys(marked, [texts.indexOf("{"), yes, texts.indexOf("}"), yes])).toBe(false);
  expect(obeys(marked, [yes])).toBe(false);
});

test("tags around text are optional, each for itself, with line breaks inside", () => {
  const tagged = { ...plain, marks: { before: "{", after: "}", areTags: true } };
  const [before, after] = [texts.indexOf("{"), texts.indexOf("}")];
  const answers = [
    [yes],
    [before, yes],
    [yes, after],
    [before, line, yes, line, after, line],
    [before, yes, after, yes],
    [before, no],
  ];
  expect(answers.map((answer) => obeys(tagged, answer))).toEqual([true, true, true, true, false, false]);
  expect(obeys(tagged, [open, hm, close, mark, end, line, before, line, yes, line, after])).toBe(true);
});

const closing = [close, mark, end];

/** Returns the forced tokens before the first token and after each. */
function forcedAlong(matcher: Matcher, tokens: readonly number[]): number[][] {
  return [
    matcher.forcedTokens(8),
    ...tokens.map((token) => {
      matcher.accept(token);
      return matcher.forcedTokens(8);
    }),
  ];
}

test("at their limit the closing mark is forced, and nothing before or after", () => {
  const matcher = matcherOf({ ...plain, answer: null }, 2, closing);
  const rest = [[mark, end], [end], []];
  expect(forcedAlong(matcher, [line, open, hm, hm, ...closing, hm, hm, hm])).toEqual([
    ...[[], [], [], []],
    ...[closing, ...rest, [], [], []],
  ]);
  const begun = matcherOf({ ...control, isOpen: true, answer: null }, 1, [controlClose]);
  expect(forcedAlong(begun, [hm, controlClose, hm])).toEqual([[], [controlClose], [], []]);
  const none = matcherOf({ ...plain, isOpen: true, answer: null }, 0, closing);
  expect(forcedAlong(none, [])).toEqual([closing]);
});

test("a text without thoughts has no limit of them", () => {
  const matcher = matcherOf({ ...plain, answer: null }, 1, closing);
  expect(forcedAlong(matcher, [hm, hm, open, hm, hm]).flat()).toEqual([]);
});

test("a character that has begun at the limit is completed first, and a mark that has begun counts for none", () => {
  const begun = { ...plain, isOpen: true, answer: null };
  expect(forcedAlong(matcherOf(begun, 1, closing), [firstHalf, secondHalf])).toEqual([[], [], closing]);
  expect(forcedAlong(matcherOf(begun, 2, closing), [hm, close, hm])).toEqual([[], [], [], closing]);
});

test("a matcher that is told the same tokens forces the same", () => {
  const tokens = [open, hm, hm, ...closing, yes];
  const matcher = matcherOf(plain, 2, closing);
  const along = forcedAlong(matcher, tokens);
  matcher.rollback(4);
  expect(matcher.forcedTokens(8)).toEqual(along[tokens.length - 4]!);
  expect(matcher.fork().forcedTokens(8)).toEqual(along[tokens.length - 4]!);
});
