"""tokens: what a text becomes, how its tokens are shown, the word of each, what is refused."""

import copy
import json
import re
from functools import partial

import numpy as np
import pytest
import sentencepiece
import torch
import transformers
from oracle.compare import refused
from oracle.tiny_models import POSITIONS, TRANSLATIONS, byte_level, config, save_marian
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel

from helpers import (
    Model,
    blank_out,
    input_gradients,
    load_model,
    reconstruction_error,
    tables,
    trace,
    value_zeroing,
)
from helpers.models import embedded_folder
from helpers.tokens import encode, readable, special_ids

SOURCE, TARGET = "Die Schlüssel liegen im Schrank .", "She saw them on the table ."
KINDS = ("cross", "encoder", "decoder")


def own(words, family: str = "llama") -> Model:
    """A network of one's own for a tokenizer."""
    settings = config(family, words)
    network = transformers.AutoModel.from_config(settings, attn_implementation="eager")
    return Model(network.eval(), words)


@pytest.fixture
def folder(tmp_path):
    """A translation model's files, to be changed."""
    save_marian(tmp_path)
    return tmp_path


# --- tokens that people can read ---------------------------------------------------------------

MERGES = [("Ã", "©"), ("Ġ", "Ã©"), ("ä", "½"), ("ä½", "ł"), ("Ġ", "ä½ł")]  # é, Ġé, 你, Ġ你
HALVES = [("å", "¥"), ("Ġ", "å¥"), ("½", "å¥")]  # two of the three bytes of 好, and beside others
MORE = [("Å", "Ĥ"), ("Ä", "ł"), ("Ċ", "Ċ"), ("â", "Ģ"), ("âĢ", "ĭ")]  # ł, Ġ, two lines, U+200B


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("café 你", ["c", "a", "f", "é", "Ġ你"]),
        ("你é你", ["你", "é", "你"]),
        ("x 好", ["x", "Ġ<0xE5><0xA5>", "<0xBD>"]),
        ("好好", ["<0xE5><0xA5>", "<0xBD><0xE5><0xA5>", "<0xBD>"]),
        ("🙂", ["<0xF0>", "<0x9F>", "<0x99>", "<0x82>"]),
        ("ł\n\n\nx y", ["ł", "ĊĊ", "Ċ", "x", "Ġ", "y"]),
        ("x\u200by\t", ["x", "âĢĭ", "y", "ĉ"]),
        ("aĠb", ["a", "Äł", "b"]),  # the letter, which would look like a space
        ("the<|endoftext|>", ["t", "h", "e", "<|endoftext|>"]),
        ("a«añb»", ["a", "«añb»"]),  # an added token is not made of bytes
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_byte_level_tokens_are_readable(text, tokens, inside):
    words = byte_level([*MERGES, *HALVES, *MORE])
    words.add_tokens(["«añb»"])
    if inside:  # as in LLaMA 3 and Qwen
        backend = words.backend_tokenizer
        backend.decoder = decoders.Sequence([backend.decoder])
        backend.pre_tokenizer = pre_tokenizers.Sequence([backend.pre_tokenizer])
    assert readable(words, words(text)["input_ids"]) == tokens


