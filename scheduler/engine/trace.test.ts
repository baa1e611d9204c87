/** Golden step traces: what the scheduler decides, step by step. A change here needs a sentence in the
 *  commit. */

import { expect, test } from "bun:test";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness, type HarnessOptions } from "../../tests/support/engine-harness.ts";
import type { SequenceSpec } from "../core.ts";
import { traceHeader } from "./trace.ts";

function traceOf(options: HarnessOptions, specs: readonly Omit<SequenceSpec, "id">[]): string {
  const harness = new EngineHarness(options);
  for (const spec of specs) harness.submit(spec);
  harness.finish();
  return `\n${traceHeader}\n${harness.trace}\n`;
}

test("a long prompt never delays a decode", () => {
  const trace = traceOf({ spec: { pages: 256 }, engine: { batch: staticBudget(512) } }, [
    sequenceSpec(tokensFrom(0, 700), 6),
    sequenceSpec(tokensFrom(350, 1500), 2),
  ]);
  expect(trace).toMatchInlineSnapshot(`
    "
        t_ms  step  decode prompt  pages    chunks                            notes
        0.00     1       0    512  44/256   A[0..512)
       16.24     2       0    512  138/256  A[512..700) B[0..324)             A first 32.48
       32.48     3       1    511  138/256  A+1 B[324..835)
       48.72     4       1    511  138/256  A+1 B[835..1346)
       64.96     5       1    154  138/256  A+1 B[1346..1500)                 B first 74.06
       74.06     6       2      0  138/256  A+1 B+1                           B length
       80.10     7       1      0  45/256   A+1                               A length
    "
  `);
});

test("equal beginnings are computed once: the others wait a step, and copy the page that they share in part", () => {
  const trace = traceOf({ engine: { batch: staticBudget(512) } }, [
    sequenceSpec(tokensFrom(0, 300), 4),
    sequenceSpec(tokensFrom(0, 300), 2),
    sequenceSpec([...tokensFrom(0, 200), ...tokensFrom(700, 110)], 2),
    sequenceSpec(tokensFrom(500, 90), 2),
  ]);
  expect(trace).toMatchInlineSnapshot(`
    "
        t_ms  step  decode prompt  pages    chunks                            notes
        0.00     1       0    390  25/64    D[0..90) A[0..300)                B waits for A, C waits for A, D first 13.80, A first 13.80
       13.80     2       2    122  34/64    A+1 D+1 B[288..300) C[200..310)   B cached 288, C cached 200, D length, B first 22.28, C first 22.28
       22.28     3       3      0  28/64    A+1 B+1 C+1                       B length, C length
       28.34     4       1      0  19/64    A+1                               A length
    "
  `);
});

test("too few pages: the youngest gives way, and comes back to what is left of its pages", () => {
  const trace = traceOf({ spec: { pages: 6 }, engine: { admission: { watermark: 0 } } }, [
    sequenceSpec(tokensFrom(0, 30), 36),
    sequenceSpec(tokensFrom(100, 30), 20),
  ]);
  expect(trace).toMatchInlineSnapshot(`
    "
        t_ms  step  decode prompt  pages    chunks                            notes
        0.00     1       0     60  4/6      A[0..30) B[0..30)                 A first 7.20, B first 7.20
        7.20     2       2      0  4/6      A+1 B+1
       13.24     3       2      0  4/6      A+1 B+1
       19.28     4       2      0  6/6      A+1 B+1
       25.32     5       2      0  6/6      A+1 B+1
       31.36     6       2      0  6/6      A+1 B+1
       37.40     7       2      0  6/6      A+1 B+1
       43.44     8       2      0  6/6      A+1 B+1
       49.48     9       2      0  6/6      A+1 B+1
       55.52    10       2      0  6/6      A+1 B+1
       61.56    11       2      0  6/6      A+1 B+1
       67.60    12       2      0  6/6      A+1 B+1
       73.64    13       2      0  6/6      A+1 B+1
       79.68    14       2      0  6/6      A+1 B+1
       85.72    15       2      0  6/6      A+1 B+1
       91.76    16       2      0  6/6      A+1 B+1
       97.80    17       2      0  6/6      A+1 B+1
      103.84    18       2      0  6/6      A+1 B+1
      109.88    19       2      0  6/6      A+1 B+1
      115.92    20       1      0  4/6      A+1                               B preempted
      121.94    21       1      0  4/6      A+1
      127.96    22       1      0  4/6      A+1
      133.98    23       1      0  4/6      A+1
      140.00    24       1      0  4/6      A+1
      146.02    25       1      0  4/6      A+1
      152.04    26       1      0  4/6      A+1
      158.06    27       1      0  4/6      A+1
      164.08    28       1      0  4/6      A+1
      170.10    29       1      0  4/6      A+1
      176.12    30       1      0  4/6      A+1
      182.14    31       1      0  4/6      A+1
      188.16    32       1      0  4/6      A+1
      194.18    33       1      0  4/6      A+1
      200.20    34       1      0  4/6      A+1
      206.22    35       1      0  4/6      A+1
      212.24    36       1      0  5/6      A+1                               A length
      218.26    37       0     33  4/6      B[16..49)                         B cached 16, B length
    "
  `);
});

test("several prompts are partly done at once, and leave in the order in which they came", () => {
  const trace = traceOf(
    { engine: { batch: staticBudget(64), admission: { sequencesMax: 3 } } },
    [0, 1, 2, 3].map((i) => sequenceSpec(tokensFrom(i * 200, 50), 2)),
  );
  expect(trace).toMatchInlineSnapshot(`
    "
        t_ms  step  decode prompt  pages    chunks                            notes
        0.00     1       0     64  8/64     A[0..50) B[0..14)                 A first 7.28
        7.28     2       1     63  12/64    A+1 B[14..50) C[0..27)            A length, B first 14.56
       14.56     3       1     63  12/64    B+1 C[27..50) D[0..40)            B length, C first 21.84
       21.84     4       1     10  8/64     C+1 D[40..50)                     C length, D first 28.06
       28.06     5       1      0  4/64     D+1                               D length
    "
  `);
});
