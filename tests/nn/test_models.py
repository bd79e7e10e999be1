"""Models as public scripts write them: built, trained a few steps, saved and loaded, with only the imports changed."""

import math

import numpy as np
import pytest

import ddpflow as torch
import ddpflow.nn as nn
import ddpflow.nn.functional as F


class SelfAttention(nn.Module):
    """Attention as nanoGPT writes it, fused or step by step."""

    def __init__(self, width, heads, block):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.heads = heads
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

    def forward(self, x, fused):
        """Returns attended values."""
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(c, dim=2)
        k, q, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (k, q, v))
        if fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
            y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    """One transformer block."""

    def __init__(self, width, heads, block):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads, block)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, fused):
        """Returns the block's output."""
        x = x + self.attn(self.ln_1(x), fused)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """A GPT with tied embeddings."""

    def __init__(self, vocab=16, width=16, heads=2, block=8, layers=2):
        super().__init__()
        self.block = block
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab, width),
                "wpe": nn.Embedding(block, width),
                "h": nn.ModuleList([Block(width, heads, block) for _ in range(layers)]),
                "ln_f": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx, targets=None, fused=True):
        """Returns logits and, with targets, the loss."""
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x, fused)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(self, idx, count, top_k):
        """Returns the tokens, continued."""
        for _ in range(count):
            logits, _ = self(idx[:, -self.block :])
            logits = logits[:, -1, :]
            least, _ = torch.topk(logits, top_k)
            logits[logits < least[:, [-1]]] = -float("Inf")
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), dim=1)
        return idx


def train(loss_of, parameters, steps, lr=1e-2):
    """Returns the first and the last loss of a training run."""
    optimizer = torch.optim.AdamW(parameters, lr=lr)
    losses = []
    for _ in range(steps):
        loss = loss_of()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


@pytest.fixture(autouse=True)
def seeded():
    """Starts each model from the same numbers."""
    torch.manual_seed(0)


def test_gpt():
    """A GPT learns a periodic text by heart and goes on with it; tied weights count once."""
    model = GPT()
    text = torch.arange(64) % 5
    x = torch.stack([text[i : i + 8] for i in range(4)])
    y = torch.stack([text[i + 1 : i + 9] for i in range(4)])
    first, last = train(lambda: model(x, y)[1], model.parameters(), 60)
    assert first == pytest.approx(math.log(16), rel=0.05)
    assert last < 0.1
    model.eval()
    fused, plain = model(x, y)[0], model(x, y, fused=False)[0]
    np.testing.assert_allclose(fused.detach().numpy(), plain.detach().numpy(), rtol=1e-3, atol=1e-4)
    assert model.generate(torch.tensor([[0, 1, 2]]), 6, top_k=1).tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 3]]
    names = [name for name, _ in model.named_parameters()]
    assert "transformer.wte.weight" in names
    assert "lm_head.weight" not in names
    other = GPT()
    other.load_state_dict(model.state_dict())
    assert other(x, y)[1].item() == model(x, y)[1].item()


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_word_language_model(kind):
    """A recurrent language model carries its state, detached, from one stretch of text to the next."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Embedding(6, 12)
            self.rnn = getattr(nn, kind)(12, 12, 2)
            self.decoder = nn.Linear(12, 6)
            nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

        def forward(self, x, hidden):
            output, hidden = self.rnn(self.encoder(x), hidden)
            return F.log_softmax(self.decoder(output).view(-1, 6), dim=1), hidden

        def init_hidden(self, batch):
            weight = next(self.parameters())
            zeros = weight.new_zeros(2, batch, 12)
            return (zeros, zeros.clone()) if kind == "LSTM" else zeros

    model = Model()
    text = (torch.arange(24) % 6).view(12, 2)
    state = [model.init_hidden(2)]

    def loss_of():
        hidden = state[0]
        hidden = tuple(h.detach() for h in hidden) if kind == "LSTM" else hidden.detach()
        output, state[0] = model(text[:-1], hidden)
        return F.nll_loss(output, text[1:].reshape(-1))

    first, last = train(loss_of, model.parameters(), 60, lr=3e-2)
    assert last < first / 3


def test_variational_autoencoder():
    """A VAE's reconstruction and divergence fall together."""

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc21, self.fc22 = nn.Linear(12, 16), nn.Linear(16, 2), nn.Linear(16, 2)
            self.fc3, self.fc4 = nn.Linear(2, 16), nn.Linear(16, 12)

        def forward(self, x):
            h = F.relu(self.fc1(x.view(-1, 12)))
            mu, logvar = self.fc21(h), self.fc22(h)
            std = torch.exp(0.5 * logvar)
            z = mu + torch.randn_like(std) * std
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar

    model = VAE()
    x = (torch.rand(8, 3, 4) > 0.5).float()

    def loss_of():
        recon, mu, logvar = model(x)
        bce = F.binary_cross_entropy(recon, x.view(-1, 12), reduction="sum")
        return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())

    first, last = train(loss_of, model.parameters(), 80)
    assert last < 0.8 * first


def test_generator_and_discriminator():
    """A DCGAN's two networks train against each other, with frozen graphs between them."""
    generator = nn.Sequential(
        nn.ConvTranspose2d(4, 8, 4, 1, 0, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    discriminator = nn.Sequential(
        nn.Conv2d(1, 8, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(8, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
        nn.Flatten(0),
    )

    def weights_init(module):
        if type(module).__name__.find("Conv") != -1:
            nn.init.normal_(module.weight, 0.0, 0.02)
        elif type(module).__name__.find("BatchNorm") != -1:
            nn.init.normal_(module.weight, 1.0, 0.02)
            nn.init.zeros_(module.bias)

    generator.apply(weights_init)
    criterion = nn.BCELoss()
    real = torch.ones(6, 1, 8, 8) * 0.5
    optimizers = [torch.optim.Adam(net.parameters(), lr=2e-3) for net in (discriminator, generator)]
    for _ in range(30):
        fake = generator(torch.randn(6, 4, 1, 1))
        discriminator.zero_grad()
        criterion(discriminator(real), torch.ones(6)).backward()
        criterion(discriminator(fake.detach()), torch.zeros(6)).backward()
        optimizers[0].step()
        generator.zero_grad()
        criterion(discriminator(fake), torch.ones(6)).backward()
        optimizers[1].step()
    assert discriminator(real).mean().item() > discriminator(generator(torch.randn(6, 4, 1, 1))).mean().item()
    assert all(parameter.grad is not None for parameter in generator.parameters())


def test_names_by_which_scripts_recognise_layers():
    """Scripts find all batch norms and convolutions, and derive losses, by PyTorch's inner names."""
    assert isinstance(nn.BatchNorm2d(1), nn.modules.batchnorm._BatchNorm)
    assert isinstance(nn.ConvTranspose1d(1, 1, 1), nn.modules.conv._ConvNd)

    class Own(nn.modules.loss._WeightedLoss):
        def forward(self, input, target):
            return (self.weight * (input - target)).sum()

    assert Own(torch.tensor([1.0, 2.0]))(torch.ones(2), torch.zeros(2)).item() == 3.0


def test_super_resolution():
    """Convolutions and a pixel shuffle learn to enlarge an image."""
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1), nn.PixelShuffle(2))
    nn.init.orthogonal_(net[0].weight, nn.init.calculate_gain("relu"))
    small = torch.randn(2, 1, 6, 6)
    large = F.interpolate(small, scale_factor=2, mode="bilinear", align_corners=False)
    first, last = train(lambda: nn.MSELoss()(net(small), large), net.parameters(), 60)
    assert last < 0.2 * first
