import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { ControlTexts } from "./control-text.ts";
import { ChatTemplate } from "./template.ts";
import { chosenTemplate, readTemplateSource, readTemplates } from "./template-source.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-template-"));
afterAll(() => rmSync(scratch, { recursive: true }));

function folder(files: Record<string, string | object>): string {
  const path = mkdtempSync(join(scratch, "folder-"));
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(path, name)), { recursive: true });
    writeFileSync(join(path, name), typeof content === "string" ? content : JSON.stringify(content));
  }
  return path;
}

describe("the usual template", () => {
  test("is a file of its own before the configuration", () => {
    const config = { chat_template: "config", eos_token: { content: "</s>" }, bos_token: null };
    expect(
      readTemplateSource(folder({ "chat_template.jinja": "file", "tokenizer_config.json": config })),
    ).toEqual({
      template: "file",
      toolTemplate: null,
      specialTokens: { eos_token: "</s>" },
    });
  });

  test("is the default one of named templates, beside the one for tools", () => {
    const named = [
      { name: "default", template: "plain {{ x }}" },
      { name: "tool_use", template: "tools" },
    ];
    const source = readTemplateSource(folder({ "tokenizer_config.json": { chat_template: named } }))!;
    expect(source).toEqual({ template: "plain {{ x }}", toolTemplate: "tools", specialTokens: {} });
    const chat = new ChatTemplate(source, new ControlTexts([]));
    expect(chat.render([], { addGenerationPrompt: true, tools: [{}] }).text).toBe("tools");
    expect(chat.render([], { addGenerationPrompt: true }).text).toBe("plain ");
  });

  test("may be in chat_template.json or processor_config.json alone", () => {
    for (const name of ["chat_template.json", "processor_config.json"])
      expect(readTemplateSource(folder({ [name]: { chat_template: "plain" } }))?.template).toBe("plain");
    const both = {
      "chat_template.json": { chat_template: "images" },
      "tokenizer_config.json": { chat_template: "text" },
    };
    expect(readTemplateSource(folder(both))?.template).toBe("text");
  });

  test("for tools may be a file beside it", () => {
    const files = { "chat_template.jinja": "plain", "additional_chat_templates/tool_use.jinja": "tools" };
    expect(readTemplateSource(folder(files))).toEqual({
      template: "plain",
      toolTemplate: "tools",
      specialTokens: {},
    });
    const config = {
      "tokenizer_config.json": { chat_template: "config" },
      "additional_chat_templates/tool_use.jinja": "t",
    };
    expect(readTemplateSource(folder(config))).toEqual({
      template: "config",
      toolTemplate: "t",
      specialTokens: {},
    });
  });

  test("is null where there is none, and an error where no template is the default one", () => {
    expect(readTemplateSource(folder({}))).toBeNull();
    const named = { chat_template: [{ name: "rag", template: "" }] };
    expect(() => readTemplateSource(folder({ "tokenizer_config.json": named }))).toThrow(
      'there is no chat template "default" among rag',
    );
    expect(() => readTemplateSource(folder({ "additional_chat_templates/rag.jinja": "" }))).toThrow(
      "among rag",
    );
  });
});

describe("a chosen template", () => {
  const dir = folder({ "chat_template.jinja": "plain", "additional_chat_templates/rag.jinja": "documents" });
  const set = readTemplates(dir);

  test("is one of the model's, by its name, or a file", () => {
    expect(chosenTemplate("rag", set).template).toBe("documents");
    expect(chosenTemplate(join(dir, "chat_template.jinja"), set).template).toBe("plain");
  });

  test("that does not exist is an error that names the model's", () => {
    expect(() => chosenTemplate("no-such", set)).toThrow(
      "no-such is no file, and no name of a chat template; the model has default, rag",
    );
  });
});

describe("special tokens", () => {
  const tokensOf = (files: Record<string, object>) =>
    readTemplateSource(folder({ "chat_template.jinja": "x", ...files }))!.specialTokens;

  test("may stand in their own file alone", () => {
    expect(
      tokensOf({ "special_tokens_map.json": { bos_token: "<s>", eos_token: { content: "</s>" } } }),
    ).toEqual({
      bos_token: "<s>",
      eos_token: "</s>",
    });
  });

  test("of their own file count before the configuration's, unless that lists added tokens", () => {
    const map = { "special_tokens_map.json": { bos_token: "<map>", eos_token: "</map>" } };
    expect(tokensOf({ ...map, "tokenizer_config.json": { bos_token: "<config>" } })).toEqual({
      bos_token: "<map>",
      eos_token: "</map>",
    });
    const listed = { bos_token: "<config>", added_tokens_decoder: {} };
    expect(tokensOf({ ...map, "tokenizer_config.json": listed })).toEqual({
      bos_token: "<config>",
      eos_token: "</map>",
    });
  });

  test("may be a model's own", () => {
    const config = {
      image_token: "<image>",
      extra_special_tokens: { boi_token: "<boi>" },
      tokenizer_class: "X",
    };
    expect(tokensOf({ "tokenizer_config.json": config })).toEqual({
      boi_token: "<boi>",
      image_token: "<image>",
    });
  });
});
