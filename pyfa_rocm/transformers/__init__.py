# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm for Hugging Face transformers: ``attn_implementation="pyfa_rocm"``, after `register`.

Any model that calls its attention through transformers' attention interface can use it; others, such as those
with ALiBi (BLOOM, MPT, Falcon), raise NotImplementedError, which names what works. Padded batches,
packed sequences (positions that start again) and key-value caches are computed as sequences of their own
lengths, without what is padding; masks of any other form are added to the scores, which takes memory for each
pair of query and key, as eager attention does. `generate` and `generate_batch` read caches where they lie.
"""

try:
    import transformers as _transformers
    from transformers import AttentionInterface, AttentionMaskInterface
except ImportError as error:
    raise ImportError(
        "pyfa_rocm.transformers needs PyTorch and transformers 5 or newer: pip install torch transformers"
    ) from error

# transformers 4 describes masks by other arguments.
if int(_transformers.__version__.partition(".")[0]) < 5:
    raise ImportError(
        f"pyfa_rocm.transformers needs transformers 5 or newer, got {_transformers.__version__}: pip install "
        "--upgrade transformers"
    )

from pyfa_rocm.transformers._attention import attention_forward
from pyfa_rocm.transformers._mask import attention_mask, remember_in_graphs
from pyfa_rocm.transformers._tables import refuse_in_tables
from pyfa_rocm.transformers._teach import teach

del _transformers

__all__ = ["NAME", "attention_forward", "attention_mask", "register"]

NAME = "pyfa_rocm"


def register() -> None:
    """Make ``attn_implementation="pyfa_rocm"`` known to transformers, in this process. Again is no error.

    A model that looks its attention up in a table of its own (Falcon, GPT-J, GPT-Neo, SAM) raises
    NotImplementedError when it is made, and names the implementations it has.

    Notes
    -----
    Source: `attention_forward` and `attention_mask`, through ``AttentionInterface.register`` and
    ``AttentionMaskInterface.register`` of transformers. Continuous batching (`generate_batch`) has no such
    register: two functions that it asks about names are wrapped, and answer for this one as for
    flash-attention. Five functions that make mask functions are wrapped too: while a model is compiled, they
    make ones that say what they were made of.

    Examples
    --------
    >>> import torch, transformers
    >>> import pyfa_rocm.transformers
    >>> pyfa_rocm.transformers.register()
    >>> config = transformers.LlamaConfig(
    ...     vocab_size=64, hidden_size=128, intermediate_size=128, num_hidden_layers=1,
    ...     num_attention_heads=2, num_key_value_heads=1, attn_implementation="pyfa_rocm",
    ... )
    >>> model = transformers.LlamaForCausalLM(config).half().eval()
    >>> with torch.no_grad():
    ...     model(torch.arange(40)[None]).logits.shape
    torch.Size([1, 40, 64])
    """
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, attention_mask)
    remember_in_graphs(NAME)
    teach(NAME)
    refuse_in_tables(NAME)
