// `npm run nightly [-- minutes]`: runs every property on many more cases, with new seeds in each round, until
// the minutes (default 60) are over or a round fails.

import { propertyTests, runGroups, summary } from "./groups.mjs";
import { SetupError } from "./process.mjs";
import { setUp } from "./setup.mjs";

const MINUTES = 60;
/** Factor of cases per round, relative to `npm test`. */
const TIMES = 20;

export async function main([argument = String(MINUTES)]) {
  const minutes = Number(argument);
  if (!(minutes > 0)) throw new SetupError(`${argument} is no number of minutes.`);
  await setUp(["bunting_cpu"]);
  const endMs = performance.now() + minutes * 60_000;
  let total;
  do {
    total = await runGroups([propertyTests(TIMES)]);
  } while (total.failed === 0 && performance.now() < endMs);
  console.log(summary(total));
  return total.failed > 0 ? 1 : 0;
}
