/**
 * Chooses the files of a repository that make up a model: safetensors with their JSON files, or one GGUF
 * file.
 */

import { formatBytes } from "../../gpu/memory.ts";
import { HubError } from "./hub-error.ts";
import type { HubFile } from "./listing.ts";

type Sized = Pick<HubFile, "path" | "bytes">;

export const INDEX = "model.safetensors.index.json";
const SINGLE = "model.safetensors";
/** Maximum bytes of a configuration or tokenizer file, far above any real one. */
const DESCRIPTION_BYTES_MAX = 128 << 20;

/**
 * Files that describe a folder's model: JSON and text at its root, and the configurations of a sentence
 * transformer's stages.
 */
export function descriptionsOf<File extends Sized>(files: readonly File[]): readonly File[] {
  return files.filter(
    ({ path, bytes }) =>
      bytes <= DESCRIPTION_BYTES_MAX &&
      path !== "adapter_config.json" &&
      (/^[^/]+\.(json|jinja|txt|model)$/.test(path) || /^\d+_\w+\/config\.json$/.test(path)),
  );
}

/** Weight files of a folder; null if an index file names them, which must be read first. */
export function weightsOf<File extends Sized>(
  files: readonly File[],
  shards: ReadonlySet<string> | null,
): readonly File[] | null {
  const single = files.find(({ path }) => path === SINGLE);
  if (single !== undefined) return [single];
  if (shards === null) return null;
  return [...shards].sort().map((name) => {
    const found = files.find(({ path }) => path === name);
    if (found === undefined)
      throw new HubError(`${INDEX} names ${name}, which the repository does not have.`);
    return found;
  });
}

/** True if a repository has weights in safetensors. */
export function hasSafetensors(files: readonly Sized[]): boolean {
  return files.some(({ path }) => path === SINGLE || path === INDEX);
}

const ADAPTER = ["adapter_config.json", "adapter_model.safetensors"] as const;

/** Configuration and weights of a repository that has a LoRA adapter and no model in safetensors; null: it has none. */
export function adapterFiles<File extends Sized>(
  files: readonly File[],
): { readonly config: File; readonly weights: File } | null {
  if (hasSafetensors(files)) return null;
  const [config, weights] = ADAPTER.map((name) => files.find(({ path }) => path === name));
  return config === undefined || weights === undefined ? null : { config, weights };
}

const PART = /-(\d{5})-of-(\d{5})\.gguf$/;

/** GGUF models of a repository, each with all its parts in order, without image projectors (mmproj). */
export function ggufModels<File extends Sized>(files: readonly File[]): readonly (readonly File[])[] {
  const models = new Map<string, File[]>();
  for (const file of files) {
    const name = file.path.split("/").at(-1)!;
    if (!name.endsWith(".gguf") || /mmproj/i.test(name)) continue;
    const key = file.path.replace(PART, "-*-of-$2.gguf");
    models.set(key, [...(models.get(key) ?? []), file]);
  }
  return [...models.values()].map((parts) => parts.toSorted((a, b) => (a.path < b.path ? -1 : 1)));
}

/**
 * The GGUF model for a quant or a file's path. A name that ends in the quant wins over one that contains it.
 * Throws HubError with the choices.
 */
export function chooseGguf<File extends Sized>(
  name: string,
  files: readonly File[],
  variant: string | null,
): readonly File[] {
  const models = ggufModels(files);
  const wanted = variant?.toLowerCase() ?? "";
  const stemOf = ([first]: readonly File[]): string =>
    first!.path
      .split("/")
      .at(-1)!
      .replace(PART, "")
      .replace(/\.gguf$/, "")
      .toLowerCase();
  const rules: readonly ((model: readonly File[]) => boolean)[] = [
    (model) => model.some(({ path }) => path === variant),
    (model) =>
      new RegExp(`(^|[-._])${RegExp.escape(wanted)}$`).test(stemOf(model)) && !/[-.]ud-/.test(stemOf(model)),
    (model) => stemOf(model).endsWith(wanted),
    (model) => stemOf(model).includes(wanted),
  ];
  for (const rule of variant === null ? [() => true] : rules) {
    const found = models.filter(rule);
    if (found.length === 1) return complete(name, found[0]!);
  }
  if (models.length === 0)
    throw new HubError(`${name} has neither model.safetensors, nor its index, nor a GGUF file.`);
  const choices = models
    .toSorted((a, b) => bytesOf(a) - bytesOf(b))
    .map((model) => `  ${name}:${quantOf(model[0]!.path) ?? model[0]!.path}  ${formatBytes(bytesOf(model))}`);
  const problem =
    variant === null ? `${name} has several GGUF models` : `${name} has no one GGUF model for "${variant}"`;
  throw new HubError(`${problem}; name one:\n${choices.join("\n")}`);
}

/** Quant in the name of a GGUF file, such as "Q4_K_M" or "BF16"; null if there is none. */
export function quantOf(path: string): string | null {
  const stem = path.replace(PART, "").replace(/\.gguf$/, "");
  return /[-._/]((?:UD-)?(?:I?Q\d\w*|BF16|F16|F32|MXFP4\w*|TQ\d_\d))$/i.exec(stem)?.[1] ?? null;
}

export function bytesOf(files: readonly Sized[]): number {
  return files.reduce((sum, { bytes }) => sum + bytes, 0);
}

function complete<File extends Sized>(name: string, parts: readonly File[]): readonly File[] {
  const count = Number(PART.exec(parts[0]!.path)?.[2] ?? 1);
  if (parts.length === count) return parts;
  throw new HubError(`${name} has ${parts.length} of the ${count} parts of ${parts[0]!.path}.`);
}
