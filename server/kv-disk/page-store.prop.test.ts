import { afterAll, describe, expect, test } from "bun:test";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { applyDamage, damage } from "../../tests/support/damage.ts";
import { runs } from "../../tests/support/property.ts";
import { checkStored, openStored } from "../../tests/support/stored-pages.ts";

const root = mkdtempSync(join(tmpdir(), "bunting-kv-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));
const writer = join(import.meta.dir, "../../tests/support/stored-pages.ts");

/** Starts a process that writes pages, and kills it `delayMs` after its first one. */
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
            for (const one of damages) applyDamage(copy, one);
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
