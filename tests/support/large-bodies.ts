/**
 * Request bodies at or beyond the size limits, or with as much work: each could once block a server for all
 * clients.
 */
export interface LargeBody {
  readonly name: string;
  readonly route: string;
  readonly text: () => string;
  /** Status that the demo model's server answers with. */
  readonly status: number;
  readonly says: RegExp;
}

const completions = "/v1/completions";
const tooLong = /maximum context length is 2048 tokens/;
const tooMany = /arrays of 1048576 elements together at most/;
/**
 * Makes a pattern for texts whose seventeenth character from the end is this letter. Two such patterns
 * contradict each other, but a compiler needs its whole budget to see that.
 */
const seventeenth = (letter: string): object => ({ pattern: `^[ab]*${letter}[ab]{16}$` });
/** Schema that exhausts the compiler's budget and is refused. */
export const tooMuchWork: object = { type: "string", allOf: ["a", "b"].map(seventeenth) };
const message = { role: "user", content: "a b c ".repeat(100) };

export const largeBodies: readonly LargeBody[] = [
  {
    name: "30 MB of text",
    route: completions,
    text: () => JSON.stringify({ prompt: "a b c d ".repeat(3_750_000), max_tokens: 1 }),
    status: 400,
    says: tooLong,
  },
  {
    name: "15 million tokens",
    route: completions,
    text: () => `{"max_tokens":1,"prompt":[${"1,".repeat(15_000_000)}1]}`,
    status: 400,
    says: tooMany,
  },
  {
    name: "a million tokens",
    route: completions,
    text: () => `{"max_tokens":1,"prompt":[${"1,".repeat(1_000_000)}1]}`,
    status: 400,
    says: tooLong,
  },
  {
    name: "15 million numbers in an unknown field",
    route: completions,
    text: () => `{"max_tokens":1,"prompt":"a","x":[${"1,".repeat(15_000_000)}1]}`,
    status: 400,
    says: tooMany,
  },
  {
    name: "100,000 keys",
    route: completions,
    text: () =>
      JSON.stringify({
        prompt: "a",
        x: Object.fromEntries(Array.from({ length: 99_990 }, (_, i) => [`k${i}`, 1])),
      }),
    status: 400,
    says: /10000 different keys at most/,
  },
  {
    name: "15 million escapes",
    route: completions,
    text: () => `{"max_tokens":1,"prompt":"${"\\n".repeat(15_000_000)}"}`,
    status: 400,
    says: tooLong,
  },
  {
    name: "10,000 messages",
    route: "/v1/chat/completions",
    text: () => JSON.stringify({ messages: Array.from({ length: 10_000 }, () => message), max_tokens: 1 }),
    status: 400,
    says: tooLong,
  },
  {
    // Only rendering shows that the template's output is too long.
    name: "10,000 empty messages",
    route: "/v1/chat/completions",
    text: () =>
      JSON.stringify({ messages: Array.from({ length: 10_000 }, () => ({ role: "user", content: "" })) }),
    status: 400,
    says: tooLong,
  },
  {
    name: "a schema that takes too much work",
    route: "/v1/chat/completions",
    text: () => {
      const format = { type: "json_schema", json_schema: { name: "s", schema: tooMuchWork } };
      return JSON.stringify({ messages: [message], response_format: format });
    },
    status: 400,
    says: /invalid_schema.*(steps of work|more than 500 ms)|(steps of work|more than 500 ms).*invalid_schema/,
  },
];
