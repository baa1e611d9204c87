/**
 * Agents in three rounds: two writers collect things about their subjects, an editor brings each list into a line, a critic picks
 * one thing of it. All six calls are one program: each round of an agent begins when what it reads is there, and the two lines of
 * work never wait for each other.
 */
import { chat, input, output, user, type Value } from "../sdk/src/index.ts";

const greedy = { temperature: 0 };
const writer = chat([user`Make a short list about ${input("subject")}.`], output("list", greedy));
const editor = chat([user`Join these items with commas:\n${input("list")}`], output("items", greedy));
const critic = chat([user`Pick the longest item: ${input("items")}`], output("pick", greedy));

function bestOf(subject: string): Value<string> {
  const { list } = writer({ subject });
  const { items } = editor({ list });
  return critic({ items }).pick;
}

const picks = await Promise.all(["the forest", "music"].map((subject) => bestOf(subject).get("latency")));
console.log(picks.join(", "));
