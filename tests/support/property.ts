/** Settings of property tests: new cases in each run. */

import fc from "fast-check";

/** Seed printed by a failure, to repeat it. Unset: another seed for every property. */
const SEED = numberOf("PROPERTY_SEED");
/** Factor on the number of cases (`npm run nightly`). */
const TIMES = numberOf("PROPERTY_TIMES") ?? 1;

/** Returns settings for `fc.assert`: `count` cases, and a failure message that says how to repeat it. */
export function runs<Values>(count: number): fc.Parameters<Values> {
  return {
    numRuns: count * TIMES,
    ...(SEED === null ? {} : { seed: SEED }),
    reporter: (run) => {
      if (!run.failed) return;
      const times = TIMES === 1 ? "" : `PROPERTY_TIMES=${TIMES} `;
      const repeat = `Repeat it: PROPERTY_SEED=${run.seed} ${times}npx bun test <this file>`;
      const reason = `${fc.defaultReportMessage(run)}\n\n${run.errorInstance}`;
      throw new Error(`${reason}\n\n${repeat}`, { cause: run.errorInstance });
    },
  };
}

function numberOf(name: string): number | null {
  const text = process.env[name];
  if (text === undefined) return null;
  const value = Number(text);
  if (text.trim() === "" || !Number.isInteger(value))
    throw new Error(`${name} is ${text}, not a whole number.`);
  return value;
}
