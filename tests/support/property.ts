/** How properties are run: on other cases each time. */

import fc from "fast-check";

/** What a failure printed, to repeat it. Unset: another seed for every property. */
const SEED = numberOf("PROPERTY_SEED");
/** How many times as many cases as the tests say (`npm run nightly`). */
const TIMES = numberOf("PROPERTY_TIMES") ?? 1;

/** Settings of `fc.assert`: `count` cases, and a failure that says how to repeat it. */
export function runs<Values>(count: number): fc.Parameters<Values> {
  return {
    numRuns: count * TIMES,
    ...(SEED === null ? {} : { seed: SEED }),
    reporter: (run) => {
      if (!run.failed) return;
      const times = TIMES === 1 ? "" : `PROPERTY_TIMES=${TIMES} `;
      const repeat = `Repeat it: PROPERTY_SEED=${run.seed} ${times}npx bun test <this file>`;
      throw new Error(`${fc.defaultReportMessage(run)}\n\n${repeat}`, { cause: run.errorInstance });
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
