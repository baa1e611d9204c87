/** OpenAI's own client: a streamed chat, and an answer that is held to a JSON Schema. */
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.BUNTING_URL ?? "http://127.0.0.1:8000"}/v1`,
  apiKey: process.env.BUNTING_API_KEY ?? "none",
});
const [model] = (await client.models.list()).data;

const stream = await client.chat.completions.create({
  model: model!.id,
  messages: [{ role: "user", content: "What is 47 plus 38?" }],
  temperature: 0,
  stream: true,
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? "");
console.log();

const schema = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
  additionalProperties: false,
};
const sentence = "Nora is 34 years old, lives in Lisbon and works as a baker.";
const answer = await client.chat.completions.create({
  model: model!.id,
  messages: [{ role: "user", content: `Extract name and age as JSON: ${sentence}` }],
  temperature: 0,
  response_format: { type: "json_schema", json_schema: { name: "person", schema, strict: true } },
});
console.log(JSON.parse(answer.choices[0]!.message.content!));
