"""Write the course's agreement sentences, helpers/data/agreement.tsv.

    python training/agreement.py               # write the file and print its counts for the card
    python training/agreement.py --out FILE    # write it elsewhere

Each sentence has [MASK] in the place of its verb. Sentences come in pairs that differ in one word,
the subject, which is once singular and once plural, so that nothing else gives the number away.
"""

import argparse
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

PAIRS = {"train": 48, "test": 24}  # per frame; a multiple of 4, so that all numbers balance
COLUMNS = ["text", "number", "template", "attractors", "opposite", "split", "noun"]


@dataclass(frozen=True)
class Kind:
    """Words that go with one kind of noun, in lists separated by bars."""

    nouns: str  # separated by spaces; every third is for testing, see `nouns`
    first: str  # adjectives
    second: str  # adjectives that may stand after one of the first
    near: str  # kinds of noun that it can be near to
    done: str  # what a person did to it; the past tense has one form for both numbers
    clauses: str  # the same with a pronoun as the subject
    who: str = ""  # what it did to others of its kind
    predicates: str = ""  # with both forms of the verb


KINDS = {
    "thing": Kind(
        nouns="key cup book chair lamp plate letter box bottle ring radio camera coat shirt dress "
        "jacket shoe boot glove hat helmet medal flag map photograph painting poster statue guitar "
        "piano violin drum bell clock mirror bed table blanket pillow basket bag bowl candle pipe "
        "chain wheel bicycle toy doll ball card ticket magazine newspaper computer phone printer "
        "machine tool sword gun button towel carpet cabinet barrel crate jar crown bench cart car",
        first="heavy|simple|beautiful|strange|large|little",
        second="old|new|black|white|blue",
        near="thing person",
        done="bought|found|wanted|carried|sold",
        clauses="we bought|she found|you saw|he lost",
        predicates="is/are very hard to find|is/are still not for sale|is/are in the wrong place|"
        "has/have been here for years|has/have just been moved again|has/have not been cleaned yet|"
        "costs/cost far too much now|looks/look better than ever before|"
        "seems/seem much too expensive|belongs/belong to someone else",
    ),
    "person": Kind(
        nouns="doctor nurse teacher lawyer farmer writer painter singer dancer actor driver pilot "
        "sailor soldier officer guard judge student professor engineer artist poet player coach "
        "manager director cousin uncle brother sister friend neighbor guest visitor boy girl king "
        "queen prince knight priest monk bishop worker miner hunter cook mechanic scientist "
        "historian journalist editor reporter photographer clerk customer lady surgeon patient "
        "detective captain general tourist swimmer runner boxer mayor senator minister banker",
        first="quiet|friendly|clever|famous|tall|busy",
        second="young|old|foreign|rich",
        near="place person",
        done="liked|met|called|helped|knew",
        clauses="we met|she visited|you saw|he called",
        who="who helped|who met|who followed|who thanked",
        predicates="is/are not at home today|is/are very easy to like|is/are ready to go home|"
        "has/have already gone to sleep|has/have not arrived here yet|"
        "has/have been away since yesterday|seems/seem rather tired tonight|"
        "lives/live not far from here|knows/know where to go next|works/work very hard at night",
    ),
    "animal": Kind(
        nouns="dog cat horse cow pig goat rabbit bird duck chicken eagle owl crow lion tiger bear "
        "fox monkey elephant frog snake turtle spider rat squirrel swan hawk falcon pigeon penguin",
        first="big|small|strange|beautiful|wild|lazy",
        second="brown|black|white|old|young",
        near="place person",
        done="found|fed|followed|watched|liked",
        clauses="we fed|she found|you saw|he followed",
        who="that chased|that followed|that saw|that bit",
        predicates="is/are asleep in the sun|is/are afraid of loud noise|is/are quiet at last|"
        "has/have not eaten since yesterday|has/have run away again|"
        "has/have been outside since noon|"
        "looks/look thin and very weak|sleeps/sleep most of the time|"
        "likes/like cold fresh water|hears/hear very little at night",
    ),
    "place": Kind(
        nouns="garden hotel house castle church bridge tower station school library museum market "
        "farm park street road square factory office shop store restaurant bar cafe theater cinema "
        "hospital prison palace temple chapel mill barn cottage cabin apartment mansion villa "
        "studio gallery warehouse kitchen hall stadium college pub bank clinic laboratory hut",
        first="big|small|pretty|famous|beautiful|dark",
        second="old|new|empty|local",
        near="place",
        done="visited|painted|liked|saw|remembered",
        clauses="we visited|she painted|you saw|he found",
        predicates="is/are closed until next spring|is/are well known in Europe|"
        "is/are very quiet at night|has/have not been safe since May|"
        "has/have changed very little since then|has/have just been painted again|"
        "looks/look better from up here|needs/need much more light|"
        "seems/seem larger in winter|attracts/attract attention from abroad",
    ),
}
NEAR = ("near", "beside", "behind", "next to", "in front of")
REPORTS = "she said|we heard|I knew|he thought"


@dataclass(frozen=True)
class Frame:
    """A sentence up to its verb, with the kinds of its attractors, {a} and {b}.

    "near" stands for the kinds that the subject can be near to, "near a" for those that {a} can be
    near to, and "peer" for the subject's own kind.
    """

    name: str
    words: str
    a: str = ""
    b: str = ""


