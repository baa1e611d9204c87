import { expect, test } from "bun:test";
import { Command, Option } from "commander";
import { variableProblem } from "./variables.ts";

const program = new Command("bunting");
program
  .command("serve")
  .addOption(new Option("--port <number>").env("BUNTING_PORT"))
  .addOption(new Option("--step-tokens <number>").env("BUNTING_STEP_TOKENS"))
  .addOption(new Option("--insecure"));

test.each([
  [{ BUNTING_PORT: "1", BUNTING_STEP_TOKENS: "1", PROT: "1" }, null],
  [{ BUNTING_PROT: "1" }, "BUNTING_PROT is not a setting; did you mean BUNTING_PORT?"],
  [{ BUNTING_STEPTOKENS: "1" }, "BUNTING_STEPTOKENS is not a setting; did you mean BUNTING_STEP_TOKENS?"],
  [
    { BUNTING_INSECURE: "1" },
    "BUNTING_INSECURE sets nothing: --insecure is a switch of the command line and the configuration file.",
  ],
  [{ BUNTING_HOME_PAGE: "1" }, null],
  [{ BUNTING_PART: "1" }, "BUNTING_PART is not a setting; did you mean BUNTING_PORT?"],
  [{ BUNTING_POT: "1" }, "BUNTING_POT is not a setting; did you mean BUNTING_PORT?"],
  [{ BUNTING_BOT: "1" }, null],
])("%j", (env, problem) => {
  expect(variableProblem(program, env)).toBe(problem);
});
