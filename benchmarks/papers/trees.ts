/** Prefix trees of traces: prompts as numbers that are equal where the texts are. */

import { type PromptTable, promptTable } from "../../scheduler/job/prefix-tree.ts";
import { agentsOf, readTrace } from "../../server/cli/simulate/traces.ts";
import { conversations, parseMooncake } from "../../simulation/workloads/conversation.ts";

const AGENTS = 20;

/** By name. A block of Mooncake's traces, 512 tokens, is one number; agents' texts are a number for every four characters. */
export function traceTables(folder: string | null): readonly (readonly [string, PromptTable])[] {
  const blocks = (name: "mooncake" | "mooncakeSynthetic"): PromptTable => {
    const text = readTrace(folder, name);
    const calls =
      text === null ? conversations({ callsPerSecond: 3.4, calls: 12_031 }, 1) : parseMooncake(text);
    return promptTable(calls.map((call) => call.blocks));
  };
  const agents = agentsOf(folder, AGENTS).rows.flat();
  return [
    ["conversation", blocks("mooncake")],
    ["synthetic", blocks("mooncakeSynthetic")],
    ["agents", promptTable(agents.map((call) => call.promptTokens()))],
  ];
}
