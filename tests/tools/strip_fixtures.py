#!/usr/bin/env python3
"""Writes tests/fixtures from the full fixtures (the folder with make_fixtures.py and its output).

    python3 strip_fixtures.py SOURCE DESTINATION

Two checkpoints are copied whole; the shards of the other six are replaced by a recipe (make_recipes.py).
The references keep what the tests compare, so that everything stays below LIMIT. Each fixture's folder
in DESTINATION is replaced. Standard library only.
"""
import json, os, re, shutil, struct, sys

from make_recipes import GENERATED, make_recipes, read_safetensors, write_safetensors

WHOLE = ("kimi_k3", "deepseek_v4_native")
LIMIT = 13 << 20
TEXTS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json")
KEPT = re.compile(r"input_ids|logits|gen\.logits_cached|moe\.\d+\.expert_(ids|weights)|dsa\.\d+\.topk|hidden_rows|hidden\.\d+")
KEPT_JSON = ("name", "prompt_len", "total_len", "prompt_ids", "greedy_ids", "tokenizer_tests")
# DeepSeek V4's hidden states (4 streams) are large: only these positions. First tokens and closing windows
# of 4; the 128-token window that closes at 127; before and at the start of decoding (250); the window that
# closes at 255; the end.
V4_ROWS = (0, 1, 2, 3, 4, 7, 8, 126, 127, 128, 129, 218, 230, 248, 249, 250, 254, 255, 256, 257, 281)
HIDDEN_ROWS = {"deepseek_v4": V4_ROWS, "deepseek_v4_native": V4_ROWS}


def thin_hidden(tensors, wanted):
    """Keep only the `wanted` positions in hidden_rows and hidden.{l}."""
    _, (count,), data = tensors["hidden_rows"]
    rows = struct.unpack(f"<{count}i", data)
    assert set(wanted) <= set(rows), set(wanted) - set(rows)
    at = [i for i, row in enumerate(rows) if row in wanted]
    for name, (dtype, shape, data) in tensors.items():
        if name.startswith("hidden"):
            step = len(data) // count
            tensors[name] = (dtype, [len(at)] + shape[1:], b"".join(data[i * step:(i + 1) * step] for i in at))


def strip_reference(name, source, destination):
    tensors = read_safetensors(os.path.join(source, "reference.safetensors"))
    tensors = {n: t for n, t in tensors.items() if KEPT.fullmatch(n)}
    if name in HIDDEN_ROWS:
        thin_hidden(tensors, HIDDEN_ROWS[name])
    write_safetensors(os.path.join(destination, "reference.safetensors"), tensors)
    with open(os.path.join(source, "reference.json"), encoding="utf-8") as f:
        full = json.load(f)
    lines = (f"{json.dumps(k)}:{json.dumps(full[k], ensure_ascii=False, separators=(',', ':'))}" for k in KEPT_JSON)
    with open(os.path.join(destination, "reference.json"), "w", encoding="utf-8") as f:
        f.write("{" + ",\n".join(lines) + "}\n")


def copy_checkpoint(source, destination, shards):
    for name in sorted(os.listdir(source)):
        if name in TEXTS or (shards and name.startswith("model") and name.endswith(".safetensors")):
            shutil.copyfile(os.path.join(source, name), os.path.join(destination, name))


def main(source, destination):
    for name in GENERATED + WHOLE:
        folder = os.path.join(destination, name)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        copy_checkpoint(os.path.join(source, name), folder, shards=name in WHOLE)
        strip_reference(name, os.path.join(source, name), folder)
    make_recipes(os.path.join(source, "make_fixtures.py"), destination)
    total = sum(os.path.getsize(os.path.join(d, f)) for d, _, names in os.walk(destination) for f in names)
    print(f"{total} bytes ({total / (1 << 20):.2f} MiB of {LIMIT >> 20})")
    return 0 if total <= LIMIT else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
