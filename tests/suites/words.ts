/**
 * Answers of the suites' scripted model. In sessions of coding agents it answers by agents/acts.ts. Otherwise
 * the first rule applies whose pattern matches the last message of the user or a tool, as `role: text`. If
 * the answer is constrained, it is the first of the rule's texts that fits. `$1` stands for the pattern's
 * first group, `$seed` for the request's seed.
 */

import { actedIn, call } from "./agents/acts.ts";

interface Rule {
  readonly asked: RegExp;
  /** Pattern that the whole prompt, with its tools, must match too. */
  readonly offered?: RegExp;
  readonly says: readonly string[];
}

const joke = {
  setup: "Why did the cat sit on the computer?",
  punchline: "To keep an eye on the mouse.",
};

const rules: readonly Rule[] = [
  { asked: /^tool: ([\s\S]*)$/, says: ["The tool has answered: $1."] },
  { asked: /magic_function_no_args/, says: [call("magic_function_no_args", {})] },
  { asked: /magic_function\((\d+)\)/, says: [call("magic_function", { input: 3 })] },
  { asked: /Pirate greeting/, says: [call("greeting_generator", { answer_style: "Pirate" })] },
  { asked: /What is 3 \+ 4/, says: [call("my_adder_tool", { a: 3, b: 4 })] },
  {
    asked: /joke about cats/,
    says: [
      JSON.stringify(joke),
      call("Joke", joke),
      call("JokeDict", joke),
      call("final_result", joke),
      call("json_tool_call", joke),
      call("json", joke),
    ],
  },
  {
    asked: /Create a customer named '(.+?)'/,
    says: [`${call("unicode_customer", { customer_name: "$1", description: "A company" })}`],
  },
  {
    asked: /weather.* in San Francisco/,
    says: [call("get_weather", { location: "San Francisco, CA" })],
  },
  { asked: /best book/, says: ["Suddenly the best book of all began to speak, and suddenly it stopped."] },
  { asked: /^A$/, says: [" and again".repeat(100)] },
  { asked: /meaning of life is/, says: [" going to bed, and going, and going on: that is seed $seed."] },
  {
    asked: /Hello!/,
    says: ["Hello! How can I help you?", call("magic_function", { input: 1 })],
  },
];

const otherwise = ["Hello. I am a scripted model, and this is all that I have to say."];

/**
 * Returns the texts for a prompt: plain, or in the demo model's template, whose last turn is the one to
 * write.
 */
export function wordsFor(prompt: string, seed: number): readonly string[] {
  const turns = prompt.split("<|im_start|>").slice(0, -1);
  const acted = actedIn(prompt, turns);
  if (acted !== null) return acted;
  const last = turns.findLast((turn) => /^(user|tool)\n/.test(turn)) ?? prompt;
  const asked = last.replace("\n", ": ").replace(/<\|im_end\|>\s*$/, "");
  for (const rule of rules) {
    const found = rule.asked.exec(asked);
    if (found !== null && (rule.offered === undefined || rule.offered.test(prompt)))
      return rule.says.map((text) =>
        text.replaceAll("$1", () => found[1] ?? "").replaceAll("$seed", String(seed)),
      );
  }
  return otherwise;
}
