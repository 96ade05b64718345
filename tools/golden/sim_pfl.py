"""PromptFL in pfl-research's simulation: an opponent of promptfed bench --against pfl.

    python3 tools/golden/sim_pfl.py FOLDER THREADS

sim_task.py says what is in the folder and on standard input. FederatedAveraging runs on a SimulatedBackend in THREADS processes of one
thread, which add up their clients' updates with torch.distributed.
"""
import logging
import os
import socket
import subprocess
import sys
from importlib import metadata

rank, threads = int(os.environ.get("RANK", 0)), int(sys.argv[2])
if threads > 1:
    if rank == 0:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        os.environ.update(TORCHELASTIC_RUN_ID="promptfed", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0",
                          WORLD_SIZE=str(threads), LOCAL_WORLD_SIZE=str(threads))
        others = [subprocess.Popen([sys.executable, *sys.argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r))) for r in range(1, threads)]

import numpy  # noqa: E402
import torch  # noqa: E402
from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.callback.base import TrainingProcessCallback  # noqa: E402
from pfl.data.dataset import Dataset  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.data.sampling import get_user_sampler  # noqa: E402
from pfl.hyperparam import NNTrainHyperParams  # noqa: E402
from pfl.metrics import Metrics  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402

import sim_task  # noqa: E402


class PromptFL(torch.nn.Module):
    def __init__(self, task):
        super().__init__()
        self.ctx, self.task = torch.nn.Parameter(task.ctx.clone()), task

    def loss(self, image, label):
        return self.task.loss(self.ctx, image, label)

    def metrics(self, image, label):
        return {}


class Empty(FederatedAveraging):
    """Clients that compute nothing."""

    def train_one_user(self, initial_model_state, model, user_dataset, central_context):
        return model.get_model_difference(initial_model_state), Metrics()


class Controlled(TrainingProcessCallback):
    def __init__(self, control):
        self.control = control

    def on_train_begin(self, *, model):
        self.control.after_round(model.pytorch_model.ctx.detach())
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        return not self.control.after_round(model.pytorch_model.ctx.detach()), Metrics()


def main():
    logging.getLogger().setLevel(logging.ERROR)
    numpy.random.seed(1)  # the processes draw the same clients
    task = sim_task.Task(sys.argv[1], 1)
    callbacks = []
    if rank == 0:
        callbacks = [Controlled(sim_task.Control(
            task, "pfl %s, PyTorch %s" % (metadata.version("pfl"), torch.__version__),
            "%d processes of one thread, torch.compile" % threads))]
    module = PromptFL(task)
    model = PyTorchModel(module, task.optimizer, torch.optim.SGD(module.parameters(), lr=1.0))
    data = FederatedDataset(lambda client: Dataset(task.examples(client), user_id=client),
                            get_user_sampler("minimize_reuse", list(range(task.clients))))
    algorithm = Empty() if task.empty else FederatedAveraging()
    algorithm.run(NNAlgorithmParams(central_num_iterations=sys.maxsize, evaluation_frequency=sys.maxsize,
                                    train_cohort_size=task.cohort, val_cohort_size=0),
                  SimulatedBackend(data, data), model,
                  NNTrainHyperParams(local_num_epochs=1, local_learning_rate=task.lr, local_batch_size=task.batch),
                  callbacks=callbacks, send_metrics_to_platform=False)


main()
