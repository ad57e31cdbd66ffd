"""Tiny models with random weights and tokenizers of their own, for several test files."""

import json
import tempfile
import warnings
from pathlib import Path

import sentencepiece
import torch
import transformers
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from helpers.tracing import Block

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "gpt2")  # for most tests
# Which marks a family's tokenizer puts around a text: [CLS] and segments, none, or a start symbol.
SEGMENTED = (
    "albert",
    "bert",
    "deberta-v2",
    "electra",
    "ernie",
    "megatron-bert",
    "rembert",
    "roformer",
)
UNMARKED = (
    "falcon",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gpt_neox",
    "gptj",
    "phi",
    "qwen2",
    "qwen2_moe",
)
UNMARKED += ("qwen3", "qwen3_moe", "smollm3", "stablelm", "starcoder2", "olmo", "olmo2", "olmo3")
STARTED = (
    "biogpt",
    "bloom",
    "cohere",
    "gemma",
    "gemma2",
    "gemma3_text",
    "llama",
    "mistral",
    "mixtral",
)
STARTED += ("opt", "phi3")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ("the", "keys", "to", "cabinet", "are", "on", "table", "she", "saw", "them", "of")
MARKS = (",", ".", "!", "?", "'", "-")
SIZES = {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 24}
POSITIONS = 42
TRANSLATIONS = (
    ("Die Schlüssel liegen auf dem Tisch .", "The keys are on the table ."),
    ("Sie sah den alten Schrank .", "She saw the old cabinet ."),
    ("Der Schrank war gestern verschlossen .", "The cabinet was locked yesterday ."),
    ("Wo liegen die Schlüssel zum Schrank ?", "Where are the keys to the cabinet ?"),
)


