"""Train a small CNN on the 1,797 handwritten digits that scikit-learn ships, on one process or several.

    ddprun --nproc-per-node 2 examples/train_digits.py      # two processes on this machine
    python examples/train_digits.py                         # the same script alone
    ddprun --nproc-per-node 8 examples/train_digits.py --device cuda    # on eight GPUs, over NCCL

Needs the extra "examples" (scikit-learn, tqdm): pip install 'ddpflow[examples]'.
"""

import argparse
import hashlib
import sys
import time

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import ddpflow as flow
import ddpflow.comm as dist
import ddpflow.nn as nn
import ddpflow.nn.functional as F
from ddpflow.nn.parallel import DistributedDataParallel
from ddpflow.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--batch-size", type=int, default=64, help="images per step, over all ranks together")
parser.add_argument("--lr", type=float, default=4e-3)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--device", default="cpu", help='"cuda" takes the GPU of each process\'s number on its host')


class Net(nn.Module):
    """Two blocks of convolution, batch norm and pooling, then two linear layers."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(64 * 2 * 2, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.classifier(self.features(x))


def load(seed):
    """The digits as tensors, split into 1,437 for training and 360 for the test; alike on every rank."""
    digits = load_digits()
    images = (digits.images[:, None] / 16.0).astype(np.float32)
    data = TensorDataset(flow.from_numpy(images), flow.from_numpy(digits.target.astype(np.int64)))
    return random_split(data, [1437, 360], generator=flow.Generator().manual_seed(seed))


@flow.no_grad()
def evaluate(model, loader, device):
    """Loss and accuracy over all ranks' parts of the test set, each image counted once."""
    model.eval()
    sums = flow.zeros(3, dtype=flow.float64)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        scores = model(x)
        right = (scores.argmax(1) == y).sum()
        sums += flow.tensor([F.cross_entropy(scores, y, reduction="sum").item(), right.item(), len(y)])
    dist.all_reduce(sums)
    model.train()
    loss, right, count = sums.tolist()
    return loss / count, right / count


def same_weights_everywhere(model):
    """Whether every parameter and buffer has the same bits on all ranks."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode() + value.cpu().numpy().tobytes())
    digests = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest.hexdigest())
    return len(set(digests)) == 1


def main():
    args = parser.parse_args()
    dist.init_process_group()
    rank, world = dist.get_rank(), dist.get_world_size()
    flow.manual_seed(args.seed)
    train_set, test_set = load(args.seed)
    sampler = DistributedSampler(train_set, seed=args.seed, drop_last=True)
    train_loader = DataLoader(train_set, batch_size=max(1, args.batch_size // world), sampler=sampler, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=120, sampler=DistributedSampler(test_set, shuffle=False, pad=False))
    model = DistributedDataParallel(Net().to(args.device))
    optimizer = flow.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
    schedule = flow.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train_loader))

    images, seconds = 0, 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        started = time.perf_counter()
        bar = tqdm(train_loader, desc=f"epoch {epoch + 1:2d}/{args.epochs}", disable=rank != 0, leave=False)
        total = flow.zeros((), device=args.device)
        for x, y in bar:
            x, y = x.to(args.device), y.to(args.device)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
            images += len(y) * world
        seconds += time.perf_counter() - started
        loss, accuracy = evaluate(model, test_loader, args.device)
        if rank == 0:
            mean = total.item() / len(train_loader)
            print(f"epoch {epoch + 1:2d}: train loss {mean:.4f}, test loss {loss:.4f}, test accuracy {accuracy:.2%}")

    # The buffers of ranks other than 0 are brought up to date at the start of a step; after the last one, do it here.
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
    _, accuracy = evaluate(model, test_loader, args.device)
    same = same_weights_everywhere(model)
    if rank == 0:
        print(f"test accuracy {accuracy:.2%}")
        print(f"{images / seconds:,.0f} images per second in training, on {world} process{'es' if world > 1 else ''}")
        print(f"all {world} ranks hold bit-identical weights: {'yes' if same else 'NO'}")
    dist.destroy_process_group()
    sys.exit(0 if same else "the ranks' weights differ")


if __name__ == "__main__":
    main()
