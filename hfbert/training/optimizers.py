"""Turn gradients into updates as the published pretraining runs did: LAMB, and Adam without bias correction.

LAMB: weight of norm 3.0, update of norm 2.0, rate 0.01  ->  the weight moves by 0.01 x 3.0 / 2.0 x update
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class Lamb(torch.optim.Optimizer):
    """Layer-wise adaptive moments (You et al., 2020, algorithm 2), and BERT's own Adam with `trust=False`.

    m and v are the running means of gradients and of their squares, and u = m / (sqrt(v) + eps) + decay x w.
    A weight w moves by rate x |w| / |u| x u. As in the authors' code that ratio is 1 for groups without decay
    (biases, LayerNorm) and where a norm is 0. With `bias_correction`, m and v are divided by 1 - beta^t
    first; `google-research/bert` did without, which keeps the first steps of a long warm-up small.

    Groups are those of `parameter_groups`; ValueError for gradients that are sparse.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        trust: bool = True,
        bias_correction: bool = True,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.trust, self.bias_correction = trust, bias_correction

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    if parameter.grad.is_sparse:
                        raise ValueError("LAMB and BERT's Adam need dense gradients")
                    self._move(parameter, parameter.grad, group)
        return loss

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        mean, square, (beta1, beta2) = state["exp_avg"], state["exp_avg_sq"], group["betas"]
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        step = float(state["step"])
        share1, share2 = (1 - beta1**step, 1 - beta2**step) if self.bias_correction else (1.0, 1.0)
        update = (mean / share1) / ((square / share2).sqrt() + group["eps"])
        update.add_(parameter, alpha=group["weight_decay"])
        rate = group["lr"]
        if self.trust and group["weight_decay"] > 0:
            weight_norm, update_norm = parameter.norm(), update.norm()
            ratio = torch.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)
            update.mul_(ratio)
        parameter.add_(update, alpha=-rate)
