/** Sessions of any clients: bounded, apart by key, and never in the way. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { SessionRig, type Told } from "../../tests/support/session-rig.ts";
import { PromptHistory } from "./prompt-history.ts";
import { SessionTable } from "./session-table.ts";

interface Act {
  readonly tenant: string;
  readonly salt: string;
  readonly adapter: number;
  readonly name: string | null;
  /** Index of the answer that the prompt goes on from, counted back among those of the tenant; null: none. */
  readonly after: number | null;
  readonly family: number;
  readonly length: number;
  readonly isCall: boolean;
  readonly isKept: boolean;
  readonly waitMs: number;
}

const acts = fc.array(
  fc.record<Act>({
    tenant: fc.constantFrom("red", "blue"),
    salt: fc.constantFrom("", "", "x"),
    adapter: fc.constantFrom(0, 0, 2 ** 32),
    name: fc.constantFrom(null, null, "talk", "chat"),
    after: fc.option(fc.nat({ max: 3 })),
    family: fc.nat({ max: 2 }),
    length: fc.integer({ min: 1, max: 240 }),
    isCall: fc.boolean(),
    isKept: fc.constantFrom(true, true, true, false),
    waitMs: fc.constantFrom(0, 0, 10, 3000, 400_000),
  }),
  { minLength: 1, maxLength: 14 },
);

/** Runs the acts one after the other. Returns what each one's session was. */
function perform(rig: SessionRig, all: readonly Act[], after: (told: Told) => void = () => {}): Told[] {
  const ended = new Map<string, Told[]>();
  return all.map((act) => {
    const { tenant, salt, adapter, name, family, length, isCall, isKept } = act;
    const own = ended.get(tenant) ?? [];
    const before = act.after === null ? undefined : own[own.length - 1 - act.after];
    const fresh = Array.from({ length }, (_, i) => (i < 140 ? family : 3 + ((family + i * 7) % 5)));
    const tokens = [...(before?.whole?.slice(0, 500) ?? []), ...fresh];
    const names = { session: name };
    const tools = isCall ? ["read"] : [];
    const told = rig.run(tokens, { tenant, salt, adapter, names, tools, isKept });
    ended.set(tenant, [...own, told]);
    after(told);
    if (act.waitMs > 0) rig.wait(act.waitMs);
    return told;
  });
}

test("sessions and their tokens stay within bounds, and nothing of them is pinned", () => {
  fc.assert(
    fc.property(acts, (all) => {
      const history = new PromptHistory({ promptsMax: 4, tokensMax: 1500 });
      const rig = new SessionRig(50, new SessionTable(history, 3));
      perform(rig, all, () => {
        expect(rig.table.size).toBeLessThanOrEqual(3);
        expect(history.tokens).toBeLessThanOrEqual(1500);
        const { pagesFree, pagesCached, pagesTotal } = rig.fleet.loads()[0]!;
        expect(pagesFree + pagesCached).toBe(pagesTotal);
        rig.wait(20); // decisions are this far apart at most
        for (const id of rig.keeper.kept) expect(rig.table.find(id)?.waiting ?? null).not.toBeNull();
      });
      const large = rig.run(Array.from({ length: 49 * 16 }, () => 9));
      expect(large.whole).toHaveLength(49 * 16 + 4);
    }),
    runs(60),
  );
}, 60_000);

test("what one key, salt and adapter observe does not depend on the others", () => {
  fc.assert(
    fc.property(acts, (all) => {
      const together = perform(new SessionRig(600), all);
      for (const tenant of ["red", "blue"]) {
        for (const [salt, adapter] of [
          ["", 0],
          ["x", 0],
          ["", 2 ** 32],
          ["x", 2 ** 32],
        ]) {
          const isOwn = (act: Act): boolean =>
            act.tenant === tenant && act.salt === salt && act.adapter === adapter;
          const own = together.filter((_, index) => isOwn(all[index]!));
          const others = together.filter((_, index) => !isOwn(all[index]!));
          const ids = new Set(own.map(({ place }) => place.id));
          for (const { place } of others)
            expect([ids.has(place.id), ids.has(place.parent!)]).toEqual([false, false]);
        }
      }
      const red = all.filter(({ tenant }) => tenant === "red");
      const alone = perform(new SessionRig(600), red);
      const beside = together.filter((_, index) => all[index]!.tenant === "red");
      expect(numbered(beside)).toEqual(numbered(alone));
    }),
    runs(60),
  );
}, 60_000);

/** Signs and sessions, numbered by their first turns. */
function numbered(told: readonly Told[]): readonly object[] {
  const ids = [...new Set(told.map(({ place }) => place.id))];
  return told.map(({ place: { id, parent }, by }) => ({
    by,
    id: ids.indexOf(id),
    parent: parent === null ? null : ids.indexOf(parent),
  }));
}
