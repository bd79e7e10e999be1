"""Probability distributions over tensors, as policy gradients and samplers use them: Normal, Bernoulli, Categorical."""

import math
from typing import Any

from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.mode import no_grad
from ddpflow.autograd.ops.compare import where
from ddpflow.autograd.ops.reduce import logsumexp
from ddpflow.autograd.ops.sampling import bernoulli, multinomial
from ddpflow.autograd.ops.shape import broadcast_tensors
from ddpflow.autograd.tensor import Size
from ddpflow.draws import normal, randn
from ddpflow.errors import ValueRangeError
from ddpflow.factories import tensor

__all__ = ["Bernoulli", "Categorical", "Distribution", "Normal", "kl_divergence"]


def _tensor(value: Any) -> Any:
    return value if isinstance(value, TensorBase) else tensor(float(value))


class Distribution:
    """What all distributions have.

    Attributes:
        batch_shape: The shape of the parameters: that many independent distributions.
        event_shape: The shape of one draw of one of them.
    """

    has_rsample = False

    def __init__(self, batch_shape: Any = (), event_shape: Any = ()) -> None:
        self.batch_shape = Size(batch_shape)
        self.event_shape = Size(event_shape)

    @property
    def mean(self) -> Any:
        """The expected value."""
        raise NotImplementedError

    @property
    def variance(self) -> Any:
        """The expected squared distance from the mean."""
        raise NotImplementedError

    @property
    def stddev(self) -> Any:
        """The root of the variance."""
        return self.variance.sqrt()

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Draws through which gradients pass to the parameters.

        Raises:
            NotImplementedError: For discrete distributions.
        """
        raise NotImplementedError(f"{type(self).__name__} has no draws with gradients; use sample() and log_prob()")

    def sample(self, sample_shape: Any = ()) -> Any:
        """Draws without gradients, of shape ``sample_shape + batch_shape + event_shape``."""
        with no_grad():
            return self.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability, or density, at a value."""
        raise NotImplementedError

    def entropy(self) -> Any:
        """The entropy, in nats."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape={tuple(self.batch_shape)}, event_shape={tuple(self.event_shape)})"


class Normal(Distribution):
    """The normal distribution.

    Args:
        loc: The mean.
        scale: The standard deviation.
        validate_args: False skips the check of the parameters.

    Raises:
        ValueRangeError: When a deviation is not positive.
    """

    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_tensors(_tensor(loc), _tensor(scale))
        if validate_args is not False and not bool((self.scale.detach() > 0).all()):
            raise ValueRangeError("Normal needs a standard deviation above 0 everywhere")
        super().__init__(self.loc.shape)

    @property
    def mean(self) -> Any:
        """The mean."""
        return self.loc

    @property
    def mode(self) -> Any:
        """The likeliest value: the mean."""
        return self.loc

    @property
    def stddev(self) -> Any:
        """The standard deviation."""
        return self.scale

    @property
    def variance(self) -> Any:
        """The squared deviation."""
        return self.scale**2

    def sample(self, sample_shape: Any = ()) -> Any:
        """Draws without gradients."""
        with no_grad():
            shape = (*sample_shape, *self.batch_shape)
            return normal(self.loc.detach().expand(shape), self.scale.detach().expand(shape))

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Draws through which gradients pass to mean and deviation."""
        noise = randn(*sample_shape, *self.batch_shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + noise * self.scale

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        distance = value - self.loc
        return -(distance**2) / (2 * self.scale**2) - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def entropy(self) -> Any:
        """The entropy, in nats."""
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    def cdf(self, value: Any) -> Any:
        """The probability of a value at most this one."""
        return 0.5 * (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value: Any) -> Any:
        """The value that is not exceeded with this probability."""
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)


