"""Train a byte-level GPT on the source text of Python's own standard library, then let it write some.

    ddprun --nproc-per-node 2 examples/train_gpt.py         # two processes on this machine
    python examples/train_gpt.py --steps 200                # the same script alone, shorter
    ddprun --nproc-per-node 2 examples/train_gpt.py --save gpt.safetensors

The text is found through sysconfig; nothing is downloaded. Needs tqdm: pip install 'ddpflow[examples]'.
"""

import argparse
import math
import sysconfig
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import ddpflow as flow
import ddpflow.comm as dist
import ddpflow.nn as nn
import ddpflow.nn.functional as F
from ddpflow.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=900)
parser.add_argument("--batch-size", type=int, default=16, help="sequences per step, over all ranks together")
parser.add_argument("--context", type=int, default=128, help="bytes that the model sees")
parser.add_argument("--width", type=int, default=192)
parser.add_argument("--depth", type=int, default=4)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--sample", type=int, default=400, help="bytes to write at the end")
parser.add_argument("--save", help="file for the trained weights")


class Block(nn.Module):
    """Attention and a two-layer perceptron, each after a layer norm and added to the stream."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Bytes in, scores for the next byte out."""

    def __init__(self, context, width, depth, heads):
        super().__init__()
        self.context = context
        self.token, self.position = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                residual = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * depth) if residual else 0.02)

    def forward(self, i):
        x = self.token(i) + self.position(flow.arange(i.shape[1]))
        return self.head(self.norm(self.blocks(x)))

    @flow.no_grad()
    def write(self, start, count, temperature=0.8):
        """Returns ``start`` and ``count`` bytes more, one drawn after the other."""
        text = list(start)
        for _ in range(count):
            scores = self(flow.tensor([text[-self.context :]]))[0, -1] / temperature
            text.append(flow.multinomial(F.softmax(scores, dim=-1), 1).item())
        return bytes(text)


def standard_library():
    """The source of the standard library as one array of bytes, in the order of the files' names."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(p for p in folder.rglob("*.py") if "site-packages" not in p.parts and "test" not in p.parts)
    return np.frombuffer(b"".join(p.read_bytes() for p in files), np.uint8)


def main():
    args = parser.parse_args()
    dist.init_process_group()
    rank, world = dist.get_rank(), dist.get_world_size()
    flow.manual_seed(args.seed)
    text = standard_library()
    model = DistributedDataParallel(GPT(args.context, args.width, args.depth, args.heads))
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = flow.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))
    warmup = max(1, args.steps // 20)

    def rate(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(1, args.steps - warmup)))

    schedule = flow.optim.lr_scheduler.LambdaLR(optimizer, rate)
    draw = np.random.default_rng([args.seed, rank])  # each rank reads other places of the text
    local = max(1, args.batch_size // world)
    if rank == 0:
        count = sum(p.numel() for p in model.parameters())
        print(f"{count / 1e6:.2f} M parameters, {len(text) / 1e6:.1f} MB of text, {world} process(es)")

    started, smooth = time.perf_counter(), None
    bar = tqdm(range(args.steps), disable=rank != 0)
    for step in bar:
        starts = draw.integers(0, len(text) - args.context - 1, local)
        chunk = np.stack([text[s : s + args.context + 1] for s in starts]).astype(np.int64)
        x, y = flow.from_numpy(chunk[:, :-1]), flow.from_numpy(np.ascontiguousarray(chunk[:, 1:]))
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 10 == 0 or step == args.steps - 1:
            mean = loss.detach().clone()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            bits = mean.item() / math.log(2)
            smooth = bits if smooth is None else 0.8 * smooth + 0.2 * bits
            bar.set_postfix_str(f"{smooth:.3f} bits per byte")
            if rank == 0 and step % 100 == 0 and step:
                tqdm.write(f"step {step}: {smooth:.3f} bits per byte")

    if rank == 0:
        seconds = time.perf_counter() - started
        print(f"{smooth:.3f} bits per byte after {args.steps} steps and {seconds:.0f} s")
        if args.save:
            flow.save(model.state_dict(), args.save)
        print(model.module.write(b"def ", args.sample).decode("utf-8", "replace"))
    dist.barrier()  # the others wait while rank 0 writes
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
