"""The pretended processor: results differ in their last places, and the same call gives the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.processors.numeric import ROOT
from tests.processors.plugin import OtherProcessor

pytest_plugins = ["pytester"]

A = torch.randn(40, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
X = torch.arange(1.0, 101.0).reshape(10, 10) / 7
SQUARE = A[:30] @ A[:30].mT
RESULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "@": lambda x: x @ x,
    "matmul": lambda x: torch.matmul(x, x),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax of a function": lambda x: torch.nn.functional.log_softmax(x, -1),
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(0),
    "exp": lambda x: (x / 100).exp(),
    "rsqrt": lambda x: torch.rsqrt(x.abs()),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=0),
    "singular values": torch.linalg.svdvals,
    "vectors of an svd": lambda x: torch.linalg.svd(x).U,
    "eigenvalues": torch.linalg.eigvals,
}


@pytest.fixture(params=[0, 1])
def other(request: pytest.FixtureRequest) -> OtherProcessor:
    """Two of them, one after the other; not entered."""
    return OtherProcessor(request.param)


def bits(x: Tensor) -> bytes:
    return torch.view_as_real(x).numpy().tobytes() if x.is_complex() else x.numpy().tobytes()


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_result_differs_by_two_units_in_the_last_place_at_most(other: OtherProcessor, name: str, dtype: torch.dtype) -> None:
    x = SQUARE.to(dtype)
    here = RESULTS[name](x)
    with other:
        there, again = RESULTS[name](x), RESULTS[name](x)
    assert type(there) is Tensor and there.dtype == here.dtype and there.shape == here.shape
    assert bits(there) == bits(again) and bits(there) != bits(here)
    apart = (torch.view_as_real(there - here) if here.is_complex() else there - here).abs()
    size = torch.view_as_real(here).abs() if here.is_complex() else here.abs()
    assert (apart <= 2 * torch.finfo(dtype).eps * size).all()
    assert bits(RESULTS[name](x)) == bits(here), "this processor is back"


def test_noise_hangs_on_the_shapes_and_on_the_processor() -> None:
    with OtherProcessor():
        whole, part = A @ SQUARE, A[:7] @ SQUARE
    with OtherProcessor(1):
        other = A @ SQUARE
    assert not torch.equal(whole, other)
    torch.testing.assert_close(part, whole[:7], rtol=1e-12, atol=1e-9)
    assert not torch.equal(part, whole[:7]) and torch.allclose((A @ SQUARE)[:7], A[:7] @ SQUARE)


def test_what_is_exact_everywhere_stays(other: OtherProcessor) -> None:
    ones, x = torch.ones(5, 5), SQUARE.float()
    with other:
        assert torch.equal(ones @ ones, ones * 5) and ones.sum() == 25
        assert torch.equal(x[:, :1].sum(1), x[:, 0]) and torch.equal(x[:, :1].mean(1), x[:, 0])
        assert torch.softmax(torch.tensor([3.0, -torch.inf]), 0).tolist() == [1.0, 0.0]
        assert torch.isnan(torch.tensor([torch.nan, 1.0]).sum())


def test_gradients_and_inference_pass(other: OtherProcessor) -> None:
    x, y = SQUARE.clone().requires_grad_(), SQUARE.clone().requires_grad_()
    (y @ y).sum().backward()
    with other:
        (x @ x).sum().backward()
        with torch.inference_mode():
            assert not torch.equal(SQUARE @ SQUARE, SQUARE)
    assert x.grad is not None and y.grad is not None
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(("arguments", "passed"), [((), 1), (("-p", "tests.processors.plugin"), 0)], ids=["here", "there"])
def test_a_test_that_rests_on_rounding_fails_there_alone(pytester: pytest.Pytester, arguments: Any, passed: int) -> None:
    pytester.makeini(f"[pytest]\nqt_api = pyside6\npythonpath = {ROOT}\n")
    pytester.makepyfile(
        f"""
        import torch

        def test_rests_on_rounding():
            x = torch.arange(1.0, 101.0).reshape(10, 10) / 7
            assert (x @ x).flatten()[:9].tolist() == {(X @ X).flatten()[:9].tolist()}
        """
    )
    pytester.runpytest_subprocess(*arguments, timeout=300).assert_outcomes(passed=passed, failed=1 - passed)