def test_tokens_of_other_tokenizers_are_those_of_the_vocabulary(minilm, tiny):
    """Even where such a vocabulary holds the signs of bytes: Ã© is not é there."""
    for words in (minilm.tokenizer, tiny("marian").tokenizer):
        ids = list(range(len(words)))
        assert readable(words, ids) == words.convert_ids_to_tokens(ids)
    words = Tokenizer(WordLevel({"Ã©": 0, "ä½": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=words)
    assert readable(words, words("Ã© ä½")["input_ids"]) == ["Ã©", "ä½"]


def test_special_tokens_are_those_that_stand_for_no_text(minilm, tiny):
    assert special_ids(minilm.tokenizer) == {0, 101, 102, 103}, "[UNK], 100, stands for a text"
    assert readable(tiny("marian").tokenizer, sorted(special_ids(tiny("marian").tokenizer))) == [
        "</s>",
        "<pad>",
    ]
    words = byte_level([])
    words.add_tokens(["«a»", AddedToken("<|im_start|>", special=True)])
    words.unk_token = "<|endoftext|>"  # as in GPT-2
    assert readable(words, sorted(special_ids(words))) == ["<|endoftext|>", "<|im_start|>"]


# --- the word of each token --------------------------------------------------------------------

PIECES = ["▁", "▁the", "▁keys", "▁are", "▁on", "key", "s", ".", ",", "e", "a", "r", "the", "\n"]


def unigram(family: type) -> transformers.PreTrainedTokenizerFast:
    """A fast SentencePiece tokenizer, which splits a text at its spaces first."""
    special = ["<pad>", "</s>", "<unk>", "<s>", "<mask>"]  # "<unk>" third, as T5 has it
    scores = [(piece, -9.0) for piece in special] + [(piece, -1.0) for piece in PIECES]
    return family(vocab=scores, extra_ids=1)


def unsplit(family: type) -> transformers.PreTrainedTokenizerFast:
    """Those of Llama 2 and Gemma do not: they take a text as one word."""
    steps = ["th", "the", "▁the", "ke", "key", "keys", "▁keys"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("k", "e"), ("ke", "y"), ("key", "s")]
    pieces = ["<pad>", "<eos>", "<unk>", "<bos>", "<s>", "</s>", *"▁thekys.", "<0x0A>", *steps]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    return family(vocab=vocabulary, merges=[*merges, ("▁", "keys")])


def words_of(run) -> str:
    """Tokens with the number of their word, such as "▁the0 .0 </s>"."""
    words = zip(run.tokens, run.words, strict=True)
    return " ".join(token + ("" if word is None else str(word)) for token, word in words)


@pytest.mark.parametrize(
    ("words", "text", "pair", "expected"),
    [
        ("minilm", "Unbelievable, isn't it", None, "[CLS] unbelievable0 ,1 isn2 '3 t4 it5 [SEP]"),
        ("minilm", "keystrokes 🙂 [MASK]", None, "[CLS] keys0 ##tro0 ##kes0 [UNK]1 [MASK]2 [SEP]"),
        ("minilm", "the [SEP] keys", "on it", "[CLS] the0 [SEP] keys1 [SEP] on2 it3 [SEP]"),
        ("gpt2", "key. the<|endoftext|>the", None, "key0 .1 Ġthe2 <|endoftext|> t3 h3 e3"),
        ("roberta", "key", "the 好", "<s> key0 </s> </s> t1 h1 e1 Ġ2 <0xE5>2 <0xA5>2 <0xBD>2 </s>"),
        ("marian", "Die 象 Tisch.", None, "▁D0 ie0 ▁1 <unk>1 ▁T2 i2 sch2 .2 </s>"),
        ("marian", "Die Tisch", "Sie", "▁D0 ie0 ▁T1 i1 sch1 ▁S2 ie2 </s>"),
        ("t5", "the keys, are on", None, "▁the0 ▁keys1 ,1 ▁are2 ▁on3 </s>"),
        ("t5", "the", "keys", "▁the0 </s> ▁keys1 </s>"),
        ("t5", "are 象 <extra_id_0> on", None, "▁are0 ▁1 <unk>1 <extra_id_0> ▁on2 </s>"),
        ("llama", "the.\nthe  keys", None, "▁the0 .0 <0x0A> the1 ▁2 ▁keys2"),
        ("llama", "the\n\n keys", None, "▁the0 <0x0A> <0x0A> ▁keys1"),
        ("llama", "the keys<s>keys the", None, "▁the0 ▁keys1 <s> keys2 ▁the3"),
        ("llama", "the keys", "the", "▁the0 ▁keys1 ▁the2"),
        ("gemma", "the keys", "the", "the0 ▁keys1 the2"),
        ("gemma", "keys", None, "keys0"),
        ("camembert", "the <mask> are keys", None, "<s> ▁the0 <mask>1 ▁are2 ▁keys3 </s>"),
    ],
)
def test_the_word_of_each_token(minilm, tiny, words, text, pair, expected):
    makers = {
        "t5": partial(unigram, transformers.T5Tokenizer),
        "camembert": partial(unigram, transformers.CamembertTokenizer),
        "llama": partial(unsplit, transformers.LlamaTokenizer),
        "gemma": partial(unsplit, transformers.GemmaTokenizer),
    }
    if words in makers:
        model = own(makers[words](), words)
    else:
        model = minilm if words == "minilm" else tiny(words)
    kind = "encoder" if model.network.config.is_encoder_decoder else None
    run = trace(model, text, pair, attention=kind)
    assert words_of(run) == expected
    assert run.key_words == run.words


def test_the_words_of_both_sides():
    """The decoder's start symbol belongs to no word."""
    run = trace(load_model("de-en"), "Die Schlüssel liegen hier.", target="The keys are here.")
    assert run.tokens == ["<pad>", "▁The", "▁", "ke", "y", "s", "▁are", "▁her", "e", "."]
    assert run.words == [None, 0, 1, 1, 1, 1, 2, 3, 3, 3]
    assert run.keys[:2] == ["▁Die", "▁Sch"] and run.keys[-2:] == [".", "</s>"]
    assert run.key_words == [0, 1, 1, 1, 1, 1, 1, 2, 3, 3, 3, None]


def test_the_words_of_both_sides_by_a_fast_tokenizer(tiny):
    run = trace(tiny("bart"), "key ka", target="she the")
    assert words_of(run) == "</s> <s> sh0 e0 Ġthe1"
    assert run.keys == ["<s>", "key", "Ġ", "k", "a", "</s>"]
    assert run.key_words == [None, 0, 1, 1, 1, None]
    run = trace(tiny("t5"), "key ka", target="she the", attention="decoder")
    assert words_of(run) == "<pad> sh0 e0 Ġthe1" and run.key_words == run.words
    run = trace(tiny("t5"), "key ka", target="she the", attention="encoder")
    assert words_of(run) == "key0 Ġ1 k1 a1 </s>" and run.key_words == run.words


def test_words_that_a_tokenizer_cannot_tell():
    """ByT5 reads bytes one by one."""
    run = trace(own(transformers.ByT5Tokenizer(), "t5"), "hi you", target="you too")
    assert run.keys == [*"hi you", "</s>"]
    refused(lambda: run.words, "run.words does not exist", "give trace a list of words")
    refused(lambda: run.key_words, "run.key_words does not exist")


# --- words that are given, and token ids -----------------------------------------------------

GIVEN = {
    "minilm": (["Unbelievable", "keystrokes,", "isn't", "[MASK]", "é.g"], None),
    "gpt2": (["key.", "the", "好", "isn't"], None),
    "roberta": (["she's", "the", "<mask>"], None),
    "marian": (["Die", "Tisch.", "象"], None),
    "t5": (["the", "keys,are", "象", "on"], unigram),
    "camembert": (["the", "keys,are", "on"], unigram),
    "llama": (["the", "keys.", "the"], unsplit),
    "gemma": (["the", "keys.", "the"], unsplit),
}
FAST = {
    "t5": transformers.T5Tokenizer,
    "camembert": transformers.CamembertTokenizer,
    "llama": transformers.LlamaTokenizer,
    "gemma": transformers.GemmaTokenizer,
}


@pytest.mark.parametrize("name", GIVEN)
def test_words_that_are_given_are_the_words(minilm, tiny, name):
    """The tokens are those of the sentence, and each word has those that stand for its letters."""
    words, maker = GIVEN[name]
    model = minilm if name == "minilm" else tiny(name) if maker is None else None
    model = model or own(maker(FAST[name]), name)
    kind = {"attention": "encoder"} if model.network.config.is_encoder_decoder else {}
    run = trace(model, words, **kind)
    assert run.ids == trace(model, " ".join(words), **kind).ids
    assert [n for n in dict.fromkeys(run.words) if n is not None] == list(range(len(words)))
    assert run.key_words == run.words
    for number, word in enumerate(words):
        own_ids = [i for i, n in zip(run.ids, run.words, strict=True) if n == number]
        said = model.tokenizer.decode(own_ids).replace(" ", "")
        unknown = model.tokenizer.unk_token or "no such token"
        letters = word.lower().replace("é", "e") if name == "minilm" and word[0] != "[" else word
        assert said == letters or unknown in said or name == "marian", (word, said)


def test_given_words_of_a_pair_and_of_a_target(minilm, tiny):
    run = trace(minilm, ["the", "keystrokes."], pair=["on", "isn't"])
    assert words_of(run) == ("[CLS] the0 keys1 ##tro1 ##kes1 .1 [SEP] on2 isn3 '3 t3 [SEP]")
    run = trace(minilm, "the keystrokes.", pair=["on", "isn't"])
    assert words_of(run) == "[CLS] the0 keys1 ##tro1 ##kes1 .2 [SEP] on3 isn4 '4 t4 [SEP]"
    run = trace(tiny("bart"), ["key", "ka"], target=["she.", "the"])
    assert words_of(run) == "</s> <s> sh0 e0 .0 Ġthe1"
    assert run.key_words == [None, 0, 1, 1, 1, None]
    german, english = ["Die", "Schlüssel."], ["The", "keys."]
    run = trace(load_model("de-en"), german, target=english)
    assert run.words == [None, 0, *[1] * (len(run.words) - 2)]
    assert run.ids == trace(load_model("de-en"), "Die Schlüssel.", target="The keys.").ids


def test_given_words_that_the_tokens_do_not_show(minilm, tiny):
    for words in (["the", "\u200b", "keys"], ["the", "[SEP]", "keys"]):
        refused(
            lambda words=words: trace(minilm, words),
            "The 3 words that were given",
            "no token of its own",
        )
    together = byte_level([("e", "Ġ"), ("eĠ", "b")])
    together.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(use_regex=False)
    call = partial(trace, own(together, "gpt2"), ["e", "b"])
    refused(call, "The 2 words that were given", "shares one")
    assert trace(tiny("marian"), ["Die▁Tisch"], attention="encoder").words[0] == 0


@pytest.mark.parametrize("name", ["minilm", "gpt2", "roberta", "marian", "t5", "llama"])
def test_token_ids_are_taken_as_they_stand(minilm, tiny, name):
    model = minilm if name == "minilm" else tiny(name)
    kind = {"attention": "encoder"} if model.network.config.is_encoder_decoder else {}
    text = "Die Tisch" if name == "marian" else "the keys, she"
    whole = trace(model, text, **kind)
    again = trace(model, whole.ids, **kind)
    assert again.ids == whole.ids and again.tokens == whole.tokens and again.words == whole.words
    assert again.roles == whole.roles and torch.equal(again.attention, whole.attention)
    part = trace(model, whole.ids[1:3], **kind)
    assert part.ids == whole.ids[1:3] and part.attention.shape[-1] == 2
    rows = model.network.get_input_embeddings().num_embeddings
    for wrong in (-1, rows):
        refused(lambda wrong=wrong: trace(model, [1, wrong], **kind), f"{wrong}", f"{rows} rows")
    if name != "t5":  # which has no longest text
        refused(lambda: trace(model, [1] * 2000, **kind), "text has 2000 tokens")


def test_token_ids_that_no_text_gives_have_no_words(minilm):
    """ "k" and "##ey" are a way to write keys that the tokenizer does not take."""
    ids = minilm.tokenizer.convert_tokens_to_ids(["[CLS]", "k", "##ey", "[SEP]"])
    run = trace(minilm, ids)
    assert run.tokens == ["[CLS]", "k", "##ey", "[SEP]"]
    refused(lambda: run.words, "run.words does not exist")


def test_token_ids_of_a_target_and_a_pair(tiny, minilm):
    ids = trace(tiny("bart"), "key", target="she the").ids
    run = trace(tiny("bart"), "key", target=ids)
    assert run.ids == ids and words_of(run) == "</s> <s> sh0 e0 Ġthe1"
    refused(lambda: trace(minilm, [101, 102], pair="the"), "pair cannot be read with token ids")
    refused(lambda: trace(minilm, "the", pair=[101, 102]), "pair cannot be read with token ids")


def test_every_door_takes_words_and_ids(minilm):
    words = ["the", "keys"]
    whole, doors = trace(minilm, words), {k: v for k, v in DOORS.items() if k != "trace"}
    for name, call in doors.items():
        found = [call(minilm, text) for text in ("the keys", words, whole.ids)]
        for other in found[1:]:
            if isinstance(other, torch.Tensor):
                assert torch.equal(other, found[0]), name
            else:
                assert other.equals(found[0]), name


UNSPLIT = byte_level([("e", "Ġ"), ("eĠ", "b")])
UNSPLIT.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
    add_prefix_space=False, use_regex=False
)


def test_white_space_ends_a_word_where_a_tokenizer_does_not_split():
    model = own(UNSPLIT, "gpt2")
    assert words_of(trace(model, "the key")) == "t0 h0 eĠ0 key1"
    refused(lambda: trace(model, "the be b").words, "run.words does not exist")
    llama = own(unsplit(transformers.LlamaTokenizer), "llama")
    for space in ("\t", "\u00a0", "\r\n"):
        words = trace(llama, f"the{space}the").words
        assert words[0] == 0 and words[-1] == 1, space
    crossing = transformers.T5Tokenizer(
        vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -9.0), ("▁in▁the", -1.0), ("▁keys", -1.0)],
        extra_ids=0,
    )
    crossing.backend_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    run = trace(own(crossing, "t5"), "in the keys", attention="encoder")
    assert run.tokens[0] == "▁in▁the"
    refused(lambda: run.words, "run.words does not exist")


