import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { requestLimits } from "../../request/limits.ts";
import { harmless, unsupported } from "./support.ts";

const reference = readFileSync(join(import.meta.dir, "../../../docs/reference/http.md"), "utf8");

test("the reference names every field that is refused or has no effect", () => {
  const missing = [...harmless, ...Object.keys(unsupported)].filter(
    (name) => !reference.includes(`\`${name}\``),
  );
  expect(missing).toEqual([]);
});

test("the reference states the limits", () => {
  const { choicesMax, stopStringsMax, stopStringBytesMax, stopTokensMax, logitBiasMax } = requestLimits;
  const { toolsMax, toolDescriptionCharactersMax, toolParametersBytesMax } = requestLimits;
  for (const stated of [
    `| \`n\` | 1 to ${choicesMax};`,
    `at most ${stopStringsMax}, of at most ${stopStringBytesMax} bytes each`,
    `| \`stop_token_ids\` | at most ${stopTokensMax} |`,
    `at most ${logitBiasMax} tokens`,
    `1 to ${requestLimits.allowedTokensMax.toLocaleString("en-US")} tokens`,
    `at most ${requestLimits.badWordsMax}, of at most ${requestLimits.badWordBytesMax} bytes each`,
    `boolean and 0 to ${requestLimits.topLogprobsMax}; completions: 0 to ${requestLimits.topLogprobsMax}`,
    `1 to ${requestLimits.messagesMax.toLocaleString("en-US")}; roles`,
    `at most ${requestLimits.promptsMax} of either`,
    `1 to ${requestLimits.cacheSaltCharactersMax} characters`,
    `0 to ${requestLimits.temperatureMax}; below`,
    `up to ${requestLimits.flatTemperatureMax} together with \`min_p\` or \`top_k\``,
    `| at most ${toolsMax.toLocaleString("en-US")} tools;`,
    `at most ${toolDescriptionCharactersMax.toLocaleString("en-US")} characters`,
    `${toolParametersBytesMax.toLocaleString("en-US")} bytes of JSON`,
  ]) {
    expect(reference).toContain(stated);
  }
});
