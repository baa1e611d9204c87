import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ApiKeys, tenantOf } from "./auth.ts";
import { ApiError } from "./errors.ts";

function isLetIn(keys: ApiKeys, headers: Record<string, string>): boolean {
  try {
    keys.authorize(new Headers(headers));
    return true;
  } catch (error) {
    expect(error).toBeInstanceOf(ApiError);
    expect((error as ApiError).status).toBe(401);
    expect((error as ApiError).detail.apiCode).toBe("invalid_api_key");
    return false;
  }
}

test("without keys everybody may enter", () => {
  expect(isLetIn(new ApiKeys({ keys: [], file: null }), {})).toBe(true);
});

test("a key is taken from each of the three headers, whole and exact", () => {
  const keys = new ApiKeys({ keys: ["secret", "other"], file: null });
  expect(isLetIn(keys, { authorization: "Bearer secret" })).toBe(true);
  expect(isLetIn(keys, { authorization: "bearer  other" })).toBe(true);
  expect(isLetIn(keys, { "x-api-key": "secret" })).toBe(true);
  expect(isLetIn(keys, { "api-key": "secret" })).toBe(true);
  for (const authorization of ["", "Bearer", "Bearer secre", "Bearer secret2", "Basic secret", "secret"]) {
    expect(isLetIn(keys, { authorization })).toBe(false);
  }
  expect(isLetIn(keys, {})).toBe(false);
});

test("a key that no client can send refuses the file", () => {
  const folder = mkdtempSync(join(tmpdir(), "bunting-keys-"));
  const file = join(folder, "keys");
  for (const row of ["second team", "schlüssel"]) {
    writeFileSync(file, `first # team\n${row}\n`);
    expect(() => new ApiKeys({ keys: [], file })).toThrow(
      "its key 2 holds a space or a character beyond ASCII",
    );
  }
  rmSync(folder, { recursive: true });
});

test("a key file is read again when it changes; while it is gone or empty the last keys stay", () => {
  const folder = mkdtempSync(join(tmpdir(), "bunting-keys-"));
  const file = join(folder, "keys");
  let nowMs = 0;
  writeFileSync(file, "# of the team\nfirst\n\n");
  const keys = new ApiKeys({ keys: ["flag"], file }, () => nowMs);
  const letIn = () =>
    ["flag", "first", "second", "# of the team"].filter((key) => isLetIn(keys, { "x-api-key": key }));
  expect(letIn()).toEqual(["flag", "first"]);

  writeFileSync(file, "second\n");
  nowMs += 2000;
  expect(letIn()).toEqual(["flag", "second"]);

  rmSync(file);
  nowMs += 2000;
  expect(letIn()).toEqual(["flag", "second"]);

  writeFileSync(file, "");
  nowMs += 2000;
  expect(letIn()).toEqual(["flag", "second"]);
  rmSync(folder, { recursive: true });
});

test("a key file may name its keys, and a name is no part of a key", () => {
  const folder = mkdtempSync(join(tmpdir(), "bunting-keys-"));
  const file = join(folder, "keys");
  writeFileSync(file, "first # blue team\nsecond#x\nthird  #\tred\n");
  const keys = new ApiKeys({ keys: ["flag"], file });
  const given = ["first", "second#x", "third", "first # blue team", "second"];
  expect(given.filter((key) => isLetIn(keys, { "x-api-key": key }))).toEqual(["first", "second#x", "third"]);
  const names = ["first", "second#x", "third", "flag"].map((key) => keys.nameOf(tenantOf(key)));
  expect(names).toEqual(["blue team", null, "red", null]);
  rmSync(folder, { recursive: true });
});

test("a key file that is missing or without keys at the start is an error", () => {
  expect(() => new ApiKeys({ keys: [], file: "/nonexistent/keys" })).toThrow("ENOENT");
  expect(() => new ApiKeys({ keys: [], file: "/dev/null" })).toThrow("it holds no key");
});

test("each key is a tenant of its own, in any header; without keys there is one", () => {
  const keys = new ApiKeys({ keys: ["first", "second"], file: null });
  const inOtherOrder = new ApiKeys({ keys: ["second", "first"], file: null });
  const { tenant: first } = keys.authorize(new Headers({ authorization: "Bearer first" }));
  const { tenant: second } = keys.authorize(new Headers({ "x-api-key": "second" }));
  expect(first).not.toBe(second);
  expect(first).not.toContain("first");
  expect(inOtherOrder.authorize(new Headers({ "api-key": "first" })).tenant).toBe(first);
  expect(new ApiKeys({ keys: [], file: null }).authorize(new Headers()).tenant).toBe("");
});

test("the operator's keys may see all, others their own; an operator's key alone closes the server", () => {
  const folder = mkdtempSync(join(tmpdir(), "bunting-keys-"));
  const adminFile = join(folder, "admins");
  writeFileSync(adminFile, "filed\n");
  const isAdmin = (keys: ApiKeys, key: string) => keys.authorize(new Headers({ "x-api-key": key })).isAdmin;
  const keys = new ApiKeys({ keys: ["user", "both"], file: null, adminKeys: ["admin", "both"], adminFile });
  const seeing = ["user", "admin", "both", "filed"].filter((key) => isAdmin(keys, key));
  expect(seeing).toEqual(["admin", "both", "filed"]);
  expect(isLetIn(keys, { "x-api-key": "other" })).toBe(false);
  expect(keys.reload()).toBe(`1 API key read from ${adminFile}.`);

  const alone = new ApiKeys({ keys: [], file: null, adminKeys: ["admin"] });
  expect(isLetIn(alone, {})).toBe(false);
  expect(isAdmin(alone, "admin")).toBe(true);
  expect(isAdmin(new ApiKeys({ keys: [], file: null }), "whichever")).toBe(true);
  expect(() => new ApiKeys({ keys: ["user"], file: null, adminFile: "/dev/null" })).toThrow(
    "it holds no key",
  );
  rmSync(folder, { recursive: true });
});