def test_white_space_is_no_word():
    llama = own(unsplit(transformers.LlamaTokenizer), "llama")
    assert words_of(trace(llama, "the keys  ")) == "▁the0 ▁keys1 ▁ ▁"
    assert words_of(trace(llama, "the <s> keys")).split()[:3] == ["▁the0", "▁", "<s>"]
    assert words_of(trace(llama, "the \n keys")) == "▁the0 ▁ <0x0A> ▁keys1"
    gpt = own(byte_level([(".", "Ċ")]), "gpt2")
    assert words_of(trace(gpt, "e  e\n\ne\t")) == "e0 Ġ Ġ1 e1 Ċ Ċ e2 ĉ"


def test_an_unknown_word_is_a_word_even_if_it_serves_as_padding(minilm):
    words = copy.deepcopy(minilm.tokenizer)
    words.pad_token = words.unk_token
    run = trace(Model(minilm.network, words), "the 🙂 keys")
    assert run.words == [None, 0, 1, 2, None] and run.roles[2] is None


def test_ids_of_a_target_without_its_start_symbol(tiny):
    ids = tiny("t5").tokenizer("she the", add_special_tokens=False)["input_ids"]
    run = trace(tiny("t5"), "key", target=ids)
    assert run.ids == ids and not any(run.roles) and words_of(run) == "sh0 e0 Ġthe1"


