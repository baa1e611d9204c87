/** Anthropic's own client: the model calls a tool, this program runs it, and the model tells its result. */
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({
  baseURL: process.env.BUNTING_URL ?? "http://127.0.0.1:8000",
  apiKey: process.env.BUNTING_API_KEY ?? "none",
});

const [model] = (await client.models.list()).data;

const tools: Anthropic.Tool[] = [
  {
    name: "get_weather",
    description: "Get the current weather in a city.",
    input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];
const messages: Anthropic.MessageParam[] = [{ role: "user", content: "What is the weather in Oslo?" }];
const ask = () => client.messages.create({ model: model!.id, max_tokens: 200, tools, messages });

let answer = await ask();
while (answer.stop_reason === "tool_use") {
  const results: Anthropic.ToolResultBlockParam[] = [];
  for (const block of answer.content) {
    if (block.type !== "tool_use") continue;
    console.log(`${block.name}(${JSON.stringify(block.input)})`);
    results.push({
      type: "tool_result",
      tool_use_id: block.id,
      content: '{"temperature": 7, "sky": "cloudy"}',
    });
  }
  messages.push({ role: "assistant", content: answer.content }, { role: "user", content: results });
  answer = await ask();
}
for (const block of answer.content) if (block.type === "text") console.log(block.text);
