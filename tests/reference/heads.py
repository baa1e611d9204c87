"""Computes what the heads draft of the models that heads.ts writes.

    npx bun tests/reference/heads.ts <folder>
    python tests/reference/heads.py <folder> [names]

transformers ignores the tensors of heads. So the model and the head's layer come from transformers, the layer as that of a copy
of the model whose last attention layer has the head's weights, and the rest of the head is written here (DeepSeek V3's report,
arXiv:2412.19437 section 2.2). Computed in float32 from the weights as stored. heads/<name>.json has, for three positions p of
families.ts's prompt, the likeliest token after p and the four tokens that the head drafts after it, with the logarithms of their
probabilities. The committed files come from torch 2.13.0 and transformers 5.24.0.
"""

import copy
import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

HERE = Path(__file__).parent / "heads"
POSITIONS = [9, 22, 36]
DRAFTS = 4

NEXTN = {
    "layer": "model.layers.{}.",
    "embed_norm": "model.layers.{}.enorm.weight",
    "hidden_norm": "model.layers.{}.hnorm.weight",
    "projection": "model.layers.{}.eh_proj.weight",
    "norm": "model.layers.{}.shared_head.norm.weight",
}
MTP = {
    "layer": "mtp.layers.0.",
    "embed_norm": "mtp.pre_fc_norm_embedding.weight",
    "hidden_norm": "mtp.pre_fc_norm_hidden.weight",
    "projection": "mtp.fc.weight",
    "norm": "mtp.norm.weight",
}
MIMO = {
    "layer": "model.mtp_layers.0.",
    "embed_norm": "model.mtp_layers.0.token_layernorm.weight",
    "hidden_norm": "model.mtp_layers.0.hidden_layernorm.weight",
    "projection": "model.mtp_layers.0.input_proj.weight",
    "norm": "model.mtp_layers.0.final_layernorm.weight",
}


def load(weights, config, scratch):
    """Loads a model of these weights; MiMo is a Qwen2."""
    if config["model_type"] == "mimo":
        config = {**config, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
        del config["auto_map"]
    save_file({name: numbers.contiguous() for name, numbers in weights.items()}, scratch / "model.safetensors",
              metadata={"format": "pt"})
    (scratch / "config.json").write_text(json.dumps(config))
    auto = AutoModelForImageTextToText if "vision_config" in config else AutoModelForCausalLM
    return auto.from_pretrained(scratch, dtype=torch.float32, attn_implementation="eager").eval()


def text_of(model):
    return getattr(model.model, "language_model", model.model)


class Head:
    def __init__(self, folder, scratch):
        self.config = json.loads((folder / "config.json").read_text())
        weights = load_file(folder / "model.safetensors")
        text = self.config.get("text_config", self.config)
        kind = text["model_type"]
        self.is_mimo = kind == "mimo"
        names = MIMO if self.is_mimo else MTP if kind.startswith("qwen3") else NEXTN
        names = {key: name.format(text["num_hidden_layers"]) for key, name in names.items()}
        own = set(names.values())
        layer = {name[len(names["layer"]):]: numbers for name, numbers in weights.items()
                 if name.startswith(names["layer"]) and name not in own}
        body = {name: numbers for name, numbers in weights.items()
                if not name.startswith(names["layer"]) and name not in own}
        self.model = load(body, self.config, scratch)
        self.text = text_of(self.model)
        attends = [index for index, one in enumerate(self.text.layers) if hasattr(one, "self_attn")]
        prefix = "model.language_model.layers." if "text_config" in self.config else "model.layers."
        prefix += f"{attends[-1]}."
        # A head that has no dense part in a dense layer's place, or the other way round, would be missing tensors here.
        swapped = {name: numbers for name, numbers in body.items() if not name.startswith(prefix)}
        swapped.update({prefix + name: numbers for name, numbers in layer.items()})
        self.layer = text_of(load(swapped, self.config, scratch)).layers[attends[-1]]
        self.norms = {}
        for key in ["embed_norm", "hidden_norm", "norm"]:
            self.norms[key] = copy.deepcopy(self.text.norm)
            self.norms[key].weight.data = weights[names[key]].float()
        self.projection = weights[names["projection"]].float()
        self.hidden = None
        self.text.norm.register_forward_pre_hook(lambda _, inputs: setattr(self, "hidden", inputs[0]))

    def run(self, tokens, hidden):
        """The layer's outputs for rows of hidden states, each with the token after it."""
        embedding = self.norms["embed_norm"](self.text.embed_tokens(torch.tensor([tokens])))
        state = self.norms["hidden_norm"](hidden)
        x = torch.cat([state, embedding] if self.is_mimo else [embedding, state], -1) @ self.projection.T
        count = len(tokens)
        positions = torch.arange(count)[None]
        mask = torch.full((1, 1, count, count), float("-inf"), dtype=torch.float32).triu(1)
        angles = self.text.rotary_emb(x, positions)
        y = self.layer(x, attention_mask=mask, position_ids=positions, position_embeddings=angles)
        return y[0] if isinstance(y, tuple) else y

    def drafts(self, prompt):
        logits = self.model(torch.tensor([prompt])).logits[0, -1]
        next_token = int(logits.argmax())
        margin = float(logits.topk(2).values.diff().abs())
        hidden = self.hidden if self.is_mimo else self.text.norm(self.hidden)
        tokens, drafts, logprobs = prompt[1:] + [next_token], [], []
        for _ in range(DRAFTS):
            y = self.run(tokens, hidden)[:, -1:]
            normed = self.norms["norm"](y)
            scores = self.model.lm_head(normed)[0, 0].log_softmax(-1)
            margin = min(margin, float(scores.topk(2).values.diff().abs()))
            drafts.append(int(scores.argmax()))
            logprobs.append(round(float(scores.max()), 9))
            tokens = tokens + [drafts[-1]]
            hidden = torch.cat([hidden, y if self.is_mimo else normed], 1)
        return next_token, drafts, logprobs, margin


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    folder = Path(sys.argv[1])
    names = sys.argv[2:] or sorted(path.name for path in folder.iterdir())
    HERE.mkdir(exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
            head = Head(folder / name, Path(scratch))
            vocab = head.config.get("text_config", head.config)["vocab_size"]
            prompt = [(index * 37 + 11) % vocab for index in range(48)]
            found = [head.drafts(prompt[:position + 1]) for position in POSITIONS]
        wanted = {"positions": POSITIONS, "next": [one[0] for one in found], "drafts": [one[1] for one in found],
                  "logprobs": [one[2] for one in found]}
        (HERE / f"{name}.json").write_text(json.dumps(wanted) + "\n")
        print(f"{name:14} least margin {min(one[3] for one in found):.4f}  {wanted['drafts']}")


if __name__ == "__main__":
    main()
