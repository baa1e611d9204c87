import { describe, expect, test } from "bun:test";
import { type Entry, parsedGguf } from "../tests/support/gguf-writer.ts";
import { ggufEndTokens, turnEndTexts } from "./ends.ts";
import { Metadata } from "./gguf-metadata.ts";

/** Texts of the ends of a vocabulary. `controls`: its control tokens; all others are of the given type. */
function endsOf(controls: readonly string[], others: readonly string[] = [], more: readonly Entry[] = []) {
  const tokens = ["a", ...controls, ...others];
  const types = tokens.map((text) => (controls.includes(text) ? 3 : 4));
  const entries: Entry[] = [
    ["tokenizer.ggml.tokens", "string[]", tokens],
    ["tokenizer.ggml.token_type", "i32[]", types],
    ...more,
  ];
  const metadata = new Metadata(parsedGguf({ entries, tensors: [] }));
  return ggufEndTokens(metadata, tokens.length).map((token) => tokens[token]);
}

test("Phi-3: the end of a turn beside the named end of a text", () => {
  const controls = ["<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>"];
  expect(endsOf(controls, [], [["tokenizer.ggml.eos_token_id", "u32", 1]])).toEqual([
    "<|endoftext|>",
    "<|end|>",
  ]);
});

test("gpt-oss and Solar: an end of a message is none of a turn", () => {
  expect(endsOf(["<|start|>", "<|end|>", "<|return|>", "<|call|>"])).toEqual(["<|return|>", "<|call|>"]);
  expect(endsOf(["<|end|>", "<|calls|>", "<|flush|>"])).toEqual(["<|calls|>", "<|flush|>"]);
  expect(endsOf(["<|end|>", "<|return|>"])).toEqual(["<|end|>", "<|return|>"]);
});

describe("the type that a file gives a token", () => {
  test("does not matter for texts that only ends have", () => {
    const ends = ["<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "[e~[", "<｜end▁of▁sentence｜>"];
    expect(endsOf([], ends)).toEqual(ends);
  });

  test("matters for those that are also tags or words", () => {
    const ends = ["</s>", "<eos>", "[EOT]", "<|file_sep|>", "<|repo_name|>", "<|fim_pad|>"];
    expect(endsOf(ends)).toEqual(ends);
    expect(endsOf([], ends)).toEqual([]);
  });
});

test("GLM ends a turn where the next one begins", () => {
  const controls = [
    "<|endoftext|>",
    "[gMASK]",
    "<sop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
  ];
  expect(endsOf(controls)).toEqual(["<|endoftext|>", "<|user|>", "<|observation|>"]);
});

test("Gemma 4 has the tag of HTML that is an end elsewhere", () => {
  expect(endsOf(["<eos>", "</s>", "<turn|>"], ["<|tool_response>"])).toEqual([
    "<eos>",
    "<turn|>",
    "<|tool_response>",
  ]);
});

test("a folder's turns end by the text of a control token too", () => {
  const harmony = ["<|start|>", "<|end|>", "<|message|>", "<|return|>", "<|call|>", "<|endoftext|>"];
  expect(turnEndTexts(harmony)).toEqual(["<|return|>", "<|call|>"]);
  expect(turnEndTexts(["<bos>", "<eos>", "</s>", "<end_of_turn>"])).toEqual(["<end_of_turn>"]);
  expect(turnEndTexts(["<|endoftext|>", "<|user|>", "<|end|>"])).toEqual(["<|end|>"]);
});

test("a token around files is an end under its name too", () => {
  expect(endsOf([], ["<next>"], [["tokenizer.ggml.fim_sep_token_id", "u32", 1]])).toEqual(["<next>"]);
});
