"""PromptFL in Flower's simulation: an opponent of promptfed bench --against flower.

    python3 tools/golden/sim_flower.py FOLDER THREADS

sim_task.py says what is in the folder and on standard input. The clients run in one Ray actor of one thread for each of THREADS cores,
and FedAvg merges on the server, which also tests.
"""
import functools
import logging
import os
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
os.environ["PYTHONPATH"] = here  # for the actors
os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0",
                  RAY_worker_niceness="0")  # Ray starts its workers at 15

import flwr  # noqa: E402
import ray  # noqa: E402
import torch  # noqa: E402
from flwr.app import ArrayRecord, MetricRecord, RecordDict, Message  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

import sim_task  # noqa: E402

task = functools.lru_cache(sim_task.Task)


def main():
    if len(tempfile.gettempdir()) > 39:  # the paths of Ray's sockets have up to 68 bytes more, and may have 107; Flower would wait for ever
        sys.exit("%s is too long a path for Ray's sockets: set TMPDIR=/tmp" % tempfile.gettempdir())
    folder, threads = sys.argv[1], int(sys.argv[2])
    logging.getLogger("flwr").setLevel(logging.ERROR)
    client, server, mine = ClientApp(), ServerApp(), sim_task.Task(folder, threads)

    @client.train()
    def train(message, context):
        import sim_flower  # by name: an actor then keeps its task from call to call, which a closure sent to it would not
        t = sim_flower.task(folder, 1)
        ctx = message.content["arrays"].to_torch_state_dict()["ctx"]
        ctx = t.trained(ctx, context.node_config["partition-id"])
        return Message(RecordDict({"arrays": ArrayRecord({"ctx": ctx}), "metrics": MetricRecord({"num-examples": t.train})}),
                       reply_to=message)

    @server.main()
    def serve(grid, context):
        control = sim_task.Control(mine, "Flower %s, Ray %s, PyTorch %s" % (flwr.__version__, ray.__version__, torch.__version__),
                                   "%d Ray actors of one thread, torch.compile" % threads)

        def evaluate(round, arrays):
            if not control.after_round(arrays.to_torch_state_dict()["ctx"]):
                ray.shutdown()
                os._exit(0)  # no Flower round can stop the simulation

        FedAvg(fraction_train=mine.cohort / mine.clients, fraction_evaluate=0.0, min_train_nodes=mine.cohort,
               min_available_nodes=mine.clients).start(grid, ArrayRecord({"ctx": mine.ctx}), num_rounds=sys.maxsize, evaluate_fn=evaluate)

    run_simulation(server, client, num_supernodes=mine.clients, backend_config={
        "init_args": {"num_cpus": threads, "include_dashboard": False, "logging_level": "error", "log_to_driver": False},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0}})


if __name__ == "__main__":
    main()
