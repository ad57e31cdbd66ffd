"""Train the course's small German-English translation model, the folder helpers/data/de-en.

Needs parallel text, one sentence per line (plain or .gz), for training, validation and scoring:

    python training/translation.py --train train.de.gz train.en.gz --valid val.de.gz val.en.gz \
        --test test.de.gz test.en.gz --out OUT --checkpoints WHERE

A run that was stopped continues from its last checkpoint when it is started again. `--start FOLDER`
takes the weights of a trained model with fewer decoder layers; the new layers begin as copies of
its layers, with outputs of zero. `--smoke` trains a tiny model for a few steps, to test the
script. Nothing here tells the model which words belong together.
"""

import argparse
import gzip
import json
import re
import tempfile
from pathlib import Path

import sacrebleu
import sentencepiece
import torch
from transformers import (
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from helpers.alignment import words

MAX_PIECES = 128


def main() -> None:
    args = _arguments()
    set_seed(args.seed)
    train, valid = _pairs(args.train), _pairs(args.valid)
    tokenizer = _tokenizer(train, args)
    model = _model(tokenizer, args)
    print(f"{len(train)} pairs, {model.num_parameters():,} parameters", flush=True)
    trainer = _trainer(model, tokenizer, train, valid, args)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.checkpoints))
    scores = {"validation_loss": round(trainer.evaluate()["eval_loss"], 4)}
    if args.test:
        scores |= _bleu(model.eval(), tokenizer, args)
    model.half().save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    print(json.dumps(scores), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("train", "valid", "test"):
        parser.add_argument(
            f"--{name}", nargs=2, type=Path, metavar=("GERMAN", "ENGLISH"), required=name != "test"
        )
    parser.add_argument("--out", type=Path, required=True, help="folder that load_model reads")
    parser.add_argument("--checkpoints", type=Path, required=True, help="outside the work tree")
    parser.add_argument("--start", type=Path, help="folder of a trained model to begin from")
    parser.add_argument("--encoder-layers", type=int, default=3)
    parser.add_argument("--decoder-layers", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--batch", type=int, default=96, help="pairs per step, of similar length")
    parser.add_argument("--learning-rate", type=float, default=7e-4)
    parser.add_argument("--schedule", default="linear", help="a name that transformers knows")
    parser.add_argument("--warm-up", type=int, default=400, help="steps")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--vocabulary", type=int, default=4000, help="pieces")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="a tiny model, a few steps")
    args = parser.parse_args()
    args.checkpoints.mkdir(parents=True, exist_ok=True)
    return args


def _lines(paths: list[Path]) -> list[tuple[str, str]]:
    """Sentence pairs as they stand in the files, without those that are empty on either side."""
    sides = []
    for path in paths:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as lines:
            sides.append([line.strip() for line in lines])
    if len(sides[0]) != len(sides[1]):
        raise SystemExit(f"{paths[0]} has {len(sides[0])} lines, {paths[1]} has {len(sides[1])}.")
    return [pair for pair in zip(*sides, strict=True) if all(pair)]


def _cut(text: str) -> str:
    """The text cut into words by the course's rule and joined by spaces."""
    return " ".join(words(text))


def _pairs(paths: list[Path]) -> list[tuple[str, str]]:
    return [(_cut(german), _cut(english)) for german, english in _lines(paths)]


def _tokenizer(pairs: list[tuple[str, str]], args: argparse.Namespace) -> MarianTokenizer:
    """One vocabulary of word pieces for both languages, in the form that Marian reads."""
    if args.start:
        return MarianTokenizer.from_pretrained(args.start)
    with tempfile.TemporaryDirectory() as folder:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([side for pair in pairs for side in pair]),
            model_prefix=f"{folder}/pieces",
            vocab_size=200 if args.smoke else args.vocabulary,
            hard_vocab_limit=False,
            character_coverage=1.0,
            unk_id=1,
            eos_id=0,
            bos_id=-1,
            minloglevel=2,
        )
        spm = Path(f"{folder}/pieces.model")
        loaded = sentencepiece.SentencePieceProcessor(model_file=str(spm))
        ids = {loaded.id_to_piece(number): number for number in range(len(loaded))}
        vocabulary = Path(folder, "vocab.json")
        vocabulary.write_text(json.dumps(ids | {"<pad>": len(ids)}))
        tokenizer = MarianTokenizer(
            str(spm),
            str(spm),
            str(vocabulary),
            source_lang="de",
            target_lang="en",
            model_max_length=MAX_PIECES,
        )
        tokenizer.save_pretrained(args.out)
    return MarianTokenizer.from_pretrained(args.out)


def _model(tokenizer: MarianTokenizer, args: argparse.Namespace) -> MarianMTModel:
    """A stock Marian model; with `--start`, one that begins with the weights of that model."""
    width, inner, heads = (16, 32, 2) if args.smoke else (256, 512, 8)
    config = MarianConfig(
        vocab_size=len(tokenizer),
        d_model=width,
        encoder_layers=args.encoder_layers,
        decoder_layers=args.decoder_layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=inner,
        decoder_ffn_dim=inner,
        max_position_embeddings=MAX_PIECES,
        activation_function="relu",
        dropout=args.dropout,
        attention_dropout=0.0,
        scale_embedding=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=None,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    model = MarianMTModel(config)
    if args.start:
        _take_weights(model, MarianMTModel.from_pretrained(args.start, dtype=torch.float32))
    return model


@torch.no_grad()
def _take_weights(model: MarianMTModel, start: MarianMTModel) -> None:
    """Copy a shallower model: its layers are spread evenly; added copies begin by adding zero."""
    state = model.state_dict()
    for name, tensor in start.state_dict().items():
        if ".layers." not in name:
            state[name].copy_(tensor)
    for side in ("encoder", "decoder"):
        deep, shallow = getattr(model.model, side).layers, getattr(start.model, side).layers
        for number, layer in enumerate(deep):
            source = number * len(shallow) // len(deep)
            layer.load_state_dict(shallow[source].state_dict())
            if number and source == (number - 1) * len(shallow) // len(deep):
                for name, tensor in layer.named_parameters():
                    if re.search(r"(out_proj|fc2)\.(weight|bias)$", name):
                        tensor.zero_()


def _trainer(model, tokenizer, train, valid, args) -> Seq2SeqTrainer:
    settings = Seq2SeqTrainingArguments(
        output_dir=str(args.checkpoints),
        num_train_epochs=args.epochs,
        max_steps=4 if args.smoke else -1,
        per_device_train_batch_size=args.batch,
        per_device_eval_batch_size=args.batch,
        train_sampling_strategy="group_by_length",
        learning_rate=args.learning_rate,
        lr_scheduler_type=args.schedule,
        warmup_steps=args.warm_up,
        adam_beta1=0.9,
        adam_beta2=0.98,
        label_smoothing_factor=0.1,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        logging_steps=100,
        disable_tqdm=True,
        report_to=[],
        use_cpu=True,
        seed=args.seed,
    )
    return Seq2SeqTrainer(
        model=model,
        args=settings,
        train_dataset=_examples(train, tokenizer),
        eval_dataset=_examples(valid, tokenizer),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model),
    )


def _examples(pairs: list[tuple[str, str]], tokenizer: MarianTokenizer) -> list[dict]:
    sources, targets = map(list, zip(*pairs, strict=True))
    encoded = tokenizer(sources, text_target=targets)
    rows = zip(encoded["input_ids"], encoded["labels"], strict=True)
    return [
        {"input_ids": source, "labels": target, "length": len(source)}
        for source, target in rows
        if max(len(source), len(target)) <= MAX_PIECES
    ]


@torch.no_grad()
def _bleu(model: MarianMTModel, tokenizer: MarianTokenizer, args: argparse.Namespace) -> dict:
    """BLEU on the test files, against the untouched references: greedy, and with a beam of 5."""
    sources, references = zip(*_lines(args.test), strict=True)
    scores = {}
    for name, beams in (("greedy", 1), ("beam_5", 5)):
        said = []
        for first in range(0, len(sources), 100):
            batch = [_cut(source) for source in sources[first : first + 100]]
            inputs = tokenizer(batch, return_tensors="pt", padding=True, truncation=True)
            output = model.generate(**inputs, num_beams=beams, max_new_tokens=MAX_PIECES - 1)
            said += tokenizer.batch_decode(output, skip_special_tokens=True)
        joined = [re.sub(r" ([.,!?;:])", r"\1", sentence) for sentence in said]
        scores[f"bleu_{name}"] = round(sacrebleu.corpus_bleu(joined, [references]).score, 2)
    return scores


if __name__ == "__main__":
    main()
