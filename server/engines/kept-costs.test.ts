import { afterAll, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { runs } from "../../tests/support/property.ts";
import { KeptCosts, type MeasuredWith } from "./kept-costs.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-costs-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const library = join(scratch, "library.so");
writeFileSync(library, "kernels");
const costs = linearCost(17, 0.5, 16, { sequenceMs: 0.1, pairMs: 2e-4, contextMs: 7e-4 }, [
  { tokens: 32, tokenMs: 0.3 },
]);
const withIt: MeasuredWith = { library, machine: "a processor", choices: ["avx2", { threads: 2 }] };
const key = new Uint8Array(32).fill(7);
let places = 0;

function placeOf() {
  const folder = join(scratch, String(places++));
  mkdirSync(folder);
  return { path: join(folder, "model.safetensors.bf16-123456.bunting-packed"), key };
}

test("what was kept is read as it was, from a file beside the packed weights", () => {
  const kept = new KeptCosts(placeOf(), withIt);
  expect(kept.path).toMatch(/\/model\.safetensors\.bf16-123456-[0-9a-f]{6}\.bunting-costs$/);
  expect(kept.read()).toBeNull();
  kept.write(costs);
  expect(kept.read()!.state).toEqual(costs.state);
  kept.write(costs.times(2));
  expect(kept.read()!.state).toEqual(costs.times(2).state);
  expect(readdirSync(join(kept.path, ".."))).toHaveLength(1);
});

test("nothing is read of what other weights, kernels, machines or choices took", () => {
  const place = placeOf();
  const kept = new KeptCosts(place, withIt);
  kept.write(costs);
  const mine = readFileSync(kept.path);
  const others = [
    new KeptCosts({ ...place, key: new Uint8Array(32) }, withIt),
    new KeptCosts(place, { ...withIt, machine: "another processor" }),
    new KeptCosts(place, { ...withIt, choices: ["avx2", { threads: 1 }] }),
  ];
  utimesSync(library, 1, 1);
  others.push(new KeptCosts(place, withIt));
  for (const other of others) {
    writeFileSync(other.path, mine); // as if a user had copied it
    expect(other.read()).toBeNull();
  }
  expect(new Set(others.map(({ path }) => path)).size).toBe(3);
});

test("nothing is read of a file of which any byte is another, any part is missing, or that is something else", () => {
  const kept = new KeptCosts(placeOf(), withIt);
  kept.write(costs);
  const bytes = readFileSync(kept.path);
  const damage = fc.oneof(
    fc.nat(bytes.length - 2).map((length) => bytes.subarray(0, length)),
    fc.tuple(fc.nat(bytes.length - 2), fc.integer({ min: 1, max: 255 })).map(([index, flip]) => {
      const other = Buffer.from(bytes);
      other[index]! ^= flip;
      return other;
    }),
    fc.json().map((text) => Buffer.from(text)),
    fc.uint8Array({ maxLength: 100 }).map((other) => Buffer.from(other)),
    fc.constant(Buffer.alloc(10_000, 32)),
  );
  fc.assert(
    fc.property(damage, (damaged) => {
      writeFileSync(kept.path, damaged);
      const read = kept.read();
      // Damage may write the same number in another way.
      if (read !== null) expect(read.state).toEqual(costs.state);
    }),
    runs(300),
  );
});

test("where it cannot be written or read, there is none", () => {
  const kept = new KeptCosts(placeOf(), withIt);
  mkdirSync(join(kept.path, "inside"), { recursive: true });
  kept.write(costs);
  expect(kept.read()).toBeNull();
  expect(existsSync(`${kept.path}.new`)).toBeFalse();
  const place = placeOf();
  rmSync(join(place.path, ".."), { recursive: true });
  new KeptCosts(place, withIt).write(costs);
  expect(new KeptCosts(place, withIt).read()).toBeNull();
});
