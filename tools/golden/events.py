"""Writes a small event file with TensorBoard's own writer. Needs pip's tensorboard."""
import os

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "../lab/trackers/tensorboard/testdata/events"), "wb") as f:
    writer = RecordWriter(f)

    def write(**fields):
        writer.write(event_pb2.Event(**fields).SerializeToString())

    def scalar(tag, value):
        return summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])

    write(wall_time=1700000000.0, file_version="brain.Event:2")
    write(wall_time=1700000000.25, summary=scalar("accuracy", 0.125))
    write(wall_time=1700000000.25, summary=scalar("loss", 2.5))
    write(wall_time=1700000000.5, step=300, summary=scalar("accuracy", 0.7))
    writer.flush()
