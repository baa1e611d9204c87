/**
 * Long text with a hidden code and name, and questions about them that the embedded model answers correctly.
 */

const names = "Mia Tom Anna Ben Lena Paul Nora Max Ella Finn Ida Oscar Ruth Leo Clara Hugo".split(" ");
const colours = "red blue green yellow white black brown orange purple pink grey golden".split(" ");
const things = "kite ball boat book lamp chair hat coat cup bike drum flute clock basket blanket ring".split(
  " ",
);
const animals = "cat dog horse rabbit fox owl mouse bear hen duck goat sheep frog turtle parrot swan".split(
  " ",
);
const places = "garden forest village river market harbour school castle bridge meadow lake library".split(
  " ",
);
const adjectives = "small brave quiet kind clever old young happy curious gentle proud lazy".split(" ");

/**
 * Makes a filler sentence about belongings, animals or ages, a third each. Neighbouring numbers give
 * different sentences.
 */
function fillerSentence(number: number): string {
  const of = (words: readonly string[], factor: number) => words[(number * factor) % words.length]!;
  if (number % 3 === 0) return `${of(names, 5)} has a ${of(colours, 7)} ${of(things, 3)}.`;
  if (number % 3 === 1) return `The ${of(adjectives, 5)} ${of(animals, 7)} is in the ${of(places, 5)}.`;
  return `${of(names, 7)} is ${20 + ((number * 17) % 60)} years old.`;
}

export interface Recall {
  readonly question: string;
  readonly answer: string;
}

export const recalls: readonly Recall[] = [
  { question: "What is the secret code?", answer: "The secret code is 739204." },
  {
    question: "What is the name of the ship?",
    answer: "The name of the ship is Varilon.",
  },
];

/**
 * Text of about 1,500 tokens of the embedded model; the code is after a fifth of it, the name after three
 * quarters.
 */
export const longText: string = (() => {
  const sentences = Array.from({ length: 147 }, (_, number) => fillerSentence(number));
  sentences.splice(113, 0, "The name of the ship is Varilon.");
  sentences.splice(30, 0, "The secret code is 739204.");
  return sentences.join(" ");
})();
