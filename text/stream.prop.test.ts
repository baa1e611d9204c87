import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../tests/support/property.ts";
import { StreamDetokenizer } from "./detokenizer.ts";
import { StopMatcher } from "./stop.ts";

/** Random bytes, valid or not, mostly made of a few scalars of every UTF-8 length. */
const bytes = fc
  .array(
    fc.oneof(
      { weight: 6, arbitrary: fc.constantFrom("a", "b", "ab", "é", "€", "小", "🐦", "\uFEFF", "\u0301") },
      { weight: 1, arbitrary: fc.uint8Array({ minLength: 1, maxLength: 3 }) },
    ),
    { maxLength: 40 },
  )
  .map((parts) => Buffer.concat(parts.map((part) => Buffer.from(part as string))));

/** Splits an array at random positions. */
function cut<Items extends { slice(from: number, to: number): Items; readonly length: number }>(
  items: Items,
  sizes: readonly number[],
): Items[] {
  const pieces: Items[] = [];
  for (let from = 0, i = 0; from < items.length; i++) {
    const size = sizes[i % sizes.length]!;
    pieces.push(items.slice(from, from + size));
    from += size;
  }
  return pieces;
}

const sizes = fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 8 });

test("detokenizer: deltas of any chunking join to the whole decode, scalars whole", () => {
  fc.assert(
    fc.property(bytes, sizes, (all, chunking) => {
      const detokenizer = new StreamDetokenizer();
      const deltas = cut<Uint8Array>(all, chunking).map((piece) => detokenizer.push(piece));
      deltas.push(detokenizer.end());
      expect(deltas.join("")).toBe(new TextDecoder("utf-8", { ignoreBOM: true }).decode(all));
      for (const delta of deltas) expect(delta.isWellFormed()).toBe(true);
    }),
    runs(2000),
  );
});

test("detokenizer: tokens whose text is known give what their bytes give", () => {
  const fatal = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const textOf = (piece: Uint8Array): string | null => {
    try {
      return fatal.decode(piece);
    } catch {
      return null;
    }
  };
  fc.assert(
    fc.property(bytes, sizes, (all, chunking) => {
      const pieces = [...cut<Uint8Array>(all, chunking), new Uint8Array(0), ...cut<Uint8Array>(all, [1, 4])];
      const tokenizer = { bytesOf: (i: number) => pieces[i]!, textOf: (i: number) => textOf(pieces[i]!) };
      const [byTokens, byBytes] = [new StreamDetokenizer(), new StreamDetokenizer()];
      const deltas = pieces.map((_, i) => byTokens.pushToken(i, tokenizer));
      expect([...deltas, byTokens.end()]).toEqual([...pieces.map((one) => byBytes.push(one)), byBytes.end()]);
    }),
    runs(2000),
  );
});

/** Expected match from the whole text: the earliest end wins, then the longest. */
function stopAt(text: string, stops: readonly string[], includeMatch: boolean) {
  for (let end = 1; end <= text.length; end++) {
    const found = stops.filter((stop) => stop.length > 0 && text.slice(0, end).endsWith(stop));
    if (found.length === 0) continue;
    const matched = found.reduce((longest, stop) => (stop.length > longest.length ? stop : longest));
    return { text: text.slice(0, includeMatch ? end : end - matched.length), matched };
  }
  return { text, matched: null };
}

describe("stop strings", () => {
  const letters = fc.constantFrom("a", "b", "c", "小", "🐦", "🐧");
  const text = fc.array(letters, { maxLength: 60 }).map((all) => all.join(""));
  const stop = fc.array(letters, { minLength: 1, maxLength: 5 }).map((all) => all.join(""));

  test("the outcome does not depend on the chunking, and no delta splits a scalar", () => {
    fc.assert(
      fc.property(
        text,
        fc.array(stop, { maxLength: 4 }),
        fc.boolean(),
        sizes,
        (all, stops, includeMatch, chunking) => {
          const matcher = new StopMatcher(stops, { includeMatch });
          const deltas: string[] = [];
          let matched: string | null = null;
          for (const scalars of cut([...all], chunking)) {
            const found = matcher.push(scalars.join(""));
            deltas.push(found.text);
            matched = found.matched;
            if (matched !== null) break;
          }
          if (matched === null) deltas.push(matcher.end());
          expect({ text: deltas.join(""), matched }).toEqual(stopAt(all, stops, includeMatch));
          for (const delta of deltas) expect(delta.isWellFormed()).toBe(true);
        },
      ),
      runs(5000),
    );
  });

  test("text is held back only while it may become a stop string", () => {
    const matcher = new StopMatcher(["END", "N0"], { includeMatch: false });
    const texts = ["a", "E", "x", "EN", "1", "EN", "D"].map((piece) => matcher.push(piece));
    expect(texts.map((found) => found.text)).toEqual(["a", "", "Ex", "", "EN1", "", ""]);
    expect(texts.at(-1)!.matched).toBe("END");
  });

  test("the match that completes first wins, whatever began earlier", () => {
    const matcher = new StopMatcher(["abcd", "bc"], { includeMatch: false });
    expect(matcher.push("xabcd")).toEqual({ text: "xa", matched: "bc" });
  });

  test("a lone surrogate as a stop string cannot split a scalar", () => {
    const matcher = new StopMatcher(["\uD83D"], { includeMatch: false });
    expect(matcher.push("🐦")).toEqual({ text: "🐦", matched: null });
  });
});
