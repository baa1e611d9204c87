/** Redirects the job folder of test servers to a temporary folder, away from the user's home. */

import { afterAll } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const folder = mkdtempSync(join(tmpdir(), "bunting-data-home-"));
process.env.XDG_DATA_HOME = folder;
afterAll(() => rmSync(folder, { recursive: true, force: true }));
