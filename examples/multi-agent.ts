/**
 * Agents in three rounds: two writers make lists about their subjects, an editor joins each list to one line,
 * and a critic picks one item. All six calls form one program. Each call begins when its input exists, and
 * the two chains never wait for each other.
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