def test_words_of_pairs_of_a_slow_tokenizer(tiny):
    both = trace(tiny("marian"), ["Die", "Tisch"], ["Sie", "sah"], attention="encoder")
    assert set(both.words) == {0, 1, 2, 3, None} and both.words[-1] is None
    assert both.words == trace(tiny("marian"), "Die Tisch", "Sie sah", attention="encoder").words
    words = ["Die\u200bTisch", "\u200b"]
    refused(lambda: trace(tiny("marian"), words, attention="encoder"), "words that were given")


# --- what special tokens are for -------------------------------------------------------------


def roles_of(run) -> str:
    return " ".join(role or "-" for role in run.key_roles)


def test_roles_are_what_the_tokenizer_says(minilm, tiny):
    assert roles_of(trace(minilm, "the [MASK] [UNK], [PAD]")) == "[CLS] - [MASK] - - special [SEP]"
    pair = trace(tiny("roberta"), "key", "key<mask>")
    assert roles_of(pair) == "[CLS] - [SEP] [SEP] - [MASK] [SEP]"
    assert roles_of(trace(tiny("gpt2"), "<|endoftext|>key")) == "[BOS] -"
    gemma = own(unsplit(transformers.GemmaTokenizer), "gemma")
    assert roles_of(trace(gemma, "<bos>the<eos>")) == "[BOS] - [EOS]"
    t5 = own(unigram(transformers.T5Tokenizer), "t5")
    assert roles_of(trace(t5, "the", attention="encoder")) == "- [EOS]"
    assert roles_of(trace(tiny("gpt2"), "key<|endoftext|>")) == "- [EOS]", "one token for both"
    run = trace(tiny("marian"), "Die", target="She")
    assert run.roles[0] == "[BOS]" and not any(run.roles[1:]) and run.key_roles[-1] == "[EOS]"


