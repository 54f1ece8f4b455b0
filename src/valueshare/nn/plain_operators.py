"""The operators of `operators.py` in plain PyTorch, agent by agent: what the kernels are compared with."""

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight


def convolve(
    image: Tensor, weight: Tensor, bias: Tensor, kernel: int, stride: int, channels_first: bool, scale: float
) -> Tensor:
    """relu(scale · image * weight + bias). Shapes: [P, B, H, W, C], [P, N, K], [P, N] -> [P, B, H', W', N]."""
    images = image.movedim(-1, 2).to(bias.dtype)
    filters = _filters(weight, kernel, channels_first)
    each = [functional.conv2d(x, w, stride=stride) for x, w in zip(images, filters, strict=True)]
    products: Tensor = torch.stack(each).movedim(2, -1)
    return (products * scale + bias[:, None, None, None]).relu()


def convolve_weight_gradient(
    gradient: Tensor, image: Tensor, kernel: int, stride: int, channels_first: bool
) -> tuple[Tensor, Tensor]:
    """Of weights and biases. Shapes: [P, B, H', W', N], [P, B, H, W, C] -> [P, 1, N, K], [P, 1, N], one part."""
    agents, outputs, channels = gradient.shape[0], gradient.shape[-1], image.shape[-1]
    images, gradients = image.movedim(-1, 2).to(gradient.dtype), gradient.movedim(-1, 2)
    size = (outputs, channels, kernel, kernel)
    each = [conv2d_weight(x, size, g, stride) for x, g in zip(images, gradients, strict=True)]  # type: ignore[no-untyped-call]
    filters = torch.stack(each)  # [P, N, C, kernel, kernel]
    ordered = filters if channels_first else filters.movedim(2, -1)
    return ordered.reshape(agents, 1, outputs, -1), gradient.sum((1, 2, 3)).unsqueeze(1)


def convolve_image_gradient(
    gradient: Tensor, columns: Tensor, height: int, width: int, kernel: int, stride: int
) -> Tensor:
    """Shapes: [P, B, H', W', N], [P, K, N] in the order (row, column, channel) -> [P, B, H, W, C]."""
    states, filters = gradient.shape[1], _filters(columns.mT, kernel, channels_first=False)
    size = (states, filters.shape[2], height, width)
    gradients = gradient.movedim(-1, 2)
    each = [conv2d_input(size, w, g, stride) for w, g in zip(filters, gradients, strict=True)]  # type: ignore[no-untyped-call]
    images: Tensor = torch.stack(each).movedim(2, -1)
    return images


def quantile_features(cosines: Tensor, weight: Tensor, bias: Tensor, features: Tensor) -> Tensor:
    """Shapes: [P, B, T, I], [P, F, I], [P, F], [P, B, F] -> [P, B, T, F]."""
    return features.unsqueeze(2) * _embedding(cosines, weight, bias).relu()


def quantile_features_gradient(
    gradient: Tensor, cosines: Tensor, weight: Tensor, bias: Tensor, features: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of weights, biases and features. Shapes: [P, B, T, F], ... -> [P, 1, F, I], [P, 1, F], [P, B, F], one part."""
    embedding = _embedding(cosines, weight, bias)
    of_embedding = (gradient * features.unsqueeze(2)).masked_fill(embedding <= 0, 0.0)
    of_weight = torch.einsum("pbtf,pbti->pfi", of_embedding, cosines)
    of_features = (gradient * embedding.relu()).sum(2)
    return of_weight.unsqueeze(1), of_embedding.sum((1, 2)).unsqueeze(1), of_features


def output_layer(hidden: Tensor, hidden_bias: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """relu(hidden + hidden_bias) · weightᵀ + bias. Shapes: [P, R, H], [P, H], [P, A, H], [P, A] -> [P, R, A]."""
    return torch.baddbmm(bias.unsqueeze(1), (hidden + hidden_bias.unsqueeze(1)).relu(), weight.mT)


def output_layer_gradient(
    gradient: Tensor, hidden: Tensor, hidden_bias: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of `hidden`, that transposed, of hidden biases and weights.

    Shapes: [P, R, A], ... -> [P, R, H], [P, H, R], [P, 1, H], [P, 1, A, H], one part.
    """
    sums = hidden + hidden_bias.unsqueeze(1)
    of_hidden = torch.bmm(gradient, weight).masked_fill(sums <= 0, 0.0)
    of_weight = torch.bmm(gradient.mT, sums.relu())
    return of_hidden, of_hidden.mT.contiguous(), of_hidden.sum(1, keepdim=True), of_weight.unsqueeze(1)


def mlp(
    x: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor,
    weight3: Tensor,
    bias3: Tensor,
    keeps_units: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Two linear layers with a ReLU after each, and a linear layer; and the units after each ReLU.

    Shapes: [P, R, I], [P, F, I], [P, F], [P, H, F], [P, H], [P, A, H], [P, A] -> [P, R, A], [P, R, F], [P, R, H].
    """
    features = torch.baddbmm(bias1.unsqueeze(1), x, weight1.mT).relu()
    hidden = torch.baddbmm(bias2.unsqueeze(1), features, weight2.mT).relu()
    kept = slice(None if keeps_units else 0)
    return torch.baddbmm(bias3.unsqueeze(1), hidden, weight3.mT), features[:, kept], hidden[:, kept]


def mlp_gradient_of_hidden(gradient: Tensor, hidden: Tensor, weight3: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the hidden units before their ReLU, bias2 and weight3.

    Shapes: [P, R, A], [P, R, H], [P, A, H] -> [P, R, H], [P, H], [P, A, H].
    """
    of_hidden = torch.bmm(gradient, weight3).masked_fill(hidden <= 0, 0.0)
    return of_hidden, of_hidden.sum(1), torch.bmm(gradient.mT, hidden)


def mlp_gradient_of_features(of_hidden: Tensor, weight2: Tensor, features: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Of weight1 and bias1. Shapes: [P, R, H], [P, H, F], [P, R, F], [P, R, I] -> [P, F, I], [P, F]."""
    of_features = torch.bmm(of_hidden, weight2).masked_fill(features <= 0, 0.0)
    return torch.bmm(of_features.mT, x), of_features.sum(1)


def product_in_order(a: Tensor, b: Tensor) -> Tensor:
    """Shapes: [P, N, rows], [P, rows, K] -> [P, N, K]."""
    return torch.bmm(a, b)


def _filters(weight: Tensor, kernel: int, channels_first: bool) -> Tensor:
    """[P, N, K] -> [P, N, C, kernel, kernel]."""
    agents, outputs, _ = weight.shape
    if channels_first:
        return weight.reshape(agents, outputs, -1, kernel, kernel)
    return weight.reshape(agents, outputs, kernel, kernel, -1).movedim(-1, 2)


def _embedding(cosines: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.einsum("pbti,pfi->pbtf", cosines, weight) + bias[:, None, None]
