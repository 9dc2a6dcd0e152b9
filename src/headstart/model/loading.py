"""From a path or hub id to weights and a tokenizer; or to a typed refusal that says why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headstart.base.errors import InvalidOption, ModelNotFound, PickleCheckpoint
from headstart.base.extras import pair
from headstart.base.lazy import transformers
from headstart.model import cache, native
from headstart.model.cache import LayerShape
from headstart.model.coded import fits_kernels
from headstart.model.codes import codes_of, is_quantised
from headstart.model.decoders import parts
from headstart.model.decoders.attention import attend_in
from headstart.model.decoders.tiled import buffer_bytes
from headstart.model.gguf import checkpoint as gguf
from headstart.model.hub import folder_of, hub
from headstart.model.kept.config import real
from headstart.model.layer_configs import sizes_of
from headstart.model.memory import MemoryNeed, preflight
from headstart.model.native.weights import why_not
from headstart.model.planes import StateShape
from headstart.model.plausible import check_stated
from headstart.model.quantised.tensors import Tensors
from headstart.model.reading import read_object, reading
from headstart.model.recipes import find_recipe
from headstart.model.recipes.latent import Latent
from headstart.model.refusals import check_class, check_config, refuse_remote_code
from headstart.model.stored import check_amount, check_complete, check_counts, check_sizes, unreported
from headstart.model.wrappers import RENAMED, config_of, is_wrapped, names_of, names_stated, text_of

BUNDLED = "bundled"
DEFAULT_CONTEXT = 32768
"""Positions allowed where a config sets no limit."""

_LONG_LOAD = 2**30
"""Bytes of weights from which loading shows its progress."""

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def resolve(source: str | Path, role: str) -> str:
    """The directory, GGUF file or hub id of a model. "bundled" is the bundled pair. role: "target", "draft".

    Raises:
        ModelNotFound: it leads to no model, or the bundled pair is not installed.
    """
    if str(source) == BUNDLED:
        source = pair(role)
    path = Path(source).expanduser()
    if not path.exists() and path.suffix != gguf.SUFFIX:
        return str(source)  # a hub id, or a mistake: loading its config will tell
    if gguf.is_gguf(path):
        return str(path)
    if not path.is_dir():
        what = "is a file, neither GGUF nor a model directory" if path.exists() else "does not exist"
        raise ModelNotFound(f"{path} {what}", hint="give a .gguf file, or the directory with config.json")
    if not (path / "config.json").is_file():
        return str(_only_gguf(path))
    return str(path)


def _only_gguf(folder: Path) -> Path:
    """The one model in a directory of GGUF files."""
    models = sorted({gguf.parts(file)[0] for file in folder.glob(f"*{gguf.SUFFIX}")})
    if len(models) == 1:
        return models[0]
    if models:
        named = ", ".join(file.name for file in models[:4])
        raise ModelNotFound(f"{folder} holds {len(models)} GGUF models: {named}", hint="name the file that you mean")
    raise ModelNotFound(
        f"{folder} has no config.json", hint="give a directory written by save_pretrained, a .gguf file, or a hub id"
    )


def config_folder(source: str) -> Path | None:
    """Where the config.json of a directory or hub id can be read; None if it cannot, which loading will explain, and
    for a GGUF file, which has none."""
    if Path(source).is_dir():
        return Path(source)
    if gguf.is_gguf(source):
        return None
    with suppress(OSError), hub(source):
        found = transformers.utils.cached_file(source, "config.json")
        return None if found is None else Path(found).parent
    return None


def fetch(source: str) -> Path:
    """A directory with configs and weights of a drafter that is no model of transformers' own."""
    with reading(source):
        return folder_of(source)


def load_config(source: str, *, trust_remote_code: bool) -> Any:
    """The model's config, checked against what the engine can run; raises before any weight is read."""
    with reading(source):
        if gguf.is_gguf(source):
            return gguf.load_config(source)
        return _load_config(source, trust_remote_code=trust_remote_code)


def _load_config(source: str, *, trust_remote_code: bool) -> Any:
    folder = Path(source)
    if folder.is_dir():
        stated = read_object(folder / "config.json", hint="give a directory written by save_pretrained")
        check_stated(source, stated)
        if not trust_remote_code:
            refuse_remote_code(source, stated)
        check_counts(folder, stated, names_stated(stated))
    config = text_of(config_of(source, trust_remote_code=trust_remote_code))
    check_config(config)
    check_sizes(source, config)
    if not folder.is_dir():
        check_stated(source, config.to_dict())
    if folder.is_dir():
        weight_files(folder, convert="model.save_pretrained(path) writes safetensors")
    if is_quantised(config):
        from headstart.model.quantised import checkpoint

        checkpoint.check(source, config)
    return config


