import { expect, test } from "bun:test";
import type { TokenId } from "../../base/token.ts";
import type { Sharing } from "../../scheduler/core.ts";
import { PageIds } from "./page-ids.ts";

const tokens = Array.from({ length: 16 }, (_, token) => token as TokenId);
const alone: Sharing = { key: "0:a", publicKey: "0", publicTokens: 0 };

function idsOf(sharing: Sharing, of = tokens, ids = new PageIds("identity", 4, null)): string[] {
  return [0, 1, 2, 3].map((page) => ids.idOf({ sharing, tokens: of }, page));
}

test("an id depends on all tokens up to the page's end, and on no others", () => {
  const ids = idsOf(alone);
  expect(new Set(ids).size).toBe(4);
  expect(ids.every((id) => id.length === 32)).toBe(true);
  const changed = idsOf(alone, tokens.with(5, 99 as TokenId));
  expect(changed.map((id, page) => id === ids[page])).toEqual([true, false, false, false]);
});

test("an id depends on the key, the identity and the secret", () => {
  const ids = idsOf(alone);
  const secret = new Uint8Array(32);
  for (const others of [
    idsOf({ ...alone, key: "0:b" }),
    idsOf(alone, tokens, new PageIds("other", 4, null)),
    idsOf(alone, tokens, new PageIds("identity", 4, secret)),
  ])
    expect(others.filter((id) => ids.includes(id))).toEqual([]);
});

test("keys share public pages only", () => {
  const a = idsOf({ ...alone, publicTokens: 8 });
  const b = idsOf({ ...alone, key: "0:b", publicTokens: 8 });
  expect(a.map((id, page) => id === b[page])).toEqual([true, true, false, false]);
  // A prompt that is wholly public has no key.
  expect(idsOf({ key: "", publicKey: "0", publicTokens: 16 }).slice(0, 2)).toEqual(a.slice(0, 2));
  // Equal tokens that are not public have other pages, even if their key equals the public text's.
  expect(idsOf({ ...alone, key: "0" })[0]).not.toBe(a[0]);
});

test("the order in which ids are asked for does not matter", () => {
  const ids = new PageIds("identity", 4, null);
  const prompt = { sharing: { ...alone, publicTokens: 8 }, tokens };
  const backwards = [3, 2, 1, 0].map((page) => ids.idOf(prompt, page)).reverse();
  expect(backwards).toEqual(idsOf(prompt.sharing));
});
