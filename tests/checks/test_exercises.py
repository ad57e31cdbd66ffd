"""Every exercise: the untouched stub gets guidance, the solution passes, each mistake its hint."""

import inspect
import re
from functools import partial
from pathlib import Path

import nbformat
import pytest
import torch
from oracle.compare import refused

from checks import lesson_01, lesson_02, lesson_03, lesson_04, lesson_05, lesson_06, lesson_07
from helpers import checks, trace

LESSONS = (lesson_01, lesson_02, lesson_03, lesson_04, lesson_05, lesson_06, lesson_07)
NONSENSE = (..., "text", 3.5, [], (1,), torch.tensor(float("nan")), None)


@pytest.fixture(scope="module", params=LESSONS, ids=lambda lesson: lesson.__name__)
def exercises(request, minilm, run):
    return list(request.param.exercises(minilm, run))


@pytest.fixture
def said(capsys):
    """A function: the line that a check prints."""

    def line(check, *arguments) -> str:
        check(*arguments)
        (printed,) = capsys.readouterr().out.splitlines()
        return printed

    return line


@pytest.mark.parametrize("device", ["cpu", "meta"])  # meta: nothing is made where torch would
def test_the_solution_passes_and_each_mistake_gets_its_hint(said, exercises, device):
    with torch.device(device):
        for check, given, right, mistakes in exercises:
            assert said(check, right, *given).startswith("Correct"), check.__name__
            for hint, wrong in mistakes.items():
                line = said(check, wrong, *given)
                assert line.startswith("Not yet: ") and hint in line, (check.__name__, hint, line)


def test_a_solution_in_double_precision_passes_too(said, exercises):
    for check, given, right, _ in exercises:
        if isinstance(right, torch.Tensor):
            assert said(check, right.double().requires_grad_(), *given) == "Correct."


@pytest.mark.parametrize("nonsense", NONSENSE, ids=str)
def test_nonsense_gets_one_line_of_guidance(said, exercises, nonsense):
    for check, given, right, _ in exercises:
        answers = [nonsense] + [lambda *_: nonsense] * callable(right)
        for answer in answers if right is not None else []:
            assert said(check, answer, *given).startswith("Not yet: "), check.__name__


def test_what_the_notebook_gives_a_check_is_named_where_it_is_wrong(exercises):
    """That is no student's mistake, so it is no line of guidance either."""
    for check, given, right, _ in exercises:
        names = list(inspect.signature(check).parameters)[1:]
        if given:
            sentence = refused(partial(check, right, torch.zeros(1), *given[1:]), " must ")
            assert sentence.startswith(names[0].replace("capacities", "maps"))
        for place, name in enumerate(names):
            if name in ("layer", "head", "position", "query"):
                wrong = (*given[:place], 99, *given[place + 1 :])
                refused(partial(check, right, *wrong), f"{name} must be a whole number from 0 to")


def test_texts_and_models_that_an_exercise_is_not_about(said, tiny, minilm):
    plain = trace(minilm, "The keys")
    assert said(checks.check_punctuation_share, torch.zeros(6), plain) == "Correct."
    line = said(checks.check_norm_share, torch.zeros(6), plain, "punctuation")
    assert line.startswith("Not yet: the text has no token of category 'punctuation'")
    cross = trace(tiny("marian"), "Die Schlüssel", target="The keys")
    for run, words in (
        (trace(tiny("gpt2"), "the keys"), "needs a model with LayerNorm"),
        (cross, "needs self-attention"),
    ):
        for check in (
            checks.check_block_output,
            checks.check_mixing_ratio,
            checks.check_layernorm_part,
        ):
            assert words in said(check, None, run, 1)


@pytest.mark.parametrize(
    ("check", "given", "words"),
    [
        (checks.check_gradient_times_input, (torch.ones(5, 8), torch.ones(4, 8)), "shape (T, D)"),
        (checks.check_gradient_times_input, (torch.ones(5, 8), None), "x must be"),
        (checks.check_template_mean, (torch.arange(2), ["a", "b"]), "values must hold one finite"),
        (checks.check_template_mean, (torch.ones(3), ["a", "b"]), "shape (3,) for 2 templates"),
        (checks.check_template_mean, (torch.ones(2), "ab"), "templates must be a list"),
    ],
)
def test_tensors_of_lesson_7_that_do_not_fit(check, given, words):
    refused(lambda: check(len, *given), words)


def test_every_check_is_used_in_a_lesson_and_tested_here(minilm, run):
    folder = Path(__file__).parents[2] / "notebooks"
    cells = [cell for p in folder.glob("*.ipynb") for cell in nbformat.read(p, 4).cells]
    used = set(re.findall(r"\b(?:check_\w+|self_test)\b", "\n".join(c.source for c in cells)))
    tested = {case[0].__name__ for lesson in LESSONS for case in lesson.exercises(minilm, run)}
    assert tested | {"self_test"} == set(checks.__all__) <= used
