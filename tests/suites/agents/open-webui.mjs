/**
 * Open WebUI as packaged: the test sends its server the requests of its page, and the server keeps the chat.
 */
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

const secondsMax = 300;

/** User-defined tool, in Python. */
const tool = `class Tools:
    def add_numbers(self, first: int, second: int) -> str:
        """
        Adds two numbers.
        :param first: the first number
        :param second: the second number
        """
        return str(first + second)
`;

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  return port;
}

/** Polls `answers` until it returns a value. */
export async function until(answers) {
  const endMs = Date.now() + secondsMax * 1000;
  for (;;) {
    const found = await answers().catch(() => null);
    if (found) return found;
    if (Date.now() > endMs) throw new Error(`nothing within ${secondsMax} s`);
    await delay(100);
  }
}

/**
 * Starts the server, which logs to `log`. `ask` sends a request of the page: the body of an answer that is JSON, or the
 * text of another.
 */
export async function startOpenWebui([command, ...args], env, log) {
  const port = await freePort();
  const output = openSync(log, "w");
  const child = spawn(command, [...args, "--host", "127.0.0.1", "--port", String(port)], {
    env: { ...env, WEBUI_AUTH: "False", DATA_DIR: join(env.HOME, "data") },
    cwd: env.HOME,
    stdio: ["ignore", output, output],
  });
  closeSync(output);
  const origin = `http://127.0.0.1:${port}`;
  let token = "";
  const ask = async (method, path, body) => {
    const response = await fetch(origin + path, {
      method,
      headers: { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) },
      body: body && JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`Open WebUI: ${path}: ${response.status} ${text}`);
    return response.headers.get("content-type")?.startsWith("application/json") ? JSON.parse(text) : text;
  };
  const close = async () => {
    child.kill();
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  };
  try {
    await until(() => ask("GET", "/health"));
    ({ token } = await ask("POST", "/api/v1/auths/signin", { email: "", password: "" }));
  } catch (error) {
    await close();
    throw error;
  }
  return { ask, close };
}

/** IDs of the models that its page shows. */
export const modelsOf = async ({ ask }) => (await ask("GET", "/api/models")).data.map(({ id }) => id);

/** Titles of its notes. */
export const notesOf = async ({ ask }) => (await ask("GET", "/api/v1/notes/")).map(({ title }) => title);

/** Makes a tool that models may call; returns its ID. */
export async function makeTool({ ask }) {
  const meta = { description: "Adds" };
  return (await ask("POST", "/api/v1/tools/create", { id: "adder", name: "Adder", content: tool, meta })).id;
}

const titles = { title_generation: true, tags_generation: true, follow_up_generation: true };

/**
 * Opens a chat of its page: the function sends a message to a model, and waits for the answer. `params` are the
 * chat's settings; `tasks` are asked of the model beside the chat.
 */
export function openChat({ ask }, { toolIds = [], params = {}, tasks = titles } = {}) {
  const messages = [];
  let chatId = null;
  let parentId = null;
  return async (model, content) => {
    const [userId, answerId] = [randomUUID(), randomUUID()];
    const user = { id: userId, parentId, childrenIds: [answerId], role: "user", content, models: [model] };
    messages.push({ role: "user", content });
    const begun = await ask("POST", "/api/chat/completions", {
      stream: true,
      model,
      messages,
      params,
      tool_ids: toolIds,
      features: {},
      session_id: "page",
      ...(chatId === null ? {} : { chat_id: chatId }),
      parent_id: parentId,
      user_message: user,
      message_ids: [{ model_id: model, message_id: answerId }],
      background_tasks: tasks,
    });
    chatId ??= begun.chat_id;
    const answer = await until(async () => {
      const { chat } = await ask("GET", `/api/v1/chats/${chatId}`);
      const message = chat.history.messages[answerId];
      return message?.done && message;
    });
    parentId = answerId;
    messages.push({ role: "assistant", content: answer.content });
    return answer;
  };
}
