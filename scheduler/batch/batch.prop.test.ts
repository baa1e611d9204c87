import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { algorithm1, byRatio } from "../../simulation/baselines/batchllm.ts";
import { runs } from "../../tests/support/property.ts";
import { type BatchOrder, groupsOf, orderOf, type PrefixGroup } from "./groups.ts";
import { oneLevel } from "./one-level.ts";
import { PrefixTree, promptTable, ROOT } from "./prefix-tree.ts";

const tokens = (text: string): number[] => [...text].map((letter) => letter.charCodeAt(0));
const prompts = fc.array(fc.array(fc.integer({ min: 0, max: 2 }), { maxLength: 8 }), { maxLength: 10 });

function saved(groups: readonly PrefixGroup[]): number {
  return groups.reduce((sum, { prefixTokens, members }) => sum + prefixTokens * (members.length - 1), 0);
}

function exact(list: readonly ArrayLike<number>[]) {
  const tree = new PrefixTree(promptTable(list));
  const choice = oneLevel(tree);
  return { tree, choice, groups: groupsOf(tree, choice) };
}

function ordered(
  list: readonly ArrayLike<number>[],
  answer: (prompt: number) => number = () => 1,
): BatchOrder {
  const { tree, choice } = exact(list);
  return orderOf(tree, choice, answer);
}

/** Tries every choice of opened nodes; returns the most tokens saved. */
function bruteForce(tree: PrefixTree): number {
  const inner = [...tree.prompts.keys()].filter((node) => node !== ROOT && tree.prompts[node]! > 1);
  let most = 0;
  for (let choice = 0; choice < 2 ** inner.length; choice++) {
    const isOpened = new Uint8Array(tree.nodes);
    inner.forEach((node, bit) => {
      isOpened[node] = (choice >> bit) & 1;
    });
    most = Math.max(most, saved(groupsOf(tree, { isOpened, savedTokens: 0 })));
  }
  return most;
}

function common(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let at = 0;
  while (at < a.length && at < b.length && a[at] === b[at]) at += 1;
  return at;
}

describe("groups", () => {
  /** Figure 4 of BatchLLM. */
  const figure4 = ["x", "bcc", "bcd", "bceeeeeef", "bceeeeeeg", "bh"].map(tokens);

  test("the paper's example saves ten tokens, four by first levels alone", () => {
    const { tree, choice, groups } = exact(figure4);
    expect(choice.savedTokens).toBe(10);
    expect(groups).toEqual([
      { prefixTokens: 0, members: [0] },
      { prefixTokens: 2, members: [1, 2] },
      { prefixTokens: 8, members: [3, 4] },
      { prefixTokens: 0, members: [5] },
    ]);
    expect(saved(algorithm1(tree))).toBe(10);
    const firstLevels = [...tree.children(ROOT)].map(
      (node) => (tree.prompts[node]! - 1) * tree.edgeTokens(node),
    );
    expect(firstLevels.reduce((a, b) => a + b)).toBe(4);
  });

  test("equal prompts and a prompt that another begins with share all they can", () => {
    expect(exact(["abc", "abc", "abcd", "abc"].map(tokens)).groups).toEqual([
      { prefixTokens: 3, members: [0, 1, 2, 3] },
    ]);
  });

  test("the greedy choice misses what is saved further up, the exact one does not", () => {
    const { tree, choice } = exact(["bb", "ba", "ba", "bb"].map(tokens));
    expect([choice.savedTokens, saved(algorithm1(tree))]).toEqual([4, 3]);
    fc.assert(
      fc.property(prompts, (list) => {
        const { tree, choice } = exact(list);
        expect(choice.savedTokens).toBeGreaterThanOrEqual(saved(algorithm1(tree)));
      }),
      runs(300),
    );
  });

  test("no choice of prefixes saves more than the exact one, and none more than the tree", () => {
    fc.assert(
      fc.property(prompts, (list) => {
        const { tree, choice, groups } = exact(list);
        expect(choice.savedTokens).toBe(bruteForce(tree));
        expect(saved(groups)).toBe(choice.savedTokens);
        expect(tree.savedAtMost).toBeGreaterThanOrEqual(choice.savedTokens);
      }),
      runs(300),
    );
  });

  test("every prompt is in one group and begins with its prefix, by either way of grouping", () => {
    fc.assert(
      fc.property(prompts, (list) => {
        const { tree, groups } = exact(list);
        for (const grouped of [groups, algorithm1(tree)]) {
          const members = grouped.flatMap((group) => group.members);
          expect(members.toSorted((a, b) => a - b)).toEqual(list.map((_, index) => index));
          for (const { prefixTokens, members } of grouped) {
            const agreed = members.map((member) => common(list[member]!, list[members[0]!]!));
            expect(Math.min(...agreed)).toBeGreaterThanOrEqual(prefixTokens);
          }
        }
      }),
      runs(200),
    );
  });

  test("many levels of prefixes are no trouble", () => {
    const levels = Array.from({ length: 3000 }, (_, index) =>
      Int32Array.from({ length: index + 1 }, () => 1),
    );
    const { tree, choice } = exact(levels);
    expect(tree.savedAtMost).toBe((3000 * 3001) / 2 - 3000);
    expect(choice.savedTokens).toBeGreaterThan(0);
  });
});

describe("order", () => {
  test("a walk computes each token of the tree once", () => {
    fc.assert(
      fc.property(prompts, (list) => {
        const tree = new PrefixTree(promptTable(list));
        const order = ordered(list);
        expect([...order.prompts].sort((a, b) => a - b)).toEqual(list.map((_, index) => index));
        order.prompts.forEach((prompt, place) => {
          const before = place === 0 ? [] : list[order.prompts[place - 1]!]!;
          expect(order.sharedTokens[place]).toBe(common(list[prompt]!, before));
        });
        expect(order.sharedTokens.reduce((a, b) => a + b, 0)).toBe(tree.savedAtMost);
      }),
      runs(300),
    );
  });

  test("what answers most for its prompts comes first, and a group stays together", () => {
    const list = ["abcdef1", "abcdef2", "xy", "abcdef3"].map(tokens);
    expect([...ordered(list).prompts]).toEqual([2, 0, 1, 3]);
    expect([...ordered(list, (prompt) => (prompt === 3 ? 10 : 1)).prompts]).toEqual([3, 0, 1, 2]);
  });

  test("the paper's order is of whole groups, the shortest first", () => {
    const list = ["abcd1", "xy", "abcd2"].map(tokens);
    const groups = byRatio(algorithm1(new PrefixTree(promptTable(list))), (prompt) => list[prompt]!.length);
    expect(groups).toEqual([
      { prefixTokens: 0, members: [1] },
      { prefixTokens: 4, members: [0, 2] },
    ]);
  });
});
