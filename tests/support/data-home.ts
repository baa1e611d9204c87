/** Has the servers of tests keep their jobs in a folder that goes with the tests, and never in a person's home. */

import { afterAll } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const folder = mkdtempSync(join(tmpdir(), "bunting-data-home-"));
process.env.XDG_DATA_HOME = folder;
afterAll(() => rmSync(folder, { recursive: true, force: true }));
