/** Open WebUI beside several models: through Ollama's API, and through OpenAI's under a prefix. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { modelsOf, openChat, startOpenWebui, until } from "../agents/open-webui.mjs";
import { settingsOf } from "../agents/settings.mjs";

const names = ["first", "second", "embed"];

/** Asks the server at `url` through Open WebUI, whose executable is in the folder `bin`; returns failures. */
export async function askThroughOpenWebui(url, bin, log) {
  const home = mkdtempSync(join(tmpdir(), "bunting-open-webui-"));
  const { command, env } = settingsOf("Open WebUI", url);
  const settings = {
    ...{ ...env, PATH: `${bin}:${process.env.PATH}`, HOME: home, RAG_EMBEDDING_MODEL: "embed" },
    ...{ ENABLE_OLLAMA_API: "True", OLLAMA_BASE_URL: url },
  };
  const failures = [];
  const expect = (what, found, wanted) => {
    const [is, should] = [found, wanted].map((value) => JSON.stringify(value));
    if (is !== should) failures.push(`${what}: ${is} in place of ${should}`);
  };
  const web = await startOpenWebui(command, settings, log);
  const { ask } = web;
  const present = async () => (await ask("GET", "/ollama/api/ps")).models.map(({ model }) => model);
  try {
    expect("models", await modelsOf(web), names);
    await ask("POST", "/openai/config/update", {
      ENABLE_OPENAI_API: true,
      OPENAI_API_BASE_URLS: [`${url}/v1`],
      OPENAI_API_KEYS: ["none"],
      OPENAI_API_CONFIGS: { 0: { enable: true, prefix_id: "v1" } },
    });
    const both = [...names.map((name) => `v1.${name}`), ...names];
    expect(
      "models of both",
      (await ask("GET", "/api/models?refresh=true")).data.map(({ id }) => id),
      both,
    );

    // The demo model's context has no room for the page's own tools.
    const say = openChat(web, { params: { function_calling: "legacy" }, tasks: {} });
    const answers = [];
    for (const model of ["first", "second", "v1.first", "v1.second"]) {
      answers.push((await say(model, "Who are you?")).content);
      expect(`loaded after ${model}`, await present(), [model.replace("v1.", "")]);
    }
    expect("empty answers", answers.filter((answer) => answer === "").length, 0);
    const refused = (await say("embed", "Who are you?")).error?.content ?? "";
    expect("refusal of a chat", refused.includes("writes no text"), true);

    await ask("POST", "/ollama/api/unload", { model: "second" });
    await until(async () => (await present()).length === 0);
    const { embeddings } = await ask("POST", "/ollama/api/embed", { model: "embed", input: ["a", "b"] });
    expect(
      "vectors",
      embeddings.map(({ length }) => length),
      [96, 96],
    );
    const pulled = (await ask("POST", "/ollama/api/pull/0", { model: "Tiny/Demo" })).trim().split("\n");
    expect("end of a pull", JSON.parse(pulled.at(-1)), { status: "success" });
    const kept = await ask("DELETE", "/ollama/api/delete/0", { model: "first" }).catch(String);
    expect("refusal to delete", kept.includes("models are not made, copied, sent or deleted here"), true);
  } finally {
    await web.close();
    rmSync(home, { recursive: true, force: true });
  }
  return failures;
}
