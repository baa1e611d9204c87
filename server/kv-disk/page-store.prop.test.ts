import { afterAll, describe, expect, test } from "bun:test";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { checkStored, openStored } from "../../tests/support/stored-pages.ts";

const root = mkdtempSync(join(tmpdir(), "bunting-kv-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));
const writer = join(import.meta.dir, "../../tests/support/stored-pages.ts");

/** Damage to one file of a folder; fractions say where. */
interface Damage {
  readonly kind: "flip" | "cut" | "append" | "zero" | "repeat";
  readonly file: number;
  readonly at: number;
  readonly size: number;
}

const damage: fc.Arbitrary<Damage> = fc.record({
  kind: fc.constantFrom("flip", "cut", "append", "zero", "repeat"),
  file: fc.double({ min: 0, max: 0.999, noNaN: true }),
  at: fc.double({ min: 0, max: 0.999, noNaN: true }),
  size: fc.integer({ min: 1, max: 5000 }),
});

function apply(folder: string, { kind, file, at, size }: Damage): void {
  const files = readdirSync(folder).filter((name) => name.endsWith(".kv"));
  const path = join(folder, files[Math.floor(file * files.length)]!);
  const bytes = readFileSync(path);
  const offset = Math.floor(at * bytes.length);
  const end = Math.min(bytes.length, offset + size);
  if (kind === "flip" && bytes.length > 0) bytes[offset]! ^= 1 << (size % 8);
  if (kind === "zero") bytes.fill(0, offset, end);
  if (kind === "repeat") bytes.copyWithin(end, offset, end);
  if (kind === "append") writeFileSync(path, Buffer.concat([bytes, Buffer.alloc(size, offset)]));
  else writeFileSync(path, kind === "cut" ? bytes.subarray(0, offset) : bytes);
}

/** Starts a process that writes pages, and kills it some time after its first one. */
async function killWriter(folder: string, first: number, secret: string, delayMs: number): Promise<void> {
  const child = Bun.spawn([process.execPath, writer, folder, `${first}`, secret], { stdout: "pipe" });
  await child.stdout.getReader().read();
  await Bun.sleep(delayMs);
  child.kill("SIGKILL");
  await child.exited;
}

describe.each([
  ["plain", ""],
  ["encrypted", "5c".repeat(32)],
])("%s pages", (name, secret) => {
  const key = secret === "" ? null : Buffer.from(secret, "hex");

  test("are as they were stored, or absent, after kills of the writer and damage to the files", async () => {
    const folder = join(root, name);
    const delays = fc.double({ min: 0, max: 25, noNaN: true });
    let killed = 0;
    await fc.assert(
      fc.asyncProperty(
        delays,
        fc.array(fc.array(damage, { minLength: 1, maxLength: 4 }), { minLength: 30, maxLength: 30 }),
        async (delayMs, cases) => {
          await killWriter(folder, killed * 1_000_000, secret, delayMs);
          killed += 1;
          const whole = openStored(folder, { secret: key, bytesMax: 2 ** 16 });
          expect(checkStored(whole)).toBeGreaterThan(0);
          expect(whole.counts.damaged).toBe(0); // entries follow their pages
          whole.close();
          for (const damages of cases) {
            const copy = join(root, `${name}-damaged`);
            cpSync(folder, copy, { recursive: true });
            for (const one of damages) apply(copy, one);
            const store = openStored(copy, { secret: key, bytesMax: 2 ** 16 });
            checkStored(store);
            store.close();
            rmSync(copy, { recursive: true });
          }
        },
      ),
      { ...runs(10), endOnFailure: true }, // a kill cannot be repeated exactly
    );
  }, 600_000);
});
