"""NCCL's error codes by our own table."""

import pytest

from ddpflow.comm.backends.nccl_errors import error_code, error_text


class Coded(RuntimeError):
    """What CuPy raises."""

    def __init__(self, status):
        self.status = status
        super().__init__("text of CuPy")


@pytest.mark.parametrize(
    ("code", "name"),
    list(
        enumerate(
            [
                "success",
                "unhandled CUDA error",
                "system error",
                "internal error",
                "invalid argument",
                "invalid usage",
                "remote error",
                "in progress",
            ]
        )
    ),
)
def test_all_codes_have_names(code, name):
    """A code is named whether CuPy knows it (an exception with a status) or not (a KeyError)."""
    assert error_text(Coded(code)).startswith(f"{name} ({code}): ")
    assert error_text(KeyError(code)).startswith(f"{name} ({code}): ")


def test_other_errors_keep_their_text():
    """What is no code of NCCL's is shown as it is; a newer code by its number."""
    assert error_code(KeyError("name")) is None and error_code(ValueError(3)) is None
    assert error_text(ValueError("bad shape")) == "ValueError: bad shape"
    assert "(9)" in error_text(KeyError(9)) and "newer" in error_text(KeyError(9))
