/** Plan of a draft model: vocabularies that go together, its bytes, and the identity of pages on disk. */
import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openModelFolder } from "../../model/folder.ts";
import { makeConfig } from "../../server/config.ts";
import { openDraftModel } from "../../server/engines/draft-plan.ts";
import { planServing } from "../../server/engines/plan.ts";
import { writeFamily } from "../reference/families.ts";
import { cpuLibrary } from "./library.ts";

const library = cpuLibrary();
const scratch = mkdtempSync(join(tmpdir(), "bunting-draft-plan-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/** Folder of a small model with a vocabulary of this size. */
function folderOf(name: string, vocab_size = 300, layers = 1): string {
  const folder = join(scratch, `${name}-${vocab_size}-${layers}`);
  writeFamily(name, folder, { vocab_size, num_hidden_layers: layers });
  return folder;
}

const target = folderOf("qwen2-yarn", 300, 3);
const [small, other] = [folderOf("llama-biases"), folderOf("llama-biases", 300, 2)];

const planWith = (draftModel: string | null) => {
  const config = makeConfig({
    ...{ draftModel, kvDisk: 1, kvCacheGib: 0.1, sequencesMax: 8 },
    data: { folder: join(scratch, "data") },
  });
  const backend = { kind: "cpu", reason: "a test", library: library.path, engines: 1, gpus: null } as const;
  return planServing(config, backend, library, target);
};

test("a vocabulary may be a little longer or shorter, as padding makes it", () => {
  const open = (size: number) => () =>
    openDraftModel(
      { speculate: "auto", draftModel: folderOf("llama-biases", size) },
      openModelFolder(target),
      false,
    );
  for (const size of [297, 303]) expect(open(size)()!.config.shape.vocab).toBe(size);
  expect(open(290)).toThrow(
    /: it has no token 290, and the model's is ".+"; a draft model has the vocabulary/,
  );
  expect(open(320)).toThrow(
    /: its token 300 is ".+", and the model has no such token; a draft model has the/,
  );
});

test("pages have the bytes of both models, and a row tells those of the draft model's weights", () => {
  const [without, drafted] = [planWith(null), planWith(small)];
  const bytesOf = ({ limits, memory }: typeof without): number =>
    memory.rows.find(({ name }) => name === "KV cache")!.bytes / limits.pages;
  expect(bytesOf(drafted)).toBe(bytesOf(without) + drafted.draft!.pageBytes);
  expect(drafted.memory.rows.find(({ name }) => name === "draft model")!.bytes).toBe(
    drafted.draft!.weightBytes,
  );
  expect([without.limits.draftsMax, drafted.limits.draftsMax]).toEqual([undefined, 8]);
});

test("pages on disk are those of both models", () => {
  const identities = [null, small, other, small].map((draft) => planWith(draft).disk.setup!.identity);
  expect(identities[3]).toBe(identities[1]!);
  expect(new Set(identities).size).toBe(3);
});