# What a tiny model of each kind is made of, beside SIZES and the numbers of its special tokens. The
# first word is the family. A window of 3 or 4 tokens hides something even in a short sentence.
_GROUPED = {"num_key_value_heads": 2, "intermediate_size": 40, "rms_norm_eps": 0.2}
_BERT = {"type_vocab_size": 2, "intermediate_size": 40, "layer_norm_eps": 0.2}
_ROBERTA = _BERT | {"type_vocab_size": 1}
_ALBERT = _BERT | {"embedding_size": 10}
_GEMMA = _GROUPED | {"head_dim": 8, "attention_bias": True}
_GEMMA_2 = _GEMMA | {"query_pre_attn_scalar": 8, "sliding_window": 3}
_LOCAL = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
_T5 = {"num_layers": 2, "num_decoder_layers": 3, "d_kv": 8, "d_ff": 40, "layer_norm_epsilon": 0.2}
_SIDES = {"encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}
_SIDES |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
_EXPERTS = _GROUPED | {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
_EXPERTS |= {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
ARCHITECTURES = {
    "albert": _ALBERT,
    "albert, 2 groups of 2": _ALBERT | {"num_hidden_groups": 2, "inner_group_num": 2},
    "bart": _SIDES,
    "bert": _BERT,
    "biogpt": {"intermediate_size": 40},
    "blenderbot": _SIDES,
    "bloom": {"layer_norm_epsilon": 0.2},
    "bloom, residual after LayerNorm": {"apply_residual_connection_post_layernorm": True},
    "camembert": _ROBERTA,
    "cohere": _GROUPED | {"attention_bias": True},
    "data2vec-text": _ROBERTA,
    "deberta-v2": _BERT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "distilbert": {"hidden_dim": 40},
    "electra": _BERT | {"embedding_size": 10},
    "ernie": _BERT,
    "falcon": {"bias": True},
    "falcon, groups": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon, sequential": {"multi_query": False, "parallel_attn": False, "alibi": True},
    "gemma": _GEMMA | {"num_key_value_heads": 1},
    "gemma2": _GEMMA_2 | _LOCAL | {"attn_logit_softcapping": 2.0},
    "gemma3_text": _GEMMA_2 | _LOCAL,
    "gpt2": {"layer_norm_epsilon": 0.2},
    "gpt_bigcode": {"layer_norm_epsilon": 0.2},
    "gpt_bigcode, no sharing": {"multi_query": False},
    "gpt_neo": {
        "num_layers": 3,
        "num_heads": 4,
        "attention_types": [[["global", "local", "global"], 1]],
        "window_size": 3,
    },
    "gpt_neox": {"intermediate_size": 40, "layer_norm_eps": 0.2},
    "gpt_neox, sequential": {"intermediate_size": 40, "use_parallel_residual": False},
    "gptj": {"rotary_dim": 4},
    "llama": _GROUPED | {"attention_bias": True},
    "llama, no biases": _GROUPED | {"num_key_value_heads": 4},
    "m2m_100": _SIDES,
    "marian": _SIDES | {"activation_function": "relu", "forced_eos_token_id": None},
    "mbart": _SIDES,
    "megatron-bert": _BERT,
    "mistral": _GROUPED | {"sliding_window": 3},
    "mixtral": _EXPERTS,
    "modernbert": _LOCAL
    | {"intermediate_size": 40, "local_attention": 4, "norm_eps": 0.2}
    | {"attention_bias": True, "norm_bias": True, "mlp_bias": True},
    "mpnet": _ROBERTA,
    "mt5": _T5 | {"feed_forward_proj": "gated-gelu"},
    "olmo": _GROUPED | {"attention_bias": True},
    "olmo2": _GROUPED | {"attention_bias": True},
    "olmo3": _GROUPED | _LOCAL | {"sliding_window": 3},
    "opt": {"ffn_dim": 40},
    "opt, post-LN": {"ffn_dim": 40, "do_layer_norm_before": False, "word_embed_proj_dim": 16},
    "pegasus": _SIDES,
    "phi": {"intermediate_size": 40, "num_key_value_heads": 2, "hidden_size": 32},
    "phi3": _GROUPED,
    "qwen2": _GROUPED,
    "qwen2_moe": _EXPERTS,
    "qwen3": _GROUPED | {"num_key_value_heads": 1, "head_dim": 8, "attention_bias": True},
    "qwen3_moe": _EXPERTS | {"head_dim": 8, "attention_bias": True},
    "rembert": _BERT | {"input_embedding_size": 10},
    "roberta": _ROBERTA,
    "roformer": _BERT | {"embedding_size": 10},
    "smollm3": _GROUPED | {"attention_bias": True, "no_rope_layers": [1, 0, 1]},
    "stablelm": _GROUPED | {"use_qkv_bias": True, "layer_norm_eps": 0.2},
    "stablelm, parallel": _GROUPED | {"use_parallel_residual": True},
    "starcoder2": _GROUPED | {"sliding_window": 3},
    "t5": _T5,
    "xlm-roberta": _ROBERTA,
    "xlm-roberta-xl": _ROBERTA,
}

_DEEP = {"decoder_layers", "num_decoder_layers"}
TWO_SIDED = tuple(name for name, sizes in ARCHITECTURES.items() if _DEEP & set(sizes))


def randomise(network, seed: int) -> None:
    """Give every parameter a value that no formula can ignore: no zero bias, no gamma of 1."""
    generator = torch.Generator().manual_seed(seed)
    norms = {
        id(m.weight): m
        for m in network.modules()
        if "Norm" in type(m).__name__ and hasattr(m, "weight")
    }
    tables = {id(m.weight) for m in network.modules() if isinstance(m, torch.nn.Embedding)}
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if id(parameter) in norms:
                noise = torch.rand(parameter.shape, generator=generator) - 0.5
                if "Gemma" not in type(norms[id(parameter)]).__name__:  # Gemma adds the 1 itself
                    noise = 1 + noise  # 1 ± 0.5
            elif id(parameter) not in tables:
                noise = noise * 0.4
            parameter.copy_(noise)


def config(name: str, words, **sizes) -> transformers.PretrainedConfig:
    """The configuration of one of ARCHITECTURES for this tokenizer; `sizes` replace its own."""
    family = name.partition(",")[0]
    settings = SIZES | {"vocab_size": len(words)} | ARCHITECTURES[name] | sizes
    if family not in ("t5", "mt5"):
        settings.setdefault("max_position_embeddings", POSITIONS)
    for role in ("pad", "bos", "eos", "cls", "sep"):
        settings[f"{role}_token_id"] = getattr(words, f"{role}_token_id")
    if "encoder_layers" in settings or "num_decoder_layers" in settings:
        start = words.eos_token_id if family == "bart" else words.pad_token_id
        settings["decoder_start_token_id"] = start
        del settings["num_hidden_layers"]  # the two sides differ
    return transformers.AutoConfig.for_model(family, **settings)


def save(name: str, folder: Path, network_class=None, seed: int = 0, **sizes) -> None:
    """Write one of ARCHITECTURES into a folder; a class of its family brings another head.

    `sizes` replace its own.
    """
    words = tokenizer(name.partition(",")[0])
    settings = config(name, words, **sizes)
    if network_class is None:
        network_class = transformers.AutoModel
        if settings.is_encoder_decoder:
            network_class = transformers.AutoModelForSeq2SeqLM
    make = getattr(network_class, "from_config", network_class)
    network = make(settings)
    randomise(network, seed)
    if hasattr(network, "final_logits_bias"):
        network.final_logits_bias.normal_(generator=torch.Generator().manual_seed(seed))
    network.save_pretrained(folder)
    words.save_pretrained(folder)


def tokenizer(family: str) -> transformers.PreTrainedTokenizerBase:
    """A small tokenizer of the family's kind, with the marks that it puts around a text."""
    if family == "marian":
        return _marian_tokenizer()
    if family in SEGMENTED:
        return _wordpiece(segments=True)
    if family in ("distilbert", "modernbert", "mpnet"):
        return _wordpiece(segments=False)
    if family in UNMARKED:
        return _byte_level(marked=False)
    if family in STARTED:
        return _byte_level(marked=True, template="<s> $A", pair="<s> $A $B:0")
    if family in ("t5", "mt5"):
        return _byte_level(marked=True, template="$A </s>", pair="$A </s> $B:0 </s>:0")
    return _byte_level(marked=True)


def _wordpiece(segments: bool) -> transformers.PreTrainedTokenizerFast:
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    pieces = [*special, *MARKS, *LETTERS, *(f"##{c}" for c in LETTERS), *WORDS]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", *["token_type_ids"] * segments, "attention_mask"],
    )


def byte_level(merges: list[tuple[str, str]]) -> transformers.PreTrainedTokenizerFast:
    """Byte-level BPE as GPT-2 has it, with these merges after its own few."""
    return _byte_level(marked=False, more=merges)


def _byte_level(
    marked: bool, template: str = "<s> $A </s>", pair: str = "<s> $A </s> </s> $B:0 </s>:0", more=()
) -> transformers.PreTrainedTokenizerFast:
    """Byte-level BPE. `marked`: marks around the text, as RoBERTa's; GPT-2 has one, unused."""
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>") if marked else ("<|endoftext|>",)
    merges = [("Ġ", "t"), ("Ġt", "h"), ("Ġth", "e"), ("k", "e"), ("ke", "y"), ("s", "h"), *more]
    merged = ["".join(pair) for pair in merges]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: n for n, piece in enumerate([*special, *alphabet, *merged])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if not marked:
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            bos_token="<|endoftext|>",
            eos_token="<|endoftext|>",
            model_input_names=["input_ids", "attention_mask"],
        )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template,
        pair=pair,
        special_tokens=[("<s>", vocabulary["<s>"]), ("</s>", vocabulary["</s>"])],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],
    )


