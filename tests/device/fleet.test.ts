/**
 * Fleets of engines with both kinds of memory, states and latents, on the CPU, the emulated GPU and a real one.
 * Every sequence gets the same tokens as alone: beside forks of its prompt, from cached prefixes, after
 * preemption, and after the loss of its engine. A replay of each run decides the same.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TokenId } from "../../base/token.ts";
import type { NativeDevice } from "../../gpu/native/device.ts";
import { closeNativeModel, openCpuDevice, openGpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import { openModelFolder } from "../../model/folder.ts";
import { sequenceSpec } from "../../simulation/factories.ts";
import { writeFamily } from "../reference/families.ts";
import { FleetRig } from "./fleet-rig.ts";
import { cpuLibrary, gpuEngines } from "./library.ts";

setDefaultTimeout(120_000); // milliseconds, for an emulated GPU on a busy machine

const scratch = mkdtempSync(join(tmpdir(), "bunting-fleet-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const models = [
  ["qwen3-5", "states of the delta rule"],
  ["falcon-h1", "states of Mamba-2 beside keys"],
  ["deepseek-v3", "latents"],
] as const;
const engines = [
  { engine: "cpu", library: cpuLibrary() },
  ...gpuEngines().map(({ name, library }) => ({ engine: name, library })),
];

const text = (salt: number, count: number): TokenId[] =>
  Array.from({ length: count }, (_, i) => ((i + salt) * (i + 3) * 7 + salt) % 100);
const long = text(1, 45);
const prompts = [long, [...long.slice(0, 37), ...text(2, 8)], text(3, 12)];
const forks = 3;
const tokensMax = 24;

/** Sequence of a fork of a prompt. `salt`: of its cache. */
const spec = (prompt: number, fork: number, salt = "") =>
  sequenceSpec(prompts[prompt]!, tokensMax, {
    sampling: { temperature: 1, topP: 0.95, seed: [prompt, fork] },
    cacheSalt: salt,
  });

const asRecorded = { divergence: null, breakdowns: [] };

const cases = models.flatMap(([name, what]) => engines.map((one) => ({ name, what, ...one })));

// The emulated GPU is slow, and kinds.test.ts has the model with both memories in a layer there.
describe.each(cases.filter(({ name, engine }) => name !== "falcon-h1" || engine !== "emu"))(
  "$name ($what) on $engine",
  ({ name, engine, library }) => {
    let open: (pages: number, states: number) => NativeDevice;
    let close: () => void;
    let alone: TokenId[][];

    beforeAll(() => {
      const dir = join(scratch, `${name}-${engine}`);
      writeFamily(name, dir);
      const options = { compute: "bf16", isa: "auto", threads: 1, contextMax: null } as const;
      const model = openNativeModel(library, openModelFolder(dir), options, () => undefined);
      const limits = { threads: 2, pageTokens: 16, stepTokensMax: 64, stepChunksMax: 16, topLogprobsMax: 0 };
      open = (pages, states) => {
        const sizes = { ...limits, pages, ...(model.stateBytes > 0 ? { states } : {}) };
        return engine === "cpu"
          ? openCpuDevice(library, model, sizes)
          : openGpuDevice(library, model, sizes, 0, () => {});
      };
      close = () => closeNativeModel(library, model);
      const rig = new FleetRig(1, () => open(64, 4));
      for (let prompt = 0; prompt < prompts.length; prompt += 1) {
        for (let fork = 0; fork < forks; fork += 1) {
          rig.submit([spec(prompt, fork, `${prompt} ${fork}`)]);
          rig.run();
        }
      }
      alone = rig.tokens;
      expect(rig.close()).toEqual(asRecorded);
      expect(new Set(alone.map((tokens) => tokens.join())).size).toBe(prompts.length * forks);
    });
    afterAll(() => close());

    const submitAll = (rig: FleetRig): void => {
      for (const prompt of prompts.keys()) {
        rig.submit(Array.from({ length: forks }, (_, fork) => spec(prompt, fork)));
      }
    };

    test("forks of one prompt, and prompts whose beginning is cached", () => {
      const rig = new FleetRig(1, () => open(64, 24));
      submitAll(rig);
      rig.run();
      expect(rig.tokens).toEqual(alone);
      const { prefixHitTotal } = rig.loads()[0]!;
      expect(prefixHitTotal).toBeGreaterThan(64);
      rig.submit([spec(1, 0)]);
      rig.run();
      expect(rig.tokens).toEqual([...alone, alone[forks]!]);
      expect(rig.loads()[0]!.prefixHitTotal).toBeGreaterThan(prefixHitTotal);
      expect(rig.close()).toEqual(asRecorded);
    });

    test("with too few pages they are preempted and computed again", () => {
      const rig = new FleetRig(1, () => open(9, 5));
      submitAll(rig);
      rig.run();
      expect(rig.tokens).toEqual(alone);
      expect(rig.loads()[0]!.preemptionsTotal).toBeGreaterThan(0);
      expect(rig.close()).toEqual(asRecorded);
    });

    test("they continue after the loss of both engines, one after the other", () => {
      const rig = new FleetRig(2, () => open(64, 24));
      submitAll(rig);
      const drawn = () => rig.tokens.reduce((sum, { length }) => sum + length, 0);
      rig.run(() => drawn() >= 40);
      rig.lose(0);
      rig.run(() => drawn() >= 120);
      rig.lose(1);
      rig.run();
      expect(rig.tokens).toEqual(alone);
      expect(rig.close()).toEqual(asRecorded);
    });
  },
);
