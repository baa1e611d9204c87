/**
 * Chats once through the server on a GPU: `bun benchmarks/gpu/chat.ts <server's script> <model folder> <device>`. Prints a line
 * of JSON. Needs no package, for machines without them.
 */
import { resolve } from "node:path";
import { startServer } from "../started-server.ts";

const TOKENS = 64;

const [script, folder, device] = process.argv.slice(2);
if (script === undefined || folder === undefined || device === undefined) {
  console.error("chat.ts wants the server's script, a model and a device.");
  process.exit(2);
}
const startedMs = performance.now();
const command = [process.execPath, resolve(script), "serve", resolve(folder), "--device", device];
const server = await startServer(command, resolve(import.meta.dir, "../.."));
const readySeconds = (performance.now() - startedMs) / 1000;
const askedMs = performance.now();
const response = await fetch(`${server.target.url}/v1/chat/completions`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({
    messages: [{ role: "user", content: "Say something." }],
    max_tokens: TOKENS,
    ignore_eos: true,
    temperature: 0,
  }),
});
const answer = (await response.json()) as { readonly usage?: { readonly completion_tokens: number } };
const tokens = answer.usage?.completion_tokens ?? 0;
console.log(
  JSON.stringify({
    chat: response.status === 200 && tokens === TOKENS ? "answered" : "refused",
    status: response.status,
    tokens,
    readySeconds: Math.round(readySeconds * 10) / 10,
    perTokenMs: Math.round(((performance.now() - askedMs) / tokens) * 100) / 100,
  }),
);
if (tokens !== TOKENS) console.log(JSON.stringify(answer, null, 1));
await server.stop();
process.exit(tokens === TOKENS ? 0 : 1);