def save_marian(folder: Path, seed: int = 0) -> None:
    """Write a translation model into a folder: 2 layers encode and 3 decode, so a mix-up shows."""
    save("marian", folder, seed=seed)


def _marian_tokenizer() -> transformers.MarianTokenizer:
    """One vocabulary of pieces for both languages; "</s>" ends a text, "<pad>" starts a target."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([side for pair in TRANSLATIONS for side in pair]),
            model_prefix=f"{folder}/pieces",
            vocab_size=58,
            character_coverage=1.0,
            unk_id=1,
            eos_id=0,
            bos_id=-1,
            minloglevel=2,
        )
        model, vocabulary = f"{folder}/pieces.model", Path(folder, "vocab.json")
        pieces = sentencepiece.SentencePieceProcessor(model_file=model)
        ids = {pieces.id_to_piece(number): number for number in range(len(pieces))}
        vocabulary.write_text(json.dumps(ids | {"<pad>": len(ids)}))
        return transformers.MarianTokenizer(
            model, model, str(vocabulary), source_lang="de", target_lang="en"
        )


def random_block(attention: torch.Tensor, D: int, random) -> Block:
    """An attention block of no network, with LayerNorm: `random` gives a tensor of each shape."""
    H, T, _ = attention.shape
    return Block(
        attention=attention,
        x=random(T, D),
        residual=random(T, D),
        W_V=random(H, D, 2),
        b_V=random(H, 2),
        W_O=random(H, 2, D),
        b_O=random(D),
        gamma=random(D),
        beta=random(D),
        eps=1e-5,
        output=random(T, D),
    )