class Bernoulli(Distribution):
    """One or zero.

    Args:
        probs: The probability of one, or
        logits: its log-odds.
        validate_args: False skips the check of the parameters.

    Raises:
        ValueRangeError: When not exactly one of the two is given, or a probability is outside [0, 1].
    """

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        if (probs is None) == (logits is None):
            raise ValueRangeError("Bernoulli takes either probs or logits")
        if probs is not None:
            self.probs = _tensor(probs)
            values = self.probs.detach()
            if validate_args is not False and not bool(((values >= 0) & (values <= 1)).all()):
                raise ValueRangeError("Bernoulli needs probabilities from 0 to 1")
            eps = 1.1920929e-07
            clamped = self.probs.clamp(eps, 1 - eps)
            self.logits = clamped.log() - (1 - clamped).log()
        else:
            self.logits = _tensor(logits)
            self.probs = self.logits.sigmoid()
        super().__init__(self.probs.shape)

    @property
    def mean(self) -> Any:
        """The probability of one."""
        return self.probs

    @property
    def mode(self) -> Any:
        """One where it is likelier, zero where not, NaN where both are equally likely."""
        return where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self.probs.dtype))

    @property
    def variance(self) -> Any:
        """``p (1 - p)``."""
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        """Draws of zeros and ones in the dtype of the parameters."""
        return bernoulli(self.probs.detach().expand((*sample_shape, *self.batch_shape)))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability."""
        return value * self.logits - self._softplus(self.logits)

    def entropy(self) -> Any:
        """The entropy, in nats."""
        return self._softplus(self.logits) - self.probs * self.logits

    @staticmethod
    def _softplus(x: Any) -> Any:
        return x.clamp(min=0) + (-x.abs()).exp().log1p()


class Categorical(Distribution):
    """One of several classes.

    Args:
        probs: Weights along the last dimension, which need not sum to 1, or
        logits: their logarithms.
        validate_args: False skips the check of the parameters.

    Raises:
        ValueRangeError: When not exactly one of the two is given, it has no dimension, or a weight is negative.
    """

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        if (probs is None) == (logits is None):
            raise ValueRangeError("Categorical takes either probs or logits")
        given = _tensor(logits if probs is None else probs)
        if given.dim() < 1:
            raise ValueRangeError("Categorical needs one weight for each class, along the last dimension")
        if probs is not None:
            values = given.detach()
            if validate_args is not False and not bool(((values >= 0).all(-1) & (values.sum(-1) > 0)).all()):
                raise ValueRangeError("Categorical needs weights >= 0 with a sum above 0")
            self.probs = given / given.sum(-1, keepdim=True)
            eps = 1.1920929e-07
            self.logits = self.probs.clamp(eps, 1 - eps).log()
        else:
            self.logits = given - logsumexp(given, -1, keepdim=True)
            self.probs = self.logits.exp()
        super().__init__(given.shape[:-1])

    @property
    def mode(self) -> Any:
        """The likeliest class."""
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Any = ()) -> Any:
        """Draws of class numbers."""
        count = Size(sample_shape).numel()
        rows = self.probs.detach().reshape(-1, self.probs.shape[-1])
        drawn = multinomial(rows, max(count, 1), True)[:, :count]
        return drawn.t().reshape(*sample_shape, *self.batch_shape)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability of class numbers."""
        index, logits = broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Any:
        """The entropy, in nats."""
        return -(self.logits.clamp(min=-3.4028235e38) * self.probs).sum(-1)


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """The Kullback-Leibler divergence of q from p, two distributions of the same kind, in nats.

    Raises:
        NotImplementedError: When they are of different kinds.
    """
    if isinstance(p, Normal) and isinstance(q, Normal):
        ratio = (p.scale / q.scale) ** 2
        return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())
    if isinstance(p, Bernoulli) and isinstance(q, Bernoulli):
        return p.probs * (p.logits - q.logits) + q._softplus(q.logits) - p._softplus(p.logits)
    if isinstance(p, Categorical) and isinstance(q, Categorical):
        return (p.probs * (p.logits - q.logits)).sum(-1)
    raise NotImplementedError(f"no divergence between {type(p).__name__} and {type(q).__name__}")
