"""Every skill's answers are right by an evaluator that shares no code with its generator."""

import contextlib
import io
import re
from collections import Counter
from functools import cache
from itertools import islice

import pytest

from lab.zoo.skills import SKILLS, chinese, facts, scripts
from lab.zoo.skills.common import Dice, full_text, split_of, texts

COUNT = 600


@cache
def items(name, count=COUNT):
    return SKILLS[name].items("score", count)


@cache
def training_texts(name):
    return list(islice(texts(SKILLS[name], "leak"), 20_000))


def test_arithmetic_steps_are_true_and_follow_each_other():
    for item in items("arithmetic"):
        result = None
        for step in item.steps.removeprefix("\nSteps: ").split(", "):
            left, right = step.split(" = ")
            assert eval(left) == int(right)
            assert result is None or int(left.split()[0]) == result
            result = int(right)
        assert item.answer == f" {result}"


def test_arithmetic_steps_use_the_numbers_of_the_question_in_order():
    for item in items("arithmetic"):
        asked = [int(n) for n in re.findall(r"\d+", item.prompt)]
        steps = item.steps.removeprefix("\nSteps: ").split(", ")
        used = [int(steps[0].split()[0])] + [int(step.split()[2]) for step in steps]
        assert asked == used


def solve_swaps(prompt):
    held = dict(re.findall(r"(\w+) has the (\w+)", prompt))
    for a, b in re.findall(r"(\w+) (?:and|swaps with|trades with) (\w+)(?: swap| trade)?\.", prompt):
        if "has" not in (a, b) and b in held:
            held[a], held[b] = held[b], held[a]
    return held[re.search(r"What does (\w+) have", prompt)[1]]


def solve_turns(prompt):
    compass = ["north", "east", "south", "west"]
    at = compass.index(re.search(r"faces (\w+)", prompt)[1])
    for turn in re.findall(r"turns (\w+)", prompt):
        at += {"right": 1, "around": 2, "left": -1}[turn]
    return compass[at % 4]


def solve_moves(prompt):
    where = dict(re.findall(r"The (\w+) is in the (\w+)\.", prompt))
    where.update(re.findall(r"the (\w+) (?:to|in) the (\w+)\.", prompt))
    return where[re.search(r"Where is the (\w+)\?", prompt)[1]]


def solve_ordering(prompt):
    """Follows "more than" edges to the person nobody exceeds, or nobody falls below."""
    more = ("taller", "older", "faster", "heavier", "richer")
    pairs = re.findall(r"(\w+) is (\w+) than (\w+)\.", prompt)
    above = [(a, b) if word in more else (b, a) for a, word, b in pairs]
    superlative = re.search(r"Who is the (\w+)\?", prompt)[1]
    top = superlative in ("tallest", "oldest", "fastest", "heaviest", "richest")
    people = {name for pair in above for name in pair}
    beaten = {b for _, b in above} if top else {a for a, _ in above}
    (winner,) = people - beaten
    return winner


def test_tracking_answers_follow_from_the_text():
    for item in items("tracking"):
        if "What does" in item.prompt:
            solution = solve_swaps(item.prompt)
        elif "Which way" in item.prompt:
            solution = solve_turns(item.prompt)
        elif "Where is" in item.prompt:
            solution = solve_moves(item.prompt)
        else:
            solution = solve_ordering(item.prompt)
        assert item.answer == f" {solution}"


