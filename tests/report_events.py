"""Reads a TensorBoard folder by TensorBoard itself and compares it with the run's own files."""
import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run = sys.argv[1]
events = EventAccumulator(run + "/tensorboard", size_guidance={"scalars": 0})
events.Reload()
lines = [json.loads(line) for line in open(run + "/metrics.jsonl")]
steps = [line for line in lines if "loss" in line]
validations = [line for line in lines if "validation_loss" in line]


def same(tag, wanted, key):
    got = events.Scalars(tag)
    assert [e.step for e in got] == [w["step"] for w in wanted], tag
    assert all(abs(e.value - w[key]) <= 1e-6 * abs(w[key]) for e, w in zip(got, wanted)), tag
    assert all(a.wall_time <= b.wall_time for a, b in zip(got, got[1:])), tag + ": time goes back"
    return got


loss = same("loss/training", steps, "loss")
same("optimizer/learning_rate", steps, "learning_rate")
same("optimizer/gradient_norm", steps, "norm")
same("loss/validation", validations, "validation_loss")
rows = [line.split(",") for line in open(run + "/stages.csv")]
column = rows[0].index("forward")
forward = {}
for row in rows[1:]:
    if row[1] == "step":
        forward.setdefault(int(row[2]), []).append(float(row[column]))
for event in events.Scalars("stages/forward"):
    mean = sum(forward[event.step]) / len(forward[event.step])
    assert abs(event.value - mean) <= 1e-6 * mean + 1e-9, event
tags = events.Tags()["scalars"]
assert any(tag.startswith("process/") for tag in tags), tags
print(len(loss), "steps,", len(tags), "curves")
