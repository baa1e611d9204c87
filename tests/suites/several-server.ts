/**
 * Server of several models that take turns in memory, beside a hub of this machine: `bun
 * tests/suites/several-server.ts`. It prints its address as one line, and serves until its standard input ends.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program } from "../e2e/program.ts";
import { demoFolder } from "../e2e/server.ts";
import { writeEmbeddingModel } from "../support/embedding-model.ts";
import { FakeHub } from "../support/fake-hub.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-several-models-"));

const hub = new FakeHub({ bytesPerSecond: 20e6 });
const files = readdirSync(demoFolder).filter((name) => /\.(json|safetensors)$/.test(name));
hub.commit(
  "Tiny/Demo",
  Object.fromEntries(files.map((name) => [name, readFileSync(join(demoFolder, name))])),
);

/** Holds one of the models that write, and not two. */
const MEMORY = "100MiB";
const embed = writeEmbeddingModel(join(scratch, "embed"));
const models = [`first=${demoFolder}`, `second=${demoFolder}`, `embed=${embed}`];
const program = Program.bunting(
  [
    ...["serve", "--port", "0", "--device", "cpu", "--data", "off", "--memory", MEMORY],
    ...models.flatMap((model) => ["--model", model]),
  ],
  {
    environment: {
      ...(process.env as Record<string, string>),
      HF_ENDPOINT: hub.endpoint,
      HF_HUB_CACHE: join(scratch, "cache"),
    },
  },
);
try {
  console.log(await program.url());
  await Bun.stdin.text();
  program.signal("SIGTERM");
  await program.exitCode();
} finally {
  process.stderr.write(program.errors);
  await hub.stop();
  rmSync(scratch, { recursive: true });
}
process.exit();
