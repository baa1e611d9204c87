/** Finds the tokens that end a turn or a text, by their metadata keys in a GGUF file and by their texts. */
import type { Metadata } from "./gguf-metadata.ts";

/** Texts of end tokens, whatever type the file gives them: no other token has these texts. */
const endTexts = new Set([
  ...["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>"],
  ...["<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<end_of_turn>", "<turn|>", "<|tool_response>"],
  ...["<end_of_utterance>", "[e~[", "<｜end▁of▁sentence｜>", "<|plamo:eos|>"],
]);
/**
 * Texts that are end tokens only if they are control tokens: some vocabularies have HTML tags of the same
 * texts.
 */
const controlEndTexts = new Set([
  ...["</s>", "<eos>", "<EOT>", "_<EOT>", "▁<EOT>", "[EOT]", "[EOS]"],
  // Tokens around files, for filling in the middle.
  ...["<|fim_pad|>", "<fim_pad>", "<fim-pad>", "<PAD>", "[PAD]", "<|file_sep|>"],
  ...["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
]);

/** Texts among the first list that end a text, not a turn. */
const textEndTexts = new Set(["<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "<|plamo:eos|>"]);
/** Tokens that begin a turn in GLM's format, and end the one before. */
const glmEndTexts = ["<|user|>", "<|observation|>"];

/** Metadata names of end tokens; the last three are for filling in the middle. */
const endNames = ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"];

/** Number of control tokens in `tokenizer.ggml.token_type`. */
const controlType = 3;

/**
 * End tokens named in the metadata, and others that are known by their texts, as in llama.cpp. `size`: number
 * of tokens of the model.
 */
export function ggufEndTokens(metadata: Metadata, size: number): readonly number[] {
  const ends = new Set<number>();
  for (const name of endNames) {
    const key = `tokenizer.ggml.${name}_token_id`;
    if (metadata.has(key)) ends.add(metadata.integer(key, 0, size - 1));
  }
  const key = "tokenizer.ggml.tokens";
  if (!metadata.has(key)) return [...ends];
  const tokens = metadata.texts(key);
  if (tokens.length > size) metadata.refuse(key, `the model's vocabulary has ${size}`);
  const types = metadata.integers("tokenizer.ggml.token_type", tokens.length);
  tokens.forEach((text, token) => {
    const isControl = types?.[token] === controlType;
    if (endTexts.has(text) || (isControl && controlEndTexts.has(text))) ends.add(token);
  });
  if (tokens.includes("[gMASK]"))
    for (const text of glmEndTexts) if (tokens.includes(text)) ends.add(tokens.indexOf(text));
  const within = endsWithin([...ends].map((token) => tokens[token]!));
  return [...ends].filter((token) => !within.has(tokens[token]!));
}

/** End texts of a vocabulary that do not end a turn, because other tokens of the vocabulary do. */
function endsWithin(texts: readonly string[]): ReadonlySet<string> {
  const has = (text: string): boolean => texts.includes(text);
  const within = new Set<string>();
  // In Harmony and Solar's form <|end|> ends a message, and the turn goes on.
  if ((has("<|return|>") && has("<|call|>")) || (has("<|flush|>") && (has("<|calls|>") || has("<|call|>"))))
    within.add("<|end|>");
  // Models of Gemma 4 and PLaMo have </s> as a tag of HTML, in some files as a control token.
  if (has("<|tool_response>") || has("<|plamo:eos|>")) within.add("</s>");
  return within;
}

/**
 * Control tokens of a folder that end a turn: some folders name only the end of the text. Leaves out ends of
 * texts and files, which the folder names itself.
 */
export function turnEndTexts(controlTexts: readonly string[]): readonly string[] {
  const found = controlTexts.filter((text) => endTexts.has(text) && !textEndTexts.has(text));
  const within = endsWithin(found);
  return found.filter((text) => !within.has(text));
}