FRAMES = (
    Frame("adjective", "the {first} {subject}"),
    Frame("two adjectives", "the {first} {second} {subject}"),
    Frame("clause", "the {subject} that {clause} {time}"),
    Frame("report", "{report} that the {first} {subject}"),
    Frame("near", "the {first} {subject} {near} the {a}", "near"),
    Frame("near adjective", "the {subject} {near} the {first_a} {a}", "near"),
    Frame("near first", "{near} the {first_a} {a}, the {subject}", "near"),
    Frame("object relative", "the {subject} that the {a} {done}", "person"),
    Frame("subject relative", "the {subject} {who} the {a}", "peer"),
    Frame("near near", "the {subject} {near} the {a} {near_b} the {b}", "near", "near a"),
    Frame("near relative", "the {subject} {near} the {a} that the {b} {done_a}", "near", "person"),
    Frame("relative near", "the {subject} that the {a} {near} the {b} {done}", "person", "near a"),
    Frame("subject relative near", "the {subject} {who} the {a} {near} the {b}", "peer", "near a"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).parents[1] / "helpers" / "data" / "agreement.tsv"
    parser.add_argument("--out", type=Path, default=here)
    args = parser.parse_args()
    table = sentences()
    table.to_csv(args.out, sep="\t", index=False, lineterminator="\n")
    print(counts(table))


def nouns(kind: str, split: str) -> list[str]:
    """The singular nouns of one kind: every third is for testing, the others are for training."""
    listed = KINDS[kind].nouns.split()
    return [noun for i, noun in enumerate(listed) if (i % 3 == 2) == (split == "test")]


def plural(noun: str) -> str:
    """The plural of a noun, by the three regular rules."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def sentences(seed: int = 0) -> pd.DataFrame:
    """All pairs of all frames, as a table with the columns COLUMNS."""
    rows = []
    for split, pairs in PAIRS.items():
        rng, uses = random.Random(f"{seed} {split}"), Counter()
        for frame in FRAMES:
            for i in range(pairs):
                # i runs through all numbers that the attractors can have
                plurals = [bool(i & bit) for bit, kind in ((1, frame.a), (2, frame.b)) if kind]
                rows += _pair(frame, plurals, split, rng, uses)
    table = pd.DataFrame(rows, columns=COLUMNS)
    if table["text"].duplicated().any():
        raise SystemExit("Two sentences are the same; choose another seed.")
    return table


def counts(table: pd.DataFrame) -> str:
    """The number of sentences per template, as a Markdown table."""
    groups = table.groupby(["template", "attractors"], sort=False)
    lines = ["| Template | Attractors | Train | Test | Opposite attractors: 0 / 1 / 2 |"]
    lines.append("|---|---|---|---|---|")
    for (template, attractors), part in groups:
        sizes = [(part["split"] == split).sum() for split in PAIRS]
        opposite = " / ".join(str((part["opposite"] == n).sum()) for n in range(3))
        lines.append(f"| {template} | {attractors} | {sizes[0]} | {sizes[1]} | {opposite} |")
    sizes = [(table["split"] == split).sum() for split in PAIRS]
    opposite = " / ".join(str((table["opposite"] == n).sum()) for n in range(3))
    lines.append(f"| all | | {sizes[0]} | {sizes[1]} | {opposite} |")
    return "\n".join(lines)


def _pair(
    frame: Frame, plurals: list[bool], split: str, rng: random.Random, uses: Counter
) -> list[tuple]:
    """Two rows: the same sentence with a singular and with a plural subject."""
    kinds = [kind for kind in KINDS if KINDS[kind].who or "{who}" not in frame.words]
    noun, kind = _noun(kinds, split, rng, uses, role="subject")
    near, near_b = rng.sample(NEAR, 2)
    words = _words(KINDS[kind], rng) | {"near": near, "near_b": near_b}
    found, last = [noun], kind
    for slot, role, many in zip("ab", (frame.a, frame.b), plurals, strict=False):
        choice = {"person": "person", "peer": kind, "near": KINDS[kind].near}
        choice["near a"] = KINDS[last].near
        other, last = _noun(choice[role].split(), split, rng, uses, role="other", but=found)
        found.append(other)
        words |= {f"{name}_{slot}": word for name, word in _words(KINDS[last], rng).items()}
        words[slot] = plural(other) if many else other
    rows = []
    for number, subject in (("singular", noun), ("plural", plural(noun))):
        start = frame.words.format(**words, subject=subject)
        text = f"{start[0].upper()}{start[1:]} [MASK] {words['predicate']}."
        opposite = sum(many != (number == "plural") for many in plurals)
        rows.append((text, number, frame.name, len(plurals), opposite, split, noun))
    return rows


def _noun(
    kinds: list[str],
    split: str,
    rng: random.Random,
    uses: Counter,
    role: str,
    but: list[str] = (),
) -> tuple[str, str]:
    """One of the nouns that have been used least in this role, and its kind."""
    listed = [(noun, kind) for kind in kinds for noun in nouns(kind, split) if noun not in but]
    noun, kind = min(listed, key=lambda pair: (uses[role, pair[0]], rng.random()))
    uses[role, noun] += 1
    return noun, kind


def _words(kind: Kind, rng: random.Random) -> dict[str, str]:
    """A word for every slot that depends on the kind of noun."""
    return {
        "first": _choose(kind.first, rng),
        "second": _choose(kind.second, rng),
        "done": _choose(kind.done, rng),
        "clause": _choose(kind.clauses, rng),
        "who": _choose(kind.who, rng),
        "time": _choose("yesterday|last week|last summer", rng),
        "report": _choose(REPORTS, rng),
        "predicate": _choose(kind.predicates, rng).partition(" ")[2],
    }


def _choose(listed: str, rng: random.Random) -> str:
    return rng.choice(listed.split("|"))


if __name__ == "__main__":
    main()
