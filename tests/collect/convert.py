"""Models in the packages' own formats → plain folders that transformers loads in seconds."""

from __future__ import annotations

import struct
from pathlib import Path

import fetch
import numpy as np


def smollm2() -> Path:
    """SmolLM2-135M-Instruct, dequantised to float32."""
    return fetch.plain_folder("smollm2-135m", lambda folder: _dequantise(fetch.smollm2_gguf(), folder))


def smollm2_f32() -> Path:
    """The same weights as a GGUF file in float32, on which llama.cpp must agree closely."""
    folder = fetch.plain_folder("smollm2-f32-gguf", lambda f: _widen(fetch.smollm2_gguf(), f / "smollm2-f32.gguf"))
    return folder / "smollm2-f32.gguf"


def gemma() -> Path:
    """Gemma-3-270M, dequantised to float32, with the BOS that its GGUF file asks for."""

    def fill(folder: Path) -> None:
        _dequantise(fetch.gemma_gguf(), folder)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (folder / file).write_bytes((fetch.tokenizer_folder("gemma3") / file).read_bytes())

    return fetch.plain_folder("gemma-3-270m", fill)


def stories() -> Path:
    """stories15M with the Llama 2 vocabulary it was trained on."""
    return fetch.plain_folder("stories15m", lambda folder: _from_llama2c(fetch.stories_files(), folder))


def _dequantise(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = model.config
    del config.quantization_config  # the weights are plain now, and only plain ones can be saved
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


def _widen(source: Path, target: Path) -> None:
    """Copy a GGUF file with every tensor dequantised."""
    import gguf

    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind, value = field.types[0], field.contents()
        if name == "general.file_type":
            value = int(gguf.LlamaFileType.ALL_F32)
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, kind, sub_type=inner)
    for tensor in reader.tensors:
        plain = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, plain, raw_dtype=gguf.GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _from_llama2c(path: Path, folder: Path) -> None:
    """The layout of llama2.c: seven ints, then float32 matrices one after the other."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    data = (path / "model.bin").read_bytes()
    dim, hidden, layers, heads, kv_heads, words, length = struct.unpack("7i", data[:28])
    weights = np.frombuffer(data, np.float32, offset=28)
    at = 0

    def take(*shape: int) -> torch.Tensor:
        nonlocal at
        size = int(np.prod(shape))
        at += size
        return torch.from_numpy(weights[at - size : at].reshape(shape).copy())

    def half_rotation(w: torch.Tensor) -> torch.Tensor:
        """llama2.c rotates neighbours, transformers rotates halves."""
        return w.view(layers, heads, dim // heads // 2, 2, dim).transpose(2, 3).reshape(layers, dim, dim)

    state = {"model.embed_tokens.weight": take(abs(words), dim)}
    stacks = {"input_layernorm": take(layers, dim)}
    stacks["self_attn.q_proj"] = half_rotation(take(layers, dim, dim))
    stacks["self_attn.k_proj"] = half_rotation(take(layers, dim, dim))
    stacks["self_attn.v_proj"] = take(layers, dim, dim)
    stacks["self_attn.o_proj"] = take(layers, dim, dim)
    stacks["post_attention_layernorm"] = take(layers, dim)
    stacks["mlp.gate_proj"] = take(layers, hidden, dim)
    stacks["mlp.down_proj"] = take(layers, dim, hidden)
    stacks["mlp.up_proj"] = take(layers, hidden, dim)
    state |= {f"model.layers.{i}.{k}.weight": v[i] for k, v in stacks.items() for i in range(layers)}
    state["model.norm.weight"] = take(dim)
    config = LlamaConfig(
        vocab_size=abs(words),
        hidden_size=dim,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=length,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    missing = model.load_state_dict(state, strict=False)
    assert set(missing.missing_keys) <= {"lm_head.weight"}, missing
    assert not missing.unexpected_keys, missing
    model.tie_weights()
    model.save_pretrained(folder)
    _llama2_tokenizer(path / "tokenizer.bin", folder)


def _llama2_tokenizer(path: Path, folder: Path) -> None:
    """The vocabulary of Llama 2 with its scores; the merges follow from the order of the scores."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces, scores = _llama2c_pieces(path.read_bytes())
    pieces[:259] = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    ids = {piece: i for i, piece in enumerate(pieces)}
    merges = [
        (scores[ids[piece]], (piece[:cut], piece[cut:]))
        for piece in pieces[259:]
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    merges.sort(key=lambda m: (-m[0], ids[m[1][0]], ids[m[1][1]]))
    model = models.BPE(ids, [m for _, m in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)


def _llama2c_pieces(data: bytes) -> tuple[list[str], list[float]]:
    """After the longest length: score, length and bytes of each piece, with spaces as they are."""
    pieces, scores, at = [], [], 4
    while at < len(data) and len(pieces) < 32_000:
        score, length = struct.unpack_from("fi", data, at)
        pieces.append(data[at + 8 : at + 8 + length].decode().replace(" ", "▁"))
        scores.append(score)
        at += 8 + length
    return pieces, scores
