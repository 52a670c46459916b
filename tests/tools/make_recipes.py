#!/usr/bin/env python3
"""Recipes and stored heads: what the tests need to regenerate a random-weight checkpoint.

    python3 make_recipes.py PATH/make_fixtures.py DESTINATION

Every weight of these checkpoints is a splitmix64 stream keyed by "SEED:TENSOR NAME", except the output
head, which the generator nudged afterwards. So `recipe.json` (how to draw each tensor, and the hash of
its bytes) plus `head.safetensors` replace the shards. The generator's own spec functions are executed
here, with torch and numpy stubbed out: only shapes, kinds and factors are taken from them. The built
checkpoints must lie in the folder of make_fixtures.py. Standard library only.
"""
import json, os, struct, sys
from types import ModuleType
from unittest.mock import MagicMock

# The two others hold block-quantised tensors and are committed whole.
GENERATED = ("glm_moe_dsa", "glm_moe_dsa_w256", "kimi_linear", "deepseek_v4", "qwen3", "qwen3_moe")
STORED = "stored"                  # kind of a tensor that is read from head.safetensors


def fnv1a64(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def read_safetensors(path):
    """-> {name: (dtype, shape, bytes)} in the order of the data."""
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    header.pop("__metadata__", None)
    entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    return {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])]) for name, e in entries}


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def load_generator(path):
    """Execute make_fixtures.py with its heavy imports replaced by stubs."""
    torch = MagicMock()
    torch.nn.Module = object
    stubs = {"numpy": MagicMock(), "torch": torch, "torch.nn": torch.nn, "torch.nn.functional": MagicMock(),
             "safetensors": MagicMock(), "safetensors.torch": MagicMock()}
    saved = {name: sys.modules.get(name) for name in stubs}
    sys.modules.update(stubs)
    try:
        module = ModuleType("make_fixtures")
        with open(path, encoding="utf-8") as f:
            exec(compile(f.read(), path, "exec"), module.__dict__)
    finally:
        for name, old in saved.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old
    return module


def head_name(specs, config):
    if config.get("tie_word_embeddings", False):
        return None
    return next(t.name for t in specs if t.name in ("lm_head.weight", "head.weight"))


def make_recipe(generator, name, source, destination):
    fx = generator.FIXTURES[name]()
    specs = {t.name: t for t in fx["specs"]}
    head = head_name(fx["specs"], fx["config"])
    with open(os.path.join(source, name, "reference.json"), encoding="utf-8") as f:
        seed = json.load(f)["seed"]
    files, seen = [], set()
    shards = sorted(f for f in os.listdir(os.path.join(source, name)) if f.startswith("model") and f.endswith(".safetensors"))
    for shard in shards:
        rows, tensors = [], read_safetensors(os.path.join(source, name, shard))
        for tensor, (_, shape, data) in tensors.items():
            t = specs[tensor]
            assert list(t.shape) == shape, (tensor, t.shape, shape)
            seen.add(tensor)
            kind = STORED if tensor == head else t.kind
            rows.append([tensor, shape, kind, float(t.gain), float(t.mean), f"{fnv1a64(data):016x}"])
        if head in tensors:
            write_safetensors(os.path.join(destination, name, "head.safetensors"), {head: tensors[head]})
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        files.append(f'{{"file":"{shard}","tensors":[\n{lines}\n]}}')
    assert seen == set(specs), (name, seen ^ set(specs))
    text = f'{{"seed":{seed},"columns":"name, shape, kind, gain, mean, fnv1a64 of the bytes","files":[\n' + ",\n".join(files) + "\n]}\n"
    with open(os.path.join(destination, name, "recipe.json"), "w", encoding="utf-8") as f:
        f.write(text)


def make_recipes(generator_path, destination):
    generator, source = load_generator(generator_path), os.path.dirname(os.path.abspath(generator_path))
    for name in GENERATED:
        os.makedirs(os.path.join(destination, name), exist_ok=True)
        make_recipe(generator, name, source, destination)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    make_recipes(sys.argv[1], sys.argv[2])
