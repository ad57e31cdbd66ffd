"""What the checks of all lessons have in common: an exercise, and how its check must answer.

An exercise is (check, the arguments after the answer, right answer, {words of the hint: wrong answer}).
"""

import torch

NONSENSE = [None, ..., "text", 3.5, [], (1,), torch.tensor(float("nan"))]


def said(capsys, check, *arguments, **names) -> str:
    """What a check prints."""
    check(*arguments, **names)
    return capsys.readouterr().out.strip()


def passes_and_hints(capsys, exercise) -> None:
    """The right answer passes, and each mistake gets its hint, on one line."""
    check, arguments, right, mistakes = exercise
    assert said(capsys, check, right, *arguments) == "Correct."
    for hint, wrong in mistakes.items():
        line = said(capsys, check, wrong, *arguments)
        assert line.startswith("Not yet") and hint in line and "\n" not in line, (hint, line)


def guides(capsys, exercise, answer) -> None:
    """An answer that is nonsense, or a function that gives it, gets one line of guidance."""
    check, arguments, right, _ = exercise
    answers = [answer, lambda *given: answer] if callable(right) else [answer]
    for one in answers:
        line = said(capsys, check, one, *arguments)
        assert line.startswith("Not yet") and "\n" not in line, line
