import { expect, test } from "bun:test";
import { type LoadedModel, type ModelRow, ModelSet, type OnLoading } from "./model-set.ts";

/** Loaded model that is busy until the test ends its work. */
class Loaded implements LoadedModel {
  readonly lost: Promise<string>;
  readonly lose: (reason: string) => void;
  readonly name: string;
  isClosed = false;
  #idle = Promise.resolve();

  constructor(name: string) {
    this.name = name;
    const { promise, resolve } = Promise.withResolvers<string>();
    this.lost = promise;
    this.lose = resolve;
  }

  /** Begins work; the returned function ends it. */
  work(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#idle = promise;
    return resolve;
  }

  whenIdle(): Promise<void> {
    return this.#idle;
  }

  async close(): Promise<void> {
    this.isClosed = true;
  }
}

/** Model of 10 bytes whose loads the test ends. */
class Row implements ModelRow<Loaded> {
  readonly name: string;
  readonly bytes = 10;
  readonly loadMs = 0;
  readonly isPinned = false;
  readonly keepAliveMs = Number.POSITIVE_INFINITY;
  /** Loads that have begun. */
  readonly loads: {
    readonly end: () => Loaded;
    readonly fail: (error: Error) => void;
    readonly tell: OnLoading;
  }[] = [];
  problem: string | null = null;

  constructor(name: string) {
    this.name = name;
  }

  readonly check = (): void => {
    if (this.problem !== null) throw new Error(this.problem);
  };

  load(tell: OnLoading): Promise<Loaded> {
    const { promise, resolve, reject } = Promise.withResolvers<Loaded>();
    const end = (): Loaded => {
      const loaded = new Loaded(this.name);
      resolve(loaded);
      return loaded;
    };
    this.loads.push({ end, fail: reject, tell });
    return promise;
  }
}

/** Set of two models whose clock the test moves: loads take no time, so any model may make room at once. */
function setOf(memoryBytes: number, waitingMax = 10) {
  const [a, b] = [new Row("a"), new Row("b")];
  const clock = { nowMs: 0 };
  const set = new ModelSet<Loaded>([a, b], { memoryBytes, waitMs: 60_000, waitingMax }, () => clock.nowMs);
  const phases = () => set.states().map(({ phase }) => phase);
  return { set, a, b, clock, phases };
}

test("requests wait for one load together and hear of its progress", async () => {
  const { set, a, phases } = setOf(20);
  const told: (number | null)[] = [];
  const both = Promise.all([set.use("a", null, (share) => told.push(share)), set.use("a")]);
  expect(phases()).toEqual(["loading", "out"]);
  a.loads[0]!.tell(0.5);
  const loaded = a.loads[0]!.end();
  const leases = await both;
  expect(leases.map((lease) => lease.loaded)).toEqual([loaded, loaded]);
  expect([told, a.loads.length, set.states()[0]!.users]).toEqual([[0.5], 1, 2]);
});

test("a model leaves after its last answer, and requests that come meanwhile wait for its next load", async () => {
  const { set, a, b, clock, phases } = setOf(10);
  const using = set.use("a");
  const first = a.loads[0]!.end();
  const lease = await using;
  const end = first.work();
  const other = set.use("b");
  lease.end();
  clock.nowMs = 1;
  const again = set.use("a");
  expect(phases()).toEqual(["leaving", "out"]);
  expect([first.isClosed, b.loads.length]).toEqual([false, 0]);
  end();
  while (b.loads.length === 0) await Bun.sleep(0);
  expect(first.isClosed).toBe(true);
  b.loads[0]!.end();
  (await other).end();
  while (a.loads.length === 1) await Bun.sleep(0);
  a.loads[1]!.end();
  expect((await again).loaded.name).toBe("a");
});

test("a load that fails refuses the requests that wait for it, and a later one tries again", async () => {
  const { set, a, phases } = setOf(20);
  const refused = set.use("a");
  a.loads[0]!.fail(new Error("the file ends early"));
  await expect(refused).rejects.toThrow("the model a cannot be loaded: the file ends early");
  expect(phases()).toEqual(["out", "out"]);
  const again = set.use("a");
  a.loads[1]!.end();
  expect((await again).loaded.name).toBe("a");
});

test("a model whose files are damaged makes no other model leave", async () => {
  const { set, a, b, phases } = setOf(10);
  const using = set.use("a");
  a.loads[0]!.end();
  (await using).end();
  b.problem = "its config.json is no JSON";
  await expect(set.use("b")).rejects.toThrow("the model b cannot be loaded: its config.json is no JSON");
  expect(phases()).toEqual(["in", "out"]);
});

test("a request whose client goes leaves no lease behind", async () => {
  const { set, a } = setOf(10);
  const client = new AbortController();
  const gone = set.use("a", client.signal);
  client.abort();
  a.loads[0]!.end();
  await expect(gone).rejects.toThrow("the client went away");
  expect(set.states()[0]).toMatchObject({ phase: "in", users: 0, waiting: 0 });
});

test("more requests than may wait are refused with the limit", async () => {
  const { set, a } = setOf(10, 1);
  const waits = set.use("a");
  await expect(set.use("a")).rejects.toThrow("1 requests wait for the model a already, and no more may");
  a.loads[0]!.end();
  await waits;
});

test("a model that loses its engines is closed, and loaded again by the next request", async () => {
  const { set, a, phases } = setOf(10);
  const using = set.use("a");
  const loaded = a.loads[0]!.end();
  (await using).end();
  loaded.lose("its device failed");
  while (phases()[0] !== "out") await Bun.sleep(0);
  expect(loaded.isClosed).toBe(true);
  const again = set.use("a");
  a.loads[1]!.end();
  await again;
});

test("closing refuses requests that wait and closes the loaded models", async () => {
  const { set, a } = setOf(10);
  const using = set.use("a");
  const loaded = a.loads[0]!.end();
  await using;
  const waits = set.use("b");
  const closed = set.close();
  await expect(waits).rejects.toThrow("the server is shutting down");
  await closed;
  expect(loaded.isClosed).toBe(true);
});