def test_code_prints_its_answer():
    for item in items("code"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(item.prompt, {})
        assert printed.getvalue() == item.answer.removeprefix(" ") + "\n"


def test_fact_answers_agree_with_the_statements_in_training_text():
    """Rebuilds the world from plain statements of training text and looks the scored answers up."""
    patterns = {
        attribute: [re.escape(p).replace(r"\{t\}", r"(?P<t>\w+)").replace(r"\{v\}", r"(?P<v>[\w ]+?)") for p in spoken]
        for attribute, (spoken, _) in facts.PHRASINGS.items()
    }
    seen = {}
    for text in islice(texts(SKILLS["facts"], "test"), 30_000):
        for sentence in re.split(r"(?<=\.) ", text) if text.endswith(".") else []:
            for attribute, spoken in patterns.items():
                for match in filter(None, (re.fullmatch(p, sentence) for p in spoken)):
                    value = match["v"] if attribute in ("river", "founder") else match["v"].lower()
                    assert seen.setdefault((match["t"], attribute), value) == value
    checked = 0
    for item in items("facts"):
        fact = int(item.key.split()[0])
        town, attribute = facts.world().towns[fact // 5], facts.ATTRIBUTES[fact % 5]
        if (town, attribute) in seen:
            checked += 1
            assert town in item.prompt
            assert item.answer == f" {seen[town, attribute]}"
    assert checked > COUNT * 0.9


def step_patterns(script):
    shapes = [re.escape(s).replace(r"\{s\}", "(She|He)").replace(r"\{h\}", "(her|his)") for s in script.steps]
    return [re.sub(r"\\{[nxy]\\}", r"[\\w ]+", s) for s in shapes]


def test_event_endings_are_the_next_step_and_wrong_ones_are_not_in_the_story():
    patterns = [step_patterns(script) for script in scripts.SCRIPTS]
    for item in items("events"):
        assert all(option.strip() not in item.prompt for option in item.options)
        lines = re.split(r"(?<=\.) ", item.prompt)
        (shapes,) = [p for p in patterns if re.fullmatch(p[0], lines[0])]
        at = next(i for i, shape in enumerate(shapes) if re.fullmatch(shape, lines[-1]))
        assert re.fullmatch(shapes[at + 1], item.answer.strip())


def chinese_number(text):
    digits = {c: i for i, c in enumerate("零一二三四五六七八九")}
    value, current = 0, 0
    for c in text:
        if c in digits:
            current = digits[c]
        else:
            value += (current or 1) * {"十": 10, "百": 100}[c]
            current = 0
    return value + current


def test_chinese_numerals_read_back():
    assert all(chinese_number(chinese.numeral(n)) == n for n in range(300))


def test_chinese_sums_and_weekdays_are_right():
    checked = Counter()
    for item in items("chinese", 1500):
        numbers = [
            chinese_number(n) for n in re.findall(r"[零一二三四五六七八九十百]+", re.sub("星期.", "", item.prompt))
        ]
        if re.search(r"加|又给|又买", item.prompt) and len(numbers) == 2:
            checked["plus"] += 1
            assert chinese_number(item.answer) == sum(numbers)
        elif re.search(r"减|还剩|剩下", item.prompt) and len(numbers) == 2:
            checked["minus"] += 1
            assert chinese_number(item.answer) == numbers[0] - numbers[1]
        elif "星期几" in item.prompt:
            checked["days"] += 1
            start = "一二三四五六日".index(re.search(r"星期(.)", item.prompt)[1])
            days = chinese_number(re.search(r"，([零一二三四五六七八九十]+)天", item.prompt)[1])
            shift = -days if "天前" in item.prompt else days
            assert item.answer == "星期" + "一二三四五六日"[(start + shift) % 7]
    assert all(checked[kind] > 50 for kind in ("plus", "minus", "days"))


def test_chinese_ordering_and_kinds_have_one_right_answer():
    for item in items("chinese", 1500):
        pairs = re.findall(r"(?:问：|，)?(\w\w)比(\w\w)(\w)", item.prompt)
        if len(pairs) == 3:
            more = {"高", "重", "快", "大", "胖"}
            above = [(a, b) if word in more else (b, a) for a, b, word in pairs]
            beaten = {b for _, b in above} if re.search("谁最(.)", item.prompt)[1] in more else {a for a, _ in above}
            assert {item.answer} == {n for pair in above for n in pair} - beaten
        kind = re.search(r"(?:是|属于)(\w+?)(?:的是哪个)?？", item.prompt)
        if kind and kind[1] in chinese.KINDS_OF_THINGS:
            assert [o for o in item.options if o in chinese.KINDS_OF_THINGS[kind[1]]] == [item.answer]


def test_a_measure_word_fits_only_its_own_nouns():
    nouns = Counter(noun for nouns in chinese.MEASURES.values() for noun in nouns)
    assert max(nouns.values()) == 1


@pytest.mark.parametrize(("name", "width"), [("tracking", 3), ("facts", 4), ("events", 4), ("chinese", 4)])
def test_options_are_distinct_and_the_answer_stands_anywhere_among_them(name, width):
    positions = Counter()
    for item in items(name):
        assert len(set(item.options)) == len(item.options) == width
        positions[item.options.index(item.answer)] += 1
    expected = COUNT / width
    assert all(abs(positions[place] - expected) < 5 * expected**0.5 for place in range(width))
    assert SKILLS[name].chance == pytest.approx(1 / width)


@pytest.mark.parametrize("name", SKILLS)
def test_same_seed_same_texts_and_another_seed_others(name):
    first, again, other = (list(islice(texts(SKILLS[name], seed), 50)) for seed in ("1", "1", "2"))
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", SKILLS)
def test_held_out_items_are_distinct_and_never_training_text(name):
    scored, valid = items(name, 2000), SKILLS[name].items("valid", 150)
    assert len({i.key for i in scored}) == 2000
    assert not {i.key for i in scored} & {i.key for i in valid}
    prompts = {" ".join(i.prompt.lower().split()) for i in scored + valid}
    whole = {" ".join(full_text(i).lower().split()) for i in scored + valid}
    for text in training_texts(name):
        plain = " ".join(text.lower().split())
        assert plain not in whole
        question = re.split(r" steps:| answer:| 答：| # prints:", plain)[0]
        assert name == "events" or question not in prompts


def test_events_of_held_out_people_and_things_are_not_told_in_training():
    """A scored story is not the beginning or a piece of a training story."""
    starts = {item.prompt.split(". ")[0] for item in items("events", 2000)}
    assert not starts & {text.split(". ")[0] for text in training_texts("events")}


@pytest.mark.parametrize("name", SKILLS)
def test_texts_are_short(name):
    sizes = [len(text.encode()) for text in islice(texts(SKILLS[name], "size"), 3000)]
    assert max(sizes) < 420
    assert sum(sizes) / len(sizes) < 220


def test_splits_have_their_share():
    splits = Counter(split_of(f"key {i}") for i in range(20_000))
    assert 0.02 < splits["valid"] / 20_000 < 0.04
    assert 0.05 < splits["score"] / 20_000 < 0.07


def test_dice_sample_has_no_repeats():
    dice = Dice("sample")
    assert all(len(set(dice.sample("abcdef", 5))) == 5 for _ in range(200))