def choose_dtype(dtype: str | torch.dtype, config: Any, device: torch.device) -> torch.dtype:
    """ "auto": the checkpoint's type; on a CPU, bf16 where the row kernels run the model, which read half as many bytes
    then, or where PyTorch has instructions for it; else float32."""
    if isinstance(dtype, torch.dtype):
        return dtype
    names = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype != "auto":
        return names[dtype]
    stored: torch.dtype = config.dtype or torch.float32
    if device.type != "cpu" or stored == torch.float32:
        return stored
    fast = torch.cpu._is_avx512_bf16_supported() or fits_kernels(config, stored, device, native.BF16_WIDE)
    return stored if stored == torch.bfloat16 and fast else torch.float32


def choose_cache_dtype(asked: str, config: Any, dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Of keys and values: "auto" is the model's; "int8" needs the row kernels.

    Raises:
        InvalidOption: they do not run the model, or round nothing of it.
    """
    if asked == "auto":
        return dtype
    recipe = find_recipe(config)
    why = "headstart has no forward of its own for it" if recipe is None else why_not(dtype, device, recipe.widths)
    if recipe is not None and any(isinstance(each, Latent) for each in recipe.attentions):
        why = "its attention is latent, and that is not rounded"
    if why is not None:
        raise InvalidOption(
            f"kv_cache_dtype={asked!r} is not for this {config.model_type}: {why}", hint="leave it out, or use 'auto'"
        )
    return torch.int8


def load_weights(
    source: str,
    config: Any,
    dtype: torch.dtype,
    device: torch.device,
    *,
    trust_remote_code: bool,
    packed: bool = False,
) -> Any:
    """The model in eval mode, on the device, its attention replaced by ours. packed: on the checkpoint's own codes,
    which must be able to run (see `Codes.blocks`)."""
    with reading(source):
        config = real(config)
        codes = codes_of(source, config)
        if packed and codes is not None:
            return adopt(codes.load_packed(source, config, dtype))
        size = _weight_bytes(source, config, dtype)
        with _progress(size >= _LONG_LOAD):
            model = None
            if codes is None and not trust_remote_code and streams(config, dtype, device):
                model = _read_streamed(source, config, dtype, size)
                if model is None:  # memory was counted for what is laid out of them, and not for the floats of all
                    preflight([MemoryNeed(source, size, 0)], device)
            if model is None:
                model = _read_model(source, config, dtype, size, trust_remote_code=trust_remote_code)
        return adopt(model.to(device))


def read_model(source: str, config: Any, dtype: torch.dtype, *, trust_remote_code: bool = False) -> Any:
    """The model of transformers on the CPU as `from_pretrained` gives it: from safetensors or GGUF, never a pickle.

    Raises:
        ModelNotFound, DamagedModel, UnsupportedModel: see `reading` and `check_complete`.
    """
    with reading(source):
        config = real(config)
        size = _weight_bytes(source, config, dtype)
        return _read_model(source, config, dtype, size, trust_remote_code=trust_remote_code)


def _read_model(source: str, config: Any, dtype: torch.dtype, size: int, *, trust_remote_code: bool) -> Any:
    if (codes := codes_of(source, config)) is not None:
        return codes.load_model(source, config, dtype)
    auto = transformers.AutoModelForCausalLM
    model, found = _from_files(auto, source, config, dtype, size, trust_remote_code=trust_remote_code)
    _check(source, config, model, found)
    return model


def streams(config: Any, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this is a mixture whose experts are floats, which are read and laid out one after the other: where the
    row kernels run it."""
    recipe = find_recipe(config)
    if recipe is None or not recipe.experts or is_quantised(config):
        return False
    return why_not(dtype, device, recipe.widths) is None


def _read_streamed(source: str, config: Any, dtype: torch.dtype, size: int) -> Any | None:
    """The model, the experts of which stay in their files; None where they lie in them as no decoder takes them."""
    from headstart.model import streamed  # most models have no experts

    model, found = _from_files(streamed.class_of(config), source, config, dtype, size)
    experts = streamed.find_experts(model, Tensors(folder_of(source)), _renamed(config))
    if experts is None:
        return None
    _check(source, config, model, {**found, "unexpected_keys": set(found["unexpected_keys"]) - experts})
    return model


def _renamed(config: Any) -> dict[str, str] | None:
    return RENAMED if is_wrapped(config) else None


def _from_files(
    kind: Any, source: str, config: Any, dtype: torch.dtype, size: int, **options: Any
) -> tuple[Any, Mapping[str, Any]]:
    """A model of this class, and what transformers reports of its weights."""
    if Path(source).is_dir():
        check_amount(Path(source), size // dtype.itemsize, names_of(config))
    with unreported():
        model, found = kind.from_pretrained(
            source,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            key_mapping=_renamed(config),
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # `check_complete` names them
            **options,
        )
    return model, found


def _check(source: str, config: Any, model: Any, found: Mapping[str, Any]) -> None:
    def is_zero(name: str) -> bool:
        tensors = Tensors(folder_of(source), names_of(config))
        return name in tensors.names and not bool(tensors.read(name).any())

    check_complete(source, model, _found(found, config), is_zero, whole=is_wrapped(config))


def _found(found: Mapping[str, Any], config: Any) -> Mapping[str, Any]:
    """What `from_pretrained` reports, without the weights beside a text model."""
    names = {names_of(config)(name) for name in found["unexpected_keys"]}
    return {**found, "unexpected_keys": names - {None}}


def adopt(model: Any) -> Any:
    """Prepare a model already in memory: eval mode, no gradients, our attention."""
    check_class(type(model), model.config)
    model.eval().requires_grad_(False)
    attend_in(model)
    return model


def context_limit(config: Any) -> int:
    """Positions the model was built for."""
    return int(getattr(config.get_text_config(), "max_position_embeddings", None) or DEFAULT_CONTEXT)


def weight_bytes(source: str, config: Any, dtype: torch.dtype) -> int:
    """Bytes of the weights in `dtype`, from the shapes alone (nothing is allocated)."""
    with reading(source):
        return _weight_bytes(source, config, dtype)


def _weight_bytes(source: str, config: Any, dtype: torch.dtype) -> int:
    model_class = transformers.MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if model_class is None:
        return sum(file.stat().st_size for file in Path(source).glob("*.safetensors"))
    with torch.device("meta"):
        model: nn.Module = model_class(config)
    size = torch.finfo(dtype).bits // 8
    return size * sum(parameter.numel() for parameter in set(model.parameters()))


def cache_bytes(config: Any, dtype: torch.dtype, *, slots: int, length: int) -> int:
    """Bytes of a cache, from the config alone."""
    shapes, states = _kept(config)
    return cache.cache_bytes(shapes, states, slots=slots, capacity=length, dtype=dtype)


def state_bytes(config: Any, dtype: torch.dtype, *, slots: int, length: int) -> int:
    """Of those, the bytes of recurrent states, which a shorter text does not make fewer."""
    shapes, states = _kept(config)
    both, text = (
        cache.cache_bytes(shapes, kept, slots=slots, capacity=length, dtype=dtype) for kept in (states, cache.NO_STATES)
    )
    return both - text


def forward_bytes(config: Any, dtype: torch.dtype, device: torch.device, *, rows: int, length: int) -> int:
    """Bytes that the kernels take for a forward of so many rows, nearly; 0 where they do not run."""
    recipe = find_recipe(config)
    if recipe is None or why_not(dtype, device, recipe.widths) is not None:
        return 0
    return buffer_bytes(recipe, rows=rows, capacity=length, size=dtype.itemsize)


def _kept(config: Any) -> tuple[Mapping[int, LayerShape], Mapping[int, StateShape]]:
    """What each layer keeps."""
    recipe = find_recipe(config)
    if recipe is not None:
        return parts.shapes(recipe), parts.states(recipe)
    sizes = enumerate(sizes_of(config.get_text_config()))
    return {i: LayerShape(heads, dim, dim) for i, (heads, dim) in sizes}, cache.NO_STATES


@contextmanager
def _progress(wanted: bool) -> Iterator[None]:
    """transformers' progress bar, only for loads that take long enough to want one."""
    shown = transformers.utils.logging.is_progress_bar_enabled()
    if shown and not wanted:
        transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers.utils.logging.enable_progress_bar()


def weight_files(folder: Path, *, convert: str) -> list[Path]:
    """The safetensors in a directory. convert: how a pickle of these weights becomes one.

    Raises:
        PickleCheckpoint: the weights are there as a pickle only.
        ModelNotFound: there are none.
    """
    if files := sorted(folder.glob("*.safetensors")):
        return files
    pickles = [file.name for pattern in _PICKLES for file in sorted(folder.glob(pattern))]
    if pickles:
        raise PickleCheckpoint(
            f"{folder} holds its weights only as a pickle ({pickles[0]}), which can run code when it is read",
            hint=f"convert it once in a sandbox: {convert}",
        )
    raise ModelNotFound(f"{folder} has no *.safetensors", hint="copy the weights into the directory")
