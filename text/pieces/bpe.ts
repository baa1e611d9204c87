/** BPE by the library: adjacent pieces merge by rank. The library is @huggingface/tokenizers. */
import { BPE } from "@huggingface/tokenizers";
import type { TokenId } from "../../base/token.ts";
import { type JsonObject, TokenizerError } from "../tokenizer-file.ts";

/** `isControl`: true for spellings that are no pieces of a text. */
export function bpe(
  model: JsonObject,
  isControl: (spelling: string) => boolean,
): (words: readonly string[]) => readonly TokenId[] {
  expectPlain(model);
  const ids = model.vocab as Record<string, TokenId>;
  const spellings = Object.entries(ids).filter(([spelling]) => !isControl(spelling));
  const library = new BPE({ ...model, vocab: Object.fromEntries(spellings) } as never);
  const unknown = Object.hasOwn(ids, String(model.unk_token)) ? ids[String(model.unk_token)]! : null;
  const fuses = model.fuse_unk === true;
  return (words) => {
    // The library fuses unknown characters of neighbouring words too.
    const pieces = fuses ? words.flatMap((word) => library([word])) : library.encode([...words]);
    return pieces.flatMap((piece) => library.tokens_to_ids.get(piece) ?? unknown ?? []);
  };
}

/** Throws TokenizerError for options that the library reads wrongly. */
function expectPlain(model: JsonObject): void {
  for (const name of ["continuing_subword_prefix", "end_of_word_suffix"])
    if (typeof model[name] === "string" && model[name] !== "")
      throw new TokenizerError(
        `tokenizer.json: model.${name} ${JSON.stringify(model[name])} is not supported with this model`,
      );
  if (Number(model.dropout ?? 0) > 0)
    throw new TokenizerError(`tokenizer.json: model.dropout ${model.dropout} makes tokens at random`);
}
