/** Engine errors for weights that differ from the folder's metadata: by file, tensor and reason. */
import { afterAll, describe, expect, test } from "bun:test";
import { cpSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openNativeModel } from "../../gpu/native/open.ts";
import { NativeError } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import type { ModelFolder } from "../../model/model-folder.ts";
import { referenceModel } from "../reference/models.ts";
import { cpuLibrary } from "./library.ts";

const library = cpuLibrary();
const dir = mkdtempSync(join(tmpdir(), "bunting-weights-"));
cpSync(referenceModel("llama2").dir, dir, { recursive: true });
afterAll(() => rmSync(dir, { recursive: true }));

const folder = openModelFolder(dir);
const options = { compute: "bf16", isa: "auto", threads: 1, contextMax: null } as const;
const file = join(dir, "model.safetensors");
const gate = "model.layers.1.mlp.gate_proj.weight";

function errorOf(changed: ModelFolder): NativeError {
  try {
    openNativeModel(library, changed, options, () => undefined);
  } catch (error) {
    expect(error).toBeInstanceOf(NativeError);
    return error as NativeError;
  }
  throw new Error("the model was loaded");
}

const withGate = (change: Partial<ModelFolder["tensors"][number]>): ModelFolder => ({
  ...folder,
  tensors: folder.tensors.map((tensor) => (tensor.name === gate ? { ...tensor, ...change } : tensor)),
});

describe("refused, and nothing stays behind", () => {
  test("a shape that the model does not have", () => {
    const error = errorOf(withGate({ rows: 32 }));
    expect(error.status).toBe("invalid");
    expect(error.message).toBe(`${gate}: ${file}: gate of layer 1 is [32, 96], expected [64, 96]`);
  });

  test.each([
    ["past the end", 2 ** 40],
    ["at the very end", 2 ** 63 - 1024],
  ])("bytes %s of the file", (_, offset) => {
    const error = errorOf(withGate({ offset }));
    expect(error.status).toBe("invalid");
    expect(error.message).toContain(`${gate}: ${file}: bytes [`);
  });

  test("an element type that is none", () => {
    expect(errorOf(withGate({ dtype: 3 })).message).toContain(
      `${gate}: ${file}: gate of layer 1 has unknown element`,
    );
  });

  test.each([
    ["NaN", 0x7fc0],
    ["infinity", 0xff80],
  ])("a weight that is %s", (_, bits) => {
    const { offset } = folder.tensors.find((tensor) => tensor.name === gate)!;
    const bytes = readFileSync(file);
    bytes.writeUInt16LE(bits, offset + 2 * 1000);
    const path = join(dir, "not-finite");
    writeFileSync(path, bytes);
    const error = errorOf(withGate({ path }));
    expect(error.message).toBe(`${gate}: ${path}: gate of layer 1 has a number that is not finite`);
  });

  test("a layer or a kind that is none", () => {
    expect(errorOf(withGate({ layer: 2 })).message).toContain("layer 2 of 2");
    expect(errorOf(withGate({ layer: -1 })).message).toContain("layer -1 of 2");
    expect(errorOf(withGate({ tensor: 12 })).message).toContain("there is no tensor kind 12");
    expect(errorOf(withGate({ tensor: 24, rows: 1, cols: 48 })).message).toContain(
      "has no q norm of layer 1",
    );
  });

  test("a tensor twice, or never", () => {
    expect(errorOf(withGate({ layer: 0 })).message).toContain("gate of layer 0 is loaded already");
    const without = { ...folder, tensors: folder.tensors.filter((tensor) => tensor.name !== gate) };
    expect(errorOf(without).message).toContain("gate of layer 1 is missing");
  });

  test("a file that is gone, or shrank since it was checked", () => {
    const gone = withGate({ path: join(dir, "gone.safetensors") });
    expect(errorOf(gone).status).toBe("io");
    expect(errorOf(gone).message).toContain("gone.safetensors: cannot be opened");
    expect(errorOf(withGate({ path: dir })).message).toContain("not a regular file");
    truncateSync(file, 100_000);
    expect(errorOf(folder).message).toContain("leave the file of 100000 bytes");
  });
});
