"""The safetensors format, in pieces that are written as they come."""

import json
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor


def safetensors_bytes(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """A file's header, then every tensor's bytes.

    Written here and not by the library's `save_file`, so that the checksum is taken on the way, no
    second copy of the data is made, and a full disk is an OSError with its number.
    """
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8
    yield len(text).to_bytes(8, "little") + text
    for tensor in tensors.values():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data


_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
