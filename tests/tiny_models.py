"""Tiny models with random weights and tokenizers of their own, for several test files."""

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

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "gpt2")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ("the", "keys", "to", "cabinet", "are", "on", "table", "she", "saw", "them", "of")
MARKS = (",", ".", "!", "?", "'", "-")
SIZES = {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 24}
POSITIONS = 42


def randomise(network, seed: int) -> None:
    """Give every parameter a value that no formula can ignore: no zero bias, no gamma of 1."""
    generator = torch.Generator().manual_seed(seed)
    norms = {id(m.weight) for m in network.modules() if isinstance(m, torch.nn.LayerNorm)}
    tables = {id(m.weight) for m in network.modules() if isinstance(m, torch.nn.Embedding)}
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if id(parameter) in norms:
                noise = 1 + (torch.rand(parameter.shape, generator=generator) - 0.5)  # 1 ± 0.5
            elif id(parameter) not in tables:
                noise = noise * 0.4
            parameter.copy_(noise)


def config(family: str, tokenizer) -> transformers.PretrainedConfig:
    if family == "gpt2":
        return transformers.GPT2Config(
            vocab_size=len(tokenizer),
            n_layer=SIZES["num_hidden_layers"],
            n_head=SIZES["num_attention_heads"],
            n_embd=SIZES["hidden_size"],
            n_positions=POSITIONS,
            layer_norm_epsilon=0.2,
            bos_token_id=0,
            eos_token_id=0,
        )
    settings = {"embedding_size": 10} if family == "electra" else {}
    return transformers.AutoConfig.for_model(
        family,
        **SIZES,
        **settings,
        vocab_size=len(tokenizer),
        intermediate_size=40,
        max_position_embeddings=POSITIONS,
        type_vocab_size=2 if family in ("bert", "electra") else 1,
        layer_norm_eps=0.2,
        pad_token_id=tokenizer.pad_token_id,
    )


def tokenizer(family: str) -> transformers.PreTrainedTokenizerFast:
    if family in ("bert", "electra"):
        return _wordpiece()
    return _byte_level(marked=family != "gpt2")


def _wordpiece() -> transformers.PreTrainedTokenizerFast:
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
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def _byte_level(marked: bool) -> transformers.PreTrainedTokenizerFast:
    """Byte-level BPE. `marked`: RoBERTa's marks around the text; GPT-2 has one mark, unused."""
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>") if marked else ("<|endoftext|>",)
    merges = [("Ġ", "t"), ("Ġt", "h"), ("Ġth", "e"), ("k", "e"), ("ke", "y"), ("s", "h")]
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
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B:0 </s>:0",
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
