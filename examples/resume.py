"""A run that survives: checkpoints, restarts after a crash, a stop in good order when the batch system asks for one.

    ddprun -n 2 --max-restarts 2 examples/resume.py --folder /tmp/run                     # undisturbed
    ddprun -n 2 --max-restarts 2 examples/resume.py --folder /tmp/run2 --crash-at 7,19    # rank 1 dies twice

Both print the same digest of the final weights: what a restart resumes is bit for bit what was lost. Send ddprun a
SIGUSR1, or SIGTERM, to see all ranks save and stop at the same step; started again, the run goes on from there.
"""

import argparse
import hashlib
import os
import signal

import numpy as np

import ddpflow as flow
import ddpflow.comm as dist
import ddpflow.nn as nn
import ddpflow.nn.functional as F
from ddpflow.nn.parallel import DistributedDataParallel
from ddpflow.utils import AgreedStop, CheckpointManager
from ddpflow.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--folder", required=True, help="of the checkpoints")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--save-every", type=int, default=5, help="steps")
parser.add_argument("--crash-at", default="", help="steps at which the last rank dies, one for each attempt")


def spirals():
    """Two spirals of 256 points; alike on every rank."""
    generator = np.random.default_rng(1)
    angle = np.sqrt(generator.random((2, 128))) * 9
    points = np.stack([np.cos(angle), np.sin(angle)], axis=-1) * angle[..., None] * [[[1]], [[-1]]]
    points += generator.normal(scale=0.1, size=points.shape)
    labels = np.repeat([0, 1], 128)
    return TensorDataset(flow.tensor(points.reshape(-1, 2).astype(np.float32)), flow.tensor(labels))


def main():
    args = parser.parse_args()
    dist.init_process_group()
    attempt = int(os.environ.get("DDPFLOW_RESTART_COUNT", "0"))
    crashes = [int(step) for step in args.crash_at.split(",") if step]
    crash_at = crashes[attempt] if attempt < len(crashes) else None

    flow.manual_seed(dist.get_rank())
    data = spirals()
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data, seed=3))
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    ddp = DistributedDataParallel(model)
    optimizer = flow.optim.AdamW(ddp.parameters(), lr=1e-2)
    scheduler = flow.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader))
    parts = {"model": ddp, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}

    checkpoints = CheckpointManager(args.folder, keep=2)
    found = checkpoints.resume(**parts)
    step, start = (0, 0) if found is None else (found.step, found.values["epoch"])
    if dist.get_rank() == 0:
        print(f"attempt {attempt} starts after step {step}", flush=True)

    with AgreedStop() as stop:
        for epoch in range(start, args.epochs):
            for x, y in loader:  # a resumed pass gives the rest of its order
                if step + 1 == crash_at and dist.get_rank() == dist.get_world_size() - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                optimizer.zero_grad()
                F.cross_entropy(ddp(x), y).backward()
                optimizer.step()
                scheduler.step()
                step += 1
                stopping = stop.agreed()
                if stopping or step % args.save_every == 0:
                    checkpoints.save(step, **parts, epoch=epoch)
                if stopping:
                    print(f"rank {dist.get_rank()} stops after step {step}", flush=True)
                    return

    ddp.check_consistency(optimizer)
    if dist.get_rank() == 0:
        digest = hashlib.sha256(b"".join(p.numpy(force=True).tobytes() for p in ddp.parameters())).hexdigest()
        print(f"{step} steps, weights {digest[:16]}", flush=True)


if __name__ == "__main__":
    main()
