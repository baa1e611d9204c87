/**
 * Speed of copies between a GPU's pages and places in the host's memory (--kv-host): down, up, and both at once,
 * in bytes per second, and milliseconds that beginning the copy of a page takes the engine's thread.
 *
 *   bun benchmarks/gpu/host-copies.ts <library> <folder of a model> [--pages 256] [--rounds 5]
 */

import { parseArgs } from "node:util";
import { openGpuDevice, openNativeModel, PAGE_TOKENS } from "../../gpu/native/open.ts";
import { openLibrary } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";

const { values, positionals } = parseArgs({
  options: { pages: { type: "string", default: "256" }, rounds: { type: "string", default: "5" } },
  allowPositionals: true,
});
const [path, dir] = positionals;
const count = Number(values.pages);
const library = openLibrary(path!);
const compute = { compute: "bf16", isa: "auto", threads: 4, contextMax: null, packedFolders: [] } as const;
const model = openNativeModel(library, openModelFolder(dir!), compute, () => {});
const limits = { threads: 1, pages: 2 * count, pageTokens: PAGE_TOKENS, stepTokensMax: 64, stepChunksMax: 4 };
const states = model.stateBytes > 0 ? { states: 8 } : {};
const device = openGpuDevice(library, model, { ...limits, ...states, topLogprobsMax: 0 }, 0, () => {});
device.openPlaces(2 * count);
const { engine } = device.native;
const all = Int32Array.from({ length: 2 * count }, (_, index) => index);
const [first, second] = [all.slice(0, count), all.slice(count)];
const bytes = count * model.pageBytes;

function timed(work: () => void): number {
  const startedMs = performance.now();
  work();
  return performance.now() - startedMs;
}

const down = (): void => {
  library.sendPages(engine, first, first);
  library.waitSent(engine);
};
const up = (): void => library.fetchPages(engine, second, second);
const measured = { down: [] as number[], up: [] as number[], both: [] as number[], begin: [] as number[] };
for (let round = 0; round < Number(values.rounds); round += 1) {
  measured.down.push(timed(down));
  measured.up.push(timed(up));
  measured.both.push(
    timed(() => {
      measured.begin.push(timed(() => library.sendPages(engine, first, first)));
      up();
      library.waitSent(engine);
    }),
  );
}
const median = (times: readonly number[]): number =>
  times.toSorted((a, b) => a - b)[Math.floor(times.length / 2)]!;
const perSecond = (ms: number, copied: number): number => Math.round((1000 * copied) / ms);
const { down: downMs, up: upMs, both: bothMs, begin: beginMs } = measured;
console.log(
  JSON.stringify({
    host_copies: model.pageBytes,
    down_per_second: perSecond(median(downMs), bytes),
    up_per_second: perSecond(median(upMs), bytes),
    both_per_second: perSecond(median(bothMs), 2 * bytes),
    begin_page_ms: median(beginMs) / count,
  }),
);
device.close();
