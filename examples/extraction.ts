/**
 * Extraction of a list whose length only the model knows. One call writes a list, and the server runs another
 * call for each of its lines; the results come back in order. A last call extracts typed fields as JSON.
 */
import { chat, input, json, lines, map, output, regex, user } from "../sdk/src/index.ts";

const greedy = { temperature: 0 };
const list = chat([user`List three ${input("kind")}.`], output("items", { ...greedy, as: lines() }));
const define = chat(
  [user`What is a ${input("word")}?`],
  output("definition", { ...greedy, as: regex("\\): (.*)") }),
);
const extract = chat(
  [user`Extract name, age and city as JSON: ${input("sentence")}`],
  output("person", { ...greedy, as: json<{ name: string; age: number; city: string }>() }),
);

const { items } = list({ kind: "fruits" });
const definitions = map(items, (word) => define({ word }).definition);
const { person } = extract({
  sentence: "Nora is 34 years old, lives in Lisbon and works as a baker.",
});

const [words, meanings, { name, age }] = await Promise.all([items.get(), definitions.get(), person.get()]);
words.forEach((word, index) => {
  console.log(`${word}: ${meanings[index]}`);
});
console.log(`${name} will be ${age + 1}.`);
