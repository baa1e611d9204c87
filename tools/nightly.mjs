// `npm run nightly [-- minutes]`: every property on many more cases, with other seeds in each round, until the minutes are
// over (60 if not said) or a round has failed.

import { propertyTests, runGroups, summary } from "./groups.mjs";
import { SetupError, setUp } from "./setup.mjs";

const MINUTES = 60;
/** Cases of a round, in those of `npm test`. */
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
