import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openTemplate, openTokenizer } from "./model-text.ts";

const demo = join(import.meta.dir, "../models/demo");

test("a template that is no Jinja is refused by a sentence that names the model", () => {
  const folder = mkdtempSync(join(tmpdir(), "bunting-template-"));
  try {
    writeFileSync(join(folder, "chat_template.jinja"), "{% for message in messages %}");
    expect(() => openTemplate(folder, openTokenizer(demo))).toThrow(
      `${folder}: the chat template is not valid Jinja: `,
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});
