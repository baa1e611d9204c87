import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hubSettings } from "./settings.ts";

test("the variables of Hugging Face's clients hold", () => {
  const home = mkdtempSync(join(tmpdir(), "bunting-home-"));
  writeFileSync(join(home, "token"), "stored\n");
  const settings = hubSettings({ HF_HOME: home });
  rmSync(home, { recursive: true });
  expect(settings).toEqual({
    endpoint: "https://huggingface.co",
    token: "stored",
    cache: join(home, "hub"),
    isOffline: false,
  });
  const given = {
    HF_ENDPOINT: "https://hub.example/",
    HF_TOKEN: "t",
    HF_HUB_CACHE: "/c",
    HF_HUB_OFFLINE: "yes",
  };
  expect(hubSettings({ ...given, HF_HOME: home })).toEqual({
    endpoint: "https://hub.example",
    token: "t",
    cache: "/c",
    isOffline: true,
  });
  expect(hubSettings({ XDG_CACHE_HOME: "/x" }).cache).toBe("/x/huggingface/hub");
  expect(() => hubSettings({ HF_ENDPOINT: "hub.example" })).toThrow("wanted: an address");
});
