/**
 * Search in a long text that all users share. Every call begins with the text, so the server computes it once
 * and reads it from the prefix cache afterwards. Here eight users ask at the same time.
 */
import { chat, input, output, user } from "../sdk/src/index.ts";

const names = ["Mia", "Tom", "Ada", "Leo", "Eva", "Max", "Ruth"];
const animals = ["cat", "dog", "horse", "rabbit", "fox", "owl", "mouse", "bear", "hen", "duck", "goat"];
const places = ["garden", "forest", "village", "river", "market"];
const sentences = Array.from({ length: 100 }, (_, number) =>
  number % 2 === 0
    ? `The ${animals[number % 11]} is in the ${places[number % 5]}.`
    : `${names[number % 7]} is ${20 + ((number * 17) % 60)} years old.`,
);
sentences.splice(70, 0, "The name of the ship is Varilon.");
sentences.splice(30, 0, "The secret code is 739204.");
const text = sentences.join(" ");

const search = chat([user`${input("text")} ${input("question")}`], output("answer", { temperature: 0 }));

const questions = ["What is the secret code?", "What is the name of the ship?"];
const users = Array.from({ length: 8 }, (_, number) => questions[number % 2]!);
const answers = await Promise.all(users.map((question) => search({ text, question }).answer.get("latency")));
for (const answer of answers) console.log(answer);