def test_the_marks_of_a_chat_are_no_words():
    chat = byte_level([])
    marks = ["<|begin_of_text|>", "<|im_start|>", "<|im_end|>"]
    more = {"bos_token": marks[0], "eos_token": marks[2], "extra_special_tokens": [marks[1]]}
    chat.add_special_tokens(more)
    run = trace(own(chat, "llama"), f"{marks[0]}{marks[1]}u\nkey{marks[2]}\n")
    assert roles_of(run) == "[BOS] special - - - [EOS] -"
    assert run.words == [None, None, 0, None, 1, None, None]


# --- two texts ---------------------------------------------------------------------------------


def segments_of(run) -> str:
    return "".join("-" if n is None else str(n) for n in run.segments)


@pytest.mark.parametrize(
    ("name", "segments"),
    [
        ("minilm", "-00-11-"),
        ("roberta", "-000000--111111-"),
        ("gpt2", "000000111111"),
        ("t5", "000000-111111-"),
        ("marian", "000000000000000-"),
    ],
)
def test_which_text_a_token_belongs_to(minilm, tiny, name, segments):
    model = minilm if name == "minilm" else tiny(name)
    kind = {"attention": "encoder"} if model.network.config.is_encoder_decoder else {}
    run = trace(model, "the keys", "she saw", **kind)
    if name == "marian":  # a slow tokenizer, which writes one text after the other
        first = len(trace(model, "the keys", **kind).ids) - 1
        segments = "0" * first + "1" * (len(run.ids) - first - 1) + "-"
    assert segments_of(run) == segments and len(run.segments) == len(run.keys)
    whole = trace(model, "the keys", **kind)
    assert set(whole.segments) <= {0, None}
    assert trace(model, whole.ids, **kind).segments == whole.segments


def test_the_segments_of_a_decoder_and_of_cross_attention(tiny):
    assert segments_of(trace(tiny("bart"), "key", target="she", attention="decoder")) == "--00"
    assert segments_of(trace(tiny("bart"), "key", target="she")) == "-0-"


