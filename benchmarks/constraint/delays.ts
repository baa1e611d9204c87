/** Delays of device steps by masks. */

import { SeededRandom } from "../../base/random.ts";
import { ConstrainedDevice } from "../../gpu/constrained-device.ts";
import { allAtOnce } from "../../grammar/mask/job.ts";
import type { Vocabulary } from "../../grammar/mask/vocabulary.ts";
import { type Chunk, greedySampling, type Sampled, type SequenceId } from "../../scheduler/core.ts";
import type { Device, DeviceSpec } from "../../scheduler/device.ts";
import { compile, quantiles, worstMasks } from "./cases.ts";
import { threadMs } from "./thread-clock.ts";

const DELAY_STEPS = 120;
/** Warm-up steps of a device. */
const COLD_STEPS = 5;

/** Measures how masks for four answers under the worst schemas delay a step, beside a free answer. */
export function measureDelays(vocabulary: Vocabulary, workSteps: number): void {
  const { size } = vocabulary;
  const random = new SeededRandom(1);
  const drawing: Device = {
    spec: { vocabSize: size } as DeviceSpec,
    start: ({ chunks }, done) => {
      const sampled = chunks.flatMap(({ sequence, samples: [row] }): Sampled[] => {
        if (row === undefined || row.wants === "hidden") return [];
        let token = random.below(size);
        while (row.allowed !== null && ((row.allowed[token >>> 5]! >>> (token & 31)) & 1) === 0)
          token = (token + 1) % size;
        return [{ kind: "token", sequence, token, logprobs: null }];
      });
      done({ kind: "done", sampled, deviceMs: 0 });
    },
    close: () => {},
  };
  const device = new ConstrainedDevice(drawing, vocabulary, workSteps);
  allAtOnce(device.warmUp());
  const rows = worstMasks.map((schema) => ({ id: JSON.stringify(schema), grammar: compile(schema)! }));
  const drawn: number[][] = rows.map(() => []);
  const times: number[] = [];
  let tokens = 0;
  for (let step = 1; step <= DELAY_STEPS; step++) {
    const chunks = [null, ...rows].map((of, index): Chunk => {
      const own = drawn[index - 1] ?? [];
      const row = {
        afterIndex: 0,
        sampling: greedySampling,
        position: own.length,
        banned: [],
        seen: null,
        allowed: null,
      };
      const constraint =
        of === null ? {} : { constraint: { of, drawn: Int32Array.from(own), endTokens: [] } };
      const sequence = index as SequenceId;
      return {
        sequence,
        start: 0,
        tokens: Int32Array.of(0),
        pages: Int32Array.of(0),
        samples: [{ ...row, ...constraint }],
        adapter: 0,
      };
    });
    const beganMs = threadMs();
    device.start({ number: step, moves: [], chunks }, (result) => {
      if (result.kind !== "done") return;
      for (const one of result.sampled) {
        if (one.kind === "token" && one.sequence > 0) {
          tokens += 1 + (one.forced?.length ?? 0);
          drawn[one.sequence - 1]!.push(one.token, ...(one.forced ?? []));
        } else if (one.kind === "failed") drawn[one.sequence - 1] = []; // the text has ended
      }
    });
    times.push(threadMs() - beganMs);
  }
  console.log(
    `beside the worst schemas, ${workSteps} steps of work at a time: ms a step ${quantiles(times.slice(COLD_STEPS))}, the first ${COLD_STEPS} up to ${Math.max(...times.slice(0, COLD_STEPS)).toFixed(1)}; ${tokens} tokens in ${DELAY_STEPS} steps`,
  );
}
