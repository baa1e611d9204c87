/** The history finds the same entry as a search through all of them, within its bounds. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import type { EngineId } from "../core.ts";
import { HashedTokens } from "./hashed-tokens.ts";
import { type PastPrompt, PromptHistory } from "./prompt-history.ts";

const past = (tenant: string, salt: string, tokens: readonly number[]): PastPrompt => ({
  ...{
    tenant,
    salt,
    adapter: 0,
    engine: 0 as EngineId,
    epoch: 0,
    session: null,
    tokens: HashedTokens.of(tokens),
  },
  ...{ isRunning: false, isLost: false, endedMs: 0, evictedPages: 0, tenantTokens: 0 },
});

function shared(one: ArrayLike<number>, other: ArrayLike<number>): number {
  let length = 0;
  while (length < Math.min(one.length, other.length) && one[length] === other[length]) length++;
  return length;
}

const tokens = fc.array(fc.integer({ min: 0, max: 1 }), { minLength: 1, maxLength: 12 });
const name = fc.constantFrom("", "red", "blue");
const act = fc.record({ tenant: name, salt: fc.constantFrom("", "x"), tokens, extends: tokens });

test("nearest is the longest common beginning of the tenant's own prompts", () => {
  fc.assert(
    fc.property(fc.array(act, { maxLength: 40 }), fc.boolean(), (acts, isLong) => {
      const limits = { promptsMax: isLong ? 100 : 3, tokensMax: isLong ? 10_000 : 60 };
      const history = new PromptHistory(limits);
      const added: PastPrompt[] = [];
      for (const { tenant, salt, tokens: prompt, extends: more } of acts) {
        const near = history.nearest(tenant, HashedTokens.of(prompt), (one) => one.salt === salt);
        const own = added.filter((one) => one.tenant === tenant && one.salt === salt);
        const best = Math.max(0, ...own.map((one) => shared(one.tokens.values, prompt)));
        if (isLong) expect(near?.shared ?? 0).toBe(best);
        expect(near?.shared ?? 0).toBeLessThanOrEqual(best);
        if (near !== null) {
          expect([near.past.tenant, near.past.salt]).toEqual([tenant, salt]);
          expect(shared(near.past.tokens.values, prompt)).toBe(near.shared);
          history.touch(near.past);
        }
        const entry = past(tenant, salt, prompt);
        history.add(entry);
        added.push(entry);
        history.extend(entry, entry.tokens.with(more));
        expect(history.tokens).toBeLessThanOrEqual(limits.tokensMax);
      }
    }),
    runs(500),
  );
});

test("a tenant beyond its prompts loses the one used least recently, and no other tenant loses any", () => {
  const history = new PromptHistory({ promptsMax: 2 });
  const any = (): boolean => true;
  const [first, second, third] = [1, 2, 3].map((token) => past("red", "", [token]));
  history.add(past("blue", "", [1]));
  history.add(first!);
  history.add(second!);
  history.touch(first!);
  history.add(third!);
  expect([1, 2, 3].map((token) => history.nearest("red", HashedTokens.of([token]), any)?.past)).toEqual([
    first,
    undefined,
    third,
  ]);
  expect(history.nearest("blue", HashedTokens.of([1]), any)?.shared).toBe(1);
});

test("hashed tokens share as many as the lists do, also across blocks", () => {
  const list = fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 300 });
  fc.assert(
    fc.property(list, list, list, list, (head, one, other, more) => {
      const [first, second] = [
        HashedTokens.of([...head, ...one]),
        HashedTokens.of(head).with(other).with(more),
      ];
      expect(second.values).toEqual(Int32Array.from([...head, ...other, ...more]));
      const expected = shared(first.values, second.values);
      expect([first.sharedWith(second), second.sharedWith(first)]).toEqual([expected, expected]);
    }),
    runs(500),
  );
});
