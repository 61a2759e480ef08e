"""tensorboard: the numbers of a run's metrics.jsonl as files for TensorBoard, by a library that writes them.

    python3 scripts/tensorboard.py runs/stories        # pip install tensorboardX tensorboard (or PyTorch)
    tensorboard --logdir runs

They go to RUN/tensorboard, which is written anew. loss becomes train/loss, val_loss val/loss, data_ms time/data_ms; of a
validation set val/loss/NAME, of a task task/acc/NAME.
"""
import json, shutil, sys

try:
    from tensorboardX import SummaryWriter
except ImportError:
    from torch.utils.tensorboard import SummaryWriter


def tag(key, line):
    name = "/" + line["name"] if "name" in line else ""
    if key.startswith("val_"): return "val/" + key[4:] + name
    if key.endswith("_ms"): return "time/" + key
    if "items" in line: return "task/" + key + name
    return ("train/" if key == "loss" else "") + key + name


run = sys.argv[1]
shutil.rmtree(run + "/tensorboard", ignore_errors=True)
with open(run + "/metrics.jsonl") as lines, SummaryWriter(run + "/tensorboard") as board:
    for line in map(json.loads, lines):
        if line["event"] not in ("train", "val", "end", "set", "task"): continue
        for key, value in line.items():
            counts = key in ("step", "t") or "name" in line and key in ("tokens", "items")
            if type(value) in (int, float) and not counts:
                board.add_scalar(tag(key, line), value, line["step"], walltime=line["t"])
