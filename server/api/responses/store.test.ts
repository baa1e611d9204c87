import { Database } from "bun:sqlite";
import { expect, spyOn, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import type { ResponseObject, ResponseStatus } from "./codec.ts";
import { KeptResponses } from "./kept.ts";
import { type KeptResponse, ResponseStore } from "./store.ts";

const day = 86_400;
const limits = { countMax: 3, bytesMax: 5_000, ageSecondsMax: day, chainMax: 4 };

function kept(
  id: string,
  more: { previousId?: string; text?: string; status?: ResponseStatus } = {},
): KeptResponse {
  const { previousId = null, text = "", status = "completed" } = more;
  const content = [{ type: "input_text" as const, text }];
  const response: ResponseObject = {
    id,
    object: "response",
    created_at: 0,
    status,
    model: "demo",
    output: [],
  };
  const input = [
    { type: "message" as const, id: `m${id}`, role: "user" as const, status: "completed" as const, content },
  ];
  return { response, input, previousId };
}

function openStore(more: Partial<typeof limits> = {}) {
  const clock = { seconds: 0 };
  const store = new ResponseStore(null, () => clock.seconds, { ...limits, ...more });
  const idsOf = (owner: string) => ["1", "2", "3", "4", "5"].filter((id) => store.get(owner, id) !== null);
  return { store, clock, idsOf };
}

test("a key keeps what it used last, as much as there is room for", async () => {
  const { store, idsOf } = openStore();
  for (const id of ["1", "2", "3"]) store.put("ann", kept(id));
  store.put("bob", kept("4"));
  await store.chain("ann", "1");
  store.put("ann", kept("5"));
  expect([idsOf("ann"), idsOf("bob")]).toEqual([["1", "3", "5"], ["4"]]);
  store.put("ann", kept("2", { text: "x".repeat(4_600) }));
  expect(idsOf("ann")).toEqual(["2"]);
  store.put("ann", kept("2"));
  store.put("ann", kept("3"));
  expect(idsOf("ann")).toEqual(["2", "3"]);
});

test("nothing is kept for longer than its time", async () => {
  const { store, clock, idsOf } = openStore();
  store.put("ann", kept("1"));
  clock.seconds = day - 1;
  store.put("ann", kept("2", { previousId: "1" }));
  expect(idsOf("ann")).toEqual(["1", "2"]);
  clock.seconds = day;
  expect(idsOf("ann")).toEqual(["2"]);
  expect(await store.chain("ann", "2")).toEqual({ missing: "1" });
});

test("a chain is whole or says where it breaks", async () => {
  const { store } = openStore({ countMax: 10 });
  for (let id = 1; id <= 5; id++)
    store.put("ann", kept(`${id}`, id === 1 ? {} : { previousId: `${id - 1}` }));
  const chained = await store.chain("ann", "4");
  expect("kept" in chained && chained.kept.map(({ response }) => response.id)).toEqual(["1", "2", "3", "4"]);
  expect(await store.chain("ann", "5")).toEqual({ tooLong: true });
  expect(await store.chain("bob", "1")).toEqual({ missing: "1" });
  expect([store.delete("bob", "2"), store.delete("ann", "2"), store.delete("ann", "2")]).toEqual([
    false,
    true,
    false,
  ]);
  expect(await store.chain("ann", "4")).toEqual({ missing: "2" });
});

test("responses that were running are told apart", () => {
  const { store } = openStore();
  store.put("ann", kept("1", { status: "in_progress" }));
  store.put("ann", kept("2"));
  expect(store.interrupted()).toEqual([{ owner: "ann", ...kept("1", { status: "in_progress" }) }]);
});

test("what is held never exceeds its limits, whatever is put and deleted", () => {
  const change = fc.record({
    owner: fc.constantFrom("ann", "bob"),
    id: fc.constantFrom("1", "2", "3", "4", "5"),
    size: fc.nat(3_000),
    deletes: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 40 }), (changes) => {
      const { store, idsOf } = openStore();
      for (const { owner, id, size, deletes } of changes) {
        // Ids are random, so an id belongs to one key.
        if (deletes) store.delete(owner, id + owner);
        else store.put(owner, kept(id + owner, { text: "x".repeat(size) }));
        const held = ["1", "2", "3", "4", "5"].flatMap((one) => store.get(owner, one + owner) ?? []);
        const bytes = held.reduce((sum, one) => sum + JSON.stringify(one).length, 0);
        expect(held.length).toBeLessThanOrEqual(limits.countMax);
        expect(bytes).toBeLessThanOrEqual(limits.bytesMax);
        if (!deletes) expect(store.get(owner, id + owner)).not.toBeNull();
      }
      expect(idsOf("ann")).toEqual([]);
    }),
    runs(100),
  );
});

test("a full disk keeps no response from being continued, and puts off what is to be deleted", async () => {
  const full = Object.assign(new Error("database or disk is full"), { code: "SQLITE_FULL" });
  const fail = (): never => {
    throw full;
  };
  const said = spyOn(console, "error").mockImplementation(() => {});
  const { store } = openStore();
  store.put("ann", kept("1"));
  const writes = spyOn(Database.prototype, "transaction").mockImplementation(() => fail as never);
  expect(await store.chain("ann", "1")).toEqual({ kept: [kept("1")] });
  expect(said.mock.calls).toEqual([["the use of responses is not kept: Error: database or disk is full"]]);
  writes.mockRestore();
  said.mockRestore();

  const responses = new KeptResponses(null);
  responses.keep("ann", kept("1"));
  const deletes = spyOn(ResponseStore.prototype, "delete").mockImplementation(fail);
  expect(() => responses.delete("ann", "1")).toThrow(expect.objectContaining({ status: 507 }));
  deletes.mockRestore();
  responses.delete("ann", "1");
});
