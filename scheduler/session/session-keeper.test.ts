/** Sessions on a real engine: which prompts belong together, whose pages are kept, and for how long. */
import { describe, expect, test } from "bun:test";
import { tokensFrom } from "../../simulation/factories.ts";
import { SessionRig } from "../../tests/support/session-rig.ts";

const base = tokensFrom(0, 160);
const call = { tools: ["read"] };

/** Tokens of a text that begins like no other one. */
const text = (seed: number, tokens: number): readonly number[] => tokensFrom(200 + 11 * seed, tokens);

describe("a prompt is a turn", () => {
  test("of the session whose first prompt it begins with, answer or not", () => {
    const rig = new SessionRig(200);
    const first = rig.run([...base, ...text(1, 100)]);
    const second = rig.run([...first.whole, ...text(2, 20)]);
    // The template drops the first answer, and what came after it.
    const third = rig.run([...base, ...text(1, 100), ...text(3, 30)]);
    expect([first, second, third].map(({ place, by }) => [place.id, by])).toEqual([
      [0, "new"],
      [0, "continued"],
      [0, "continued"],
    ]);
  });

  test("of a new session while another turn of the same one runs", () => {
    const rig = new SessionRig(200);
    const first = rig.run([...base, ...text(1, 100)]);
    const second = rig.begin([...first.whole, ...text(2, 20)]);
    const third = rig.begin([...first.whole, ...text(3, 20)]);
    rig.finish();
    expect([second, third].map(({ by }) => by)).toEqual(["continued", "new"]);
  });

  test("of a child only while the parent waits for a tool, and only with a long stem or its name", () => {
    const rig = new SessionRig(400);
    const names = { session: "talk" };
    const parent = rig.run([...base, ...text(1, 100)], { ...call, names });
    const signs = [
      rig.run([...base, ...text(2, 20)]),
      rig.run([...base.slice(0, 100), ...text(3, 20)]),
      rig.run(text(4, 50), { names }),
      rig.run([...base, ...text(5, 20)], { names: { session: "chat" } }),
      rig.run([...base, ...text(6, 20)], { names: { person: "ann" } }),
    ];
    rig.run([...parent.whole, ...text(7, 20)], { names });
    signs.push(rig.run([...base, ...text(8, 20)]));
    expect(signs.map(({ place, by }) => [place.parent, by])).toEqual([
      [0, "branched"],
      [null, "new"],
      [0, "named"],
      [null, "new"],
      [0, "branched"],
      [null, "new"],
    ]);
  });
});

describe("pages of a session", () => {
  test("are kept after a call, and found by the next turn though others needed room", () => {
    const rig = new SessionRig(64);
    const first = rig.run([...base, ...text(1, 400)], call);
    expect(rig.keeper.kept).toEqual([0]);
    for (let other = 0; other < 5; other++) rig.run(text(20 + other, 200), { names: { person: `${other}` } });
    const next = rig.run([...first.whole, ...text(2, 10)]);
    expect(next.cached).toBe(first.whole.length - 1);
    expect(rig.events.filter((event) => event !== "kept")).toContain("returned");
  });

  test("are given up by time, and the tool's times are learnt for other sessions of the key", () => {
    const rig = new SessionRig(200);
    let whole = rig.run([...base, ...text(1, 100)], call).whole;
    for (let turn = 0; turn < 20; turn++) {
      rig.wait(500);
      whole = rig.run([...whole, turn], call).whole;
    }
    const other = rig.run(text(2, 100), call);
    rig.wait(400);
    expect(rig.keeper.kept).toEqual([0, 1]);
    rig.wait(140_000);
    expect(rig.keeper.kept).toEqual([]);
    expect(other.by).toBe("new");
    const [kept, ended] = [["kept"], ["returned", "given_up"]].map(
      (names) => rig.events.filter((event) => names.includes(event)).length,
    );
    expect(kept).toBe(ended!);
  });

  test("hold nothing: a prompt that needs all pages begins at once", () => {
    const rig = new SessionRig(60);
    rig.run([...base, ...text(1, 400)], call);
    const { pagesFree, pagesCached, pagesTotal } = rig.fleet.loads()[0]!;
    expect(pagesFree + pagesCached).toBe(pagesTotal);
    const large = rig.begin(text(2, 58 * 16));
    const startMs = rig.clock.nowMs();
    while (large.cached === null) rig.wait(1);
    expect(rig.clock.nowMs() - startMs).toBeLessThanOrEqual(1);
    rig.finish();
    expect(large.whole).toHaveLength(58 * 16 + 4);
  });

  test("of a subagent that is done make room for the next one, and those of the waiting agent do not", () => {
    const rig = new SessionRig(64);
    const agent = rig.run([...base, ...text(1, 500)], { tools: ["task"] });
    for (let child = 0; child < 6; child++) {
      const begun = rig.run([...base, ...text(10 + child, 60)], call);
      const done = rig.run([...begun.whole, ...text(30 + child, 60)]);
      expect([begun.by, done.by]).toEqual(["branched", "continued"]);
      expect(done.cached).toBe(begun.whole.length - 1);
    }
    expect(rig.run([...agent.whole, ...text(2, 20)]).cached).toBe(agent.whole.length - 1);
  });

  test("of two keys are kept within equal parts", () => {
    const rig = new SessionRig(64);
    rig.run(text(1, 700), { tenant: "red", ...call });
    expect(rig.keeper.kept).toEqual([0]);
    rig.run(text(2, 160), { tenant: "blue", ...call });
    expect(rig.keeper.kept).toEqual([1]);
  });
});