def test_a_pair_has_two_segments(minilm):
    inputs = encode(minilm, "she saw", "the keys")
    assert inputs["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1]]


def test_a_decoder_is_fed_the_start_and_not_the_end(tiny):
    model = tiny("marian")
    source = model.tokenizer(SOURCE)["input_ids"]
    labels = model.tokenizer(text_target=TARGET)["input_ids"]
    assert source[-1] == labels[-1] == model.tokenizer.eos_token_id
    inputs = encode(model, SOURCE, target=TARGET)
    assert inputs["input_ids"].tolist() == [source]
    start = model.network.config.decoder_start_token_id
    assert inputs["decoder_input_ids"].tolist() == [[start, *labels[:-1]]]


def test_other_start_symbols(tiny):
    """The embedding can have a row for one that is in no vocabulary; no start symbol is a word."""
    model = load_model(tiny("bart").name)
    number = len(model.tokenizer)
    model.network.resize_token_embeddings(number + 3)
    model.network.config.decoder_start_token_id = number
    assert words_of(trace(model, "she", target="key")) == f"<{number}> <s> key0"
    model.network.config.decoder_start_token_id = 999
    remedy = "set model.network.config.decoder_start_token_id"
    refused(lambda: trace(model, "she", target="key"), "the token 999 first", remedy)
    model = load_model(tiny("marian").name)
    model.network.config.decoder_start_token_id = model.tokenizer.convert_tokens_to_ids("▁T")
    assert words_of(trace(model, "she", target="key")) == "▁T ▁0 ke0 y0"


def test_each_side_is_cut_by_its_own_rule(folder):
    """Here the target side knows single letters only, under the numbers of the source side."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([side for pair in TRANSLATIONS for side in pair]),
        model_prefix=f"{folder}/letters",
        model_type="char",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (folder / "letters.model").rename(folder / "target.spm")
    run = trace(load_model(folder), "Die", target="The keys")
    assert run.tokens == ["<pad>", *"▁The▁keys"] and run.words == [None, *[0] * 4, *[1] * 5]
    assert run.keys == ["▁D", "ie", "</s>"]


@pytest.fixture
def two_vocabularies(folder):
    """The target has a vocabulary of its own: the same pieces, other numbers, one more."""
    source = json.loads((folder / "vocab.json").read_text())
    marks = {token: source[token] for token in ("</s>", "<unk>", "<pad>")}
    numbers = sorted(set(source.values()) - set(marks.values()))
    pieces = [piece for piece in source if piece not in marks][::-1]
    target = marks | dict(zip(pieces, numbers, strict=True)) | {"▁zebra": len(source)}
    (folder / "target_vocab.json").write_text(json.dumps(target))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"separate_vocabs": True}))
    changes = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
    settings = transformers.MarianConfig.from_pretrained(folder)
    settings.update(changes | {"decoder_vocab_size": len(target)})
    transformers.MarianMTModel(settings).save_pretrained(folder)
    return load_model(folder)


def test_two_vocabularies_are_not_mixed_up(two_vocabularies, tiny):
    for kind in KINDS:
        run = trace(two_vocabularies, SOURCE, target=TARGET, attention=kind)
        expected = trace(tiny("marian"), SOURCE, target=TARGET, attention=kind)
        assert (run.tokens, run.words) == (expected.tokens, expected.words)
        assert (run.keys, run.key_words) == (expected.keys, expected.key_words)
        assert (run.ids == expected.ids) == (kind == "encoder")
    settings, words = two_vocabularies.network.config, two_vocabularies.tokenizer
    decoder = transformers.MarianForCausalLM._from_config(settings, attn_implementation="eager")
    alone = Model(decoder.eval(), words)
    refused(lambda: trace(alone, "She"), "two vocabularies", "load the whole encoder-decoder")


def test_a_token_that_one_side_s_embedding_does_not_have(two_vocabularies):
    """The numbers mean other tokens there."""
    words, base = two_vocabularies.tokenizer, two_vocabularies.network.base_model
    two_vocabularies.network.config.decoder_start_token_id = 0
    for name, side in (("target", base.decoder), ("text", base.encoder)):
        side.set_input_embeddings(torch.nn.Embedding(40, 24))
        text = refused(lambda: trace(two_vocabularies, SOURCE, target=TARGET), "40 rows")
        token, number = re.match(rf"{name} has the token '(.+?)' with the id (\d+),", text).groups()
        table = words.encoder if name == "text" else words.target_encoder
        assert table[token] == int(number) >= 40


# --- texts of every kind -----------------------------------------------------------------------

TEXTS = {
    "one letter": "a",
    "marks": r"$ _ \ < & # ^ % { } ~ ` ' " + '"',
    "newlines and tabs": "the\nkeys\tto\r\n\n the   table\n",
    "a long word": "x" * 30,
    "Chinese": "你好，世界",
    "Arabic": "مرحبا",
    "emoji with joiners": "👨‍👩‍👧",
    "emoji with a skin tone": "👍🏽 a",
    "combining accents": "e\u0301cole n\u0303",
    "control and zero width": "a\u200bb\ufeff \x1b",
    "unknown letters only": "☃ ☃",
    "special tokens as text": "[SEP] a </s> <pad> [MASK]",
}
TOKENIZERS = ("bert", "gpt2", "roberta")  # WordPiece, byte-level, byte-level with marks
TWO_SIDED = ("t5", "marian")


def total(output):
    """A score of every model: the sum of its first output."""
    return output[0].sum()


def fits(run) -> None:
    """The run has the right shapes, rows that sum to 1, words without a gap, parts that add up."""
    L, H, T, S = run.attention.shape
    sizes = [len(part) for part in (run.tokens, run.ids, run.words, run.keys, run.key_words)]
    assert sizes == [T, T, T, S, S] and len(run.blocks) == L
    torch.testing.assert_close(run.attention.sum(dim=-1), torch.ones(L, H, T))
    assert (reconstruction_error(run) < 1e-4).all()
    for words in (run.words, run.key_words):
        found = [word for word in words if word is not None]
        assert found == sorted(found) and set(found) == set(range(len(set(found))))


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("name", ["minilm", *TOKENIZERS])
def test_any_text_gives_a_result(minilm, tiny, name, kind):
    model, text = minilm if name == "minilm" else tiny(name), TEXTS[kind]
    run = trace(model, text)
    fits(run)
    T = len(run.tokens)
    sums = value_zeroing(model, text).sum(dim=-1)
    assert sums.shape == (len(run.blocks), T)
    assert ((sums - 1).abs() < 1e-4).logical_or(sums == 0).all()
    moved = blank_out(model, text, total, blank=5, exclude=[])
    assert moved.shape == (T,) and not moved.isinf().any()
    gradients = input_gradients(model, text, total)
    assert gradients.shape == (T,) and gradients.isfinite().all()


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("name", [*TOKENIZERS, *TWO_SIDED])
def test_any_text_can_be_the_second_one(tiny, name, kind):
    model, text = tiny(name), TEXTS[kind]
    for attention in KINDS if name in TWO_SIDED else (None,):
        second = {"target": text} if attention else {"pair": text}
        run = trace(model, text if attention else "a", **second, attention=attention)
        fits(run)
        assert len(run.tokens) > 1 and run.is_cross == (attention == "cross")


@pytest.mark.parametrize(
    ("name", "marks"), [("minilm", 2), ("bert", 2), ("gpt2", 0), ("roberta", 2)]
)
def test_the_longest_text_works_and_one_more_token_is_refused(minilm, tiny, name, marks):
    model = minilm if name == "minilm" else tiny(name)
    # RoBERTa counts positions from padding_idx + 1 = 2: two rows of the table are never used.
    limit = {"minilm": 512, "roberta": POSITIONS - 2}.get(name, POSITIONS)
    fits(trace(model, "." * (limit - marks)))
    longer = "." * (limit - marks + 1)
    words = (f"text has {limit + 1} tokens", f"reads at most {limit}; shorten the text or split it")
    for function in (trace, value_zeroing, partial(blank_out, score=total)):
        refused(lambda function=function: function(model, longer), *words)
    refused(lambda: trace(model, "a", pair=longer), "text and pair together has ")


def test_the_longest_text_of_each_side(tiny):
    """One piece before the first point, one per point, and the end or the start symbol."""
    model, longest, longer = tiny("marian"), "." * (POSITIONS - 2), "." * (POSITIONS - 1)
    run = trace(model, longest, target=longest)
    assert len(run.tokens) == len(run.keys) == POSITIONS
    for name, texts in (("text", (longer, longest)), ("target", (longest, longer))):
        call = partial(trace, model, texts[0], target=texts[1])
        refused(call, f"{name} has {POSITIONS + 1} tokens", "shorten the text")


def test_nothing_is_cut_off_padded_or_warned_about(folder, minilm, capfd, recwarn, caplog):
    """The embedded tokenizer.json asks for 128 tokens, and this folder for 5."""
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": 5}))
    model = load_model(folder)
    assert model.tokenizer.model_max_length == 5
    assert '"max_length":128' in (embedded_folder() / "tokenizer.json").read_text()[:200]
    capfd.readouterr()
    assert len(trace(minilm, "keys " * 400).tokens) == 402
    assert len(trace(minilm, "keys").tokens) == 3
    run = trace(model, SOURCE, target=TARGET)
    assert (len(run.tokens), len(run.keys)) == (18, 22)
    assert capfd.readouterr() == ("", "") and not recwarn.list and not caplog.records


# --- texts that are refused --------------------------------------------------------------------

REFUSED = {
    "empty": ("", "{} is empty; give at least one word."),
    "white space": (" \t\n\u3000", "{} is empty; give at least one word."),
    "half a character": (
        "a" * 999 + "\ud83d",
        "an unpaired surrogate, half of a character; decode the text again.",
    ),
    "nothing left": ("\u200b\ufeff", "has no token left after the model's tokenizer;"),
    "bytes": (b"a", "{} must be one string, a list of words or a list of token ids, got bytes."),
    "a number": (3, "or a list of token ids, got int."),
    "a tensor": (torch.tensor([5]), "got Tensor; call .tolist() on token ids."),
    "an array": (np.array([5]), "got ndarray; call .tolist() on token ids."),
    "an empty list": ([], "{} must be one string, or a list of words or of token ids"),
    "a mixed list": (["the", 5], "of one kind and not empty, got ['the', 5]"),
    "truths": ([True, False], "of one kind and not empty, got [True, False]"),
    "several words in one": (
        ["the keys", "are"],
        "one word in each entry, without spaces, got 'the",
    ),
    "a space beside": (["the", "keys "], "without spaces, got 'keys '"),
    "no word": (["the", ""], "without spaces, got ''"),
}
DOORS = {
    "trace": trace,
    "value_zeroing": value_zeroing,
    "blank_out": partial(blank_out, score=total),
    "input_gradients": partial(input_gradients, score=total),
    "token_table": lambda model, text: tables.token_table(model, [text]),
    "mixing_table": lambda model, text: tables.mixing_table(model, [text]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_text_that_is_refused(tiny, minilm, kind):
    text, words = REFUSED[kind]
    for call in DOORS.values():
        said = refused(lambda call=call: call(minilm, text), words.format("text"))
        said = said.removeprefix("texts[0] of 1 (counted from 0) cannot be read: ")
        assert said.startswith("text ") and len(said) < 160
    assert refused(lambda: trace(minilm, "the", pair=text), words.format("pair"))[:5] == "pair "
    for kind_of_attention in KINDS:
        call = partial(trace, tiny("marian"), "the", target=text, attention=kind_of_attention)
        assert refused(call, words.format("target")).startswith("target ")


def test_none_is_not_a_text(minilm):
    refused(lambda: trace(minilm, None), "text must be one string", "got NoneType.")


def test_a_missing_target(tiny):
    model = Model(tiny("marian").network, tiny("marian").tokenizer)
    for kind in ({}, {"attention": "decoder"}):
        words = ("target is missing", "'MarianMTModel'", "give target=…", 'attention="encoder"')
        refused(partial(trace, model, SOURCE, **kind), *words)
    assert trace(model, SOURCE, attention="encoder").tokens[-1] == "</s>"
    for name in DOORS.keys() - {"value_zeroing"}:  # which reads the encoder
        refused(partial(DOORS[name], model, SOURCE), "'MarianMTModel'", "encoder")


def test_a_pair_where_a_target_belongs_and_a_target_where_none_does(tiny, minilm):
    for more in ({}, {"target": TARGET}, {"attention": "decoder"}):
        call = partial(trace, tiny("marian"), SOURCE, TARGET, **more)
        refused(call, "pair of an encoder-decoder", "give the translation as target")
    for model, name in ((minilm, "minilm"), (Model(minilm.network, minilm.tokenizer), "BertModel")):
        call = partial(trace, model, "the keys", target="she saw")
        refused(call, "target is for encoder-decoder models", f"{name!r} is not one", "as pair")


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_token_that_the_embedding_does_not_have(tiny, name):
    words, rows = copy.deepcopy(tiny(name).tokenizer), len(tiny(name).tokenizer)
    words.add_tokens(["zebra"])
    model = Model(tiny(name).network, words)
    for texts in (["she saw zebra"], ["she", "zebra"]):
        said = refused(lambda texts=texts: trace(model, *texts), f"'zebra' with the id {rows}")
        assert "call model.network.resize_token_embeddings(len(model.tokenizer))" in said
    network = copy.deepcopy(model.network)
    network.resize_token_embeddings(len(words))
    assert "zebra" in trace(Model(network, words), "she saw zebra").tokens


def test_a_segment_that_the_model_does_not_have(tiny):
    """A BERT-like tokenizer counts two; RoBERTa has an embedding for one."""
    model = own(tiny("bert").tokenizer, "roberta")
    refused(lambda: trace(model, "she", pair="keys"), "2 segments", "embeddings for 1", "pair")
    assert len(trace(model, "she saw").tokens) == 4
