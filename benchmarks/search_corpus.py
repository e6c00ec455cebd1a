"""Generate a large corpus of Claude Code sessions, identical for the same seed.

python benchmarks/search_corpus.py FOLDER --messages 1000000

The shares match 109 recorded sessions: tool output is two thirds of the text, tool input a sixth, and the rest is
thinking and messages of model and human. Lengths are log-normal with the recorded medians; sessions have a median of
100 messages and up to 3,000. As in recorded files, one answer spans several lines with the same `message.id`, and a
result appears twice: for the model, and in `toolUseResult`. A message is an answer, a prompt or a result, so there
are fewer messages than lines.

Words follow Zipf's law over a vocabulary of 200,000; the most frequent ones are English, so that stop word lists
apply. Drawing each word would take minutes. So half lines are drawn once, already escaped for JSON, and a text
combines left and right halves; every eighth line also gets a word from the complete vocabulary or a unique number.
No two long texts are equal, and rare terms continue to appear as the corpus grows.

Needles are pairs from a few words that occur nowhere else. Each word is in several sessions and each pair in one
message of one session, so a search must match both.
"""

import argparse
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import accumulate, combinations, count, islice
from pathlib import Path
from typing import NamedTuple, TextIO

VOCABULARY = 200_000
HALVES = 40_000
PROJECTS = 60
NEEDLES = 200
NEEDLE_WORDS = 40
FIRST_DAY = datetime(2024, 11, 1, tzinfo=UTC).timestamp()
DAYS = 730
ANSWERS_A_PROMPT = 11
FREQUENT = (
    "the to of and a in is it that for this on with as be are was i you we not can at from by an or if have will but "
    "all so use now no there which when do has let me need should what how they also then one only just would like "
    "into up out more than them any some new here my our your its first other after before because where why about "
    "could does did make get file test code error line run function check add change call value return read write "
    "data type name set list time work user same still see look main branch commit fix build"
)
ENGLISH = FREQUENT.split()
ONSETS = "b br c ch d dr f fl g gr h j k kl l m n p pl qu r s sh sl sp st t tr v w z"
STARTS = ONSETS.split()
VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "ou"]
ENDS = ["", "b", "ck", "d", "g", "l", "lt", "m", "n", "nd", "nt", "p", "r", "rn", "s", "sk", "st", "t", "x"]


class Facts(NamedTuple):
    """Size of the corpus; `text_bytes` counts each text once."""

    files: int
    messages: int
    text_bytes: int
    file_bytes: int
    needles: list[tuple[str, str]]
    """Queries, each with the id of the only session that matches."""


class Size(NamedTuple):
    """Draw a log-normal length in characters."""

    median: int
    spread: float
    most: int = 30_000

    def draw(self, chance: random.Random) -> int:
        return min(self.most, int(chance.lognormvariate(math.log(self.median), self.spread)))


class Tool(NamedTuple):
    """A tool with its frequency and the lengths of its input and output."""

    name: str
    share: float
    asked: Size
    given: Size
    argument: str
    fixed: str
    """Short arguments as JSON, with a field for a path."""


HUMAN = Size(96, 1.9)
AGENT = Size(93, 1.4)
THINKING = Size(151, 1.45)
SESSION = Size(100, 1.3, 3_000)
TOOLS = (
    Tool("Bash", 0.40, Size(110, 0.9), Size(260, 1.75), "command", '"description":"Look at {path}"'),
    Tool("Read", 0.28, Size(30, 0.5), Size(1_300, 1.3), "note", '"file_path":"{path}"'),
    Tool("Edit", 0.24, Size(560, 1.2), Size(240, 0.8), "new_string", '"file_path":"{path}","old_string":"pass"'),
    Tool("Grep", 0.08, Size(40, 0.5), Size(300, 1.5), "pattern", '"path":"{path}"'),
)


# Words


def made_words(chance: random.Random) -> Iterator[str]:
    """Yield unique pronounceable words, shortest first."""
    seen = set(ENGLISH)
    for number in count():
        syllables = 2 if number < 20_000 else 3
        parts = (chance.choice(STARTS) + chance.choice(VOWELS) for _ in range(syllables))
        word = "".join(parts) + chance.choice(ENDS)
        if word not in seen:
            seen.add(word)
            yield word


class Words:
    """The vocabulary, most frequent words first, with names derived from it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        made = list(islice(made_words(chance), VOCABULARY))
        self.all = [*ENGLISH, *made[NEEDLE_WORDS:]]
        self.reserved = made[:NEEDLE_WORDS]
        self.weights = list(accumulate(1 / (rank + 2.7) for rank in range(1, len(self.all) + 1)))
        plain = self.zipf(self.all[len(ENGLISH) :], 90_000)
        self.names = [name(number, *three) for number, three in enumerate(zip(*[iter(plain)] * 3, strict=True))]
        self.paths = [path(*five) for five in zip(*[iter(self.zipf(self.all, 50_000))] * 5, strict=True)]

    def zipf(self, items: list[str], number: int) -> list[str]:
        """Draw items; the first ones are the most frequent."""
        return self.chance.choices(items, cum_weights=self.weights[: len(items)], k=number)


def name(number: int, first: str, second: str, third: str) -> str:
    """Return an identifier in one of the usual styles."""
    styles = (f"{first}_{second}", first + second.title(), f"{first}_{second}_{third}", first.title() + third.title())
    return styles[number % 4]


def path(*words: str) -> str:
    """Return a file path with three folders."""
    return f"src/{words[0]}/{words[1]}/{words[2]}_{words[3]}.{('py', 'ts', 'go', 'md')[len(words[4]) % 4]}"


# Texts


class Pool:
    """Halves of lines of one kind, escaped for a JSON string."""

    def __init__(self, words: Words, half: Callable[[Iterator[str], Iterator[str], Iterator[str]], str]) -> None:
        plain = iter(words.zipf(words.all, HALVES * 16))
        names = iter(words.zipf(words.names, HALVES * 6))
        paths = iter(words.zipf(words.paths, HALVES * 2))
        self.left = [half(plain, names, paths) for _ in range(HALVES)]
        self.right = [half(plain, names, paths) for _ in range(HALVES)]
        self.line = sum(map(len, self.left)) // HALVES * 2 + 1
        self.words, self.chance = words.all, words.chance

    def text(self, length: int) -> str:
        """Return a text of about this length."""
        chance, lines = self.chance, round(length / self.line)
        if not lines:
            return chance.choice(self.left)
        made = [f"{a} {b}" for a, b in zip(chance.choices(self.left, k=lines), self.rights(lines), strict=True)]
        for number in range(chance.randrange(8), lines, 8):
            fresh = chance.choice(self.words) if number & 1 else f"{chance.getrandbits(40):x}"
            made[number] += " " + fresh
        return "\\n".join(made)

    def rights(self, lines: int) -> list[str]:
        return self.chance.choices(self.right, k=lines)


def prose(plain: Iterator[str], names: Iterator[str], _paths: Iterator[str]) -> str:
    """Return half a line of conversation."""
    said = " ".join(islice(plain, 7))
    return f"{said} `{next(names)}`" if len(said) % 5 == 0 else said


def source(plain: Iterator[str], names: Iterator[str], _paths: Iterator[str]) -> str:
    """Return half a line of code."""
    word = next(plain)
    match len(word) % 4:
        case 0:
            return f"{next(names)}({next(names)}, {word}={next(names)})"
        case 1:
            return f"if {next(names)} == '{word}': return {next(names)}"
        case 2:
            return f"    {word} = self.{next(names)}[{len(word)}]"
        case _:
            return f"# {word} {' '.join(islice(plain, 5))}"


def output(plain: Iterator[str], names: Iterator[str], paths: Iterator[str]) -> str:
    """Return half a line of command output."""
    word = next(plain)
    match len(word) % 3:
        case 0:
            return f"{next(paths)}:{len(word) * 37}: {word} {next(plain)}"
        case 1:
            return f"PASS {next(names)} {word} ({len(word)}.2s)"
        case _:
            return f"{word}: {' '.join(islice(plain, 6))}"


class Texts(NamedTuple):
    """Vocabulary and line halves of a corpus."""

    words: Words
    prose: Pool
    source: Pool
    output: Pool


def prepared(seed: int) -> Texts:
    words = Words(random.Random(seed))
    return Texts(words, Pool(words, prose), Pool(words, source), Pool(words, output))


# Sessions


def uuid(chance: random.Random) -> str:
    digits = f"{chance.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


class Plan(NamedTuple):
    """Plan of a session: folder, start, length, and the needle with the message it follows."""

    identity: str
    project: str
    start: float
    messages: int
    needle: str = ""
    place: int = 0


class Writer:
    """A session file under construction, as a chain of lines."""

    def __init__(self, file: TextIO, texts: Texts, plan: Plan) -> None:
        self.file, self.texts, self.plan = file, texts, plan
        self.chance = texts.words.chance
        self.now, self.needle = plan.start, plan.needle
        self.messages = self.text_bytes = 0
        self.parent = "null"
        self.envelope = (
            f'"isSidechain":false,"userType":"external","cwd":"/home/dev/{plan.project}","sessionId":"{plan.identity}",'
            '"version":"2.1.58","gitBranch":"main",'
        )

    def write(self) -> None:
        """Write prompts with their answers until the planned number of messages."""
        while self.messages < self.plan.messages - 1:
            self.prompt()
            answers = min(int(self.chance.expovariate(1 / ANSWERS_A_PROMPT)), (self.plan.messages - self.messages) // 2)
            for _ in range(answers):
                self.step()
            self.answer(f'{{"type":"text","text":"{self.said(AGENT)}"}}', "end_turn")

    def row(self, fields: str, seconds: float) -> str:
        """Return one line of the chain."""
        identity = uuid(self.chance)
        self.now += seconds
        stamp = datetime.fromtimestamp(self.now, UTC).isoformat(timespec="milliseconds")[:-6]
        self.file.write(
            f'{{"parentUuid":{self.parent},{self.envelope}{fields},"uuid":"{identity}","timestamp":"{stamp}Z"}}\n'
        )
        self.parent = f'"{identity}"'
        return identity

    def counted(self, text: str) -> str:
        self.text_bytes += len(text) - text.count("\\n")
        return text

    def said(self, size: Size) -> str:
        """Return a human or model message; the first one after the needle's position contains the needle."""
        text = self.texts.prose.text(size.draw(self.chance))
        if self.needle and self.messages >= min(self.plan.place, self.plan.messages - 2):
            text, self.needle = f"{text} {self.needle}", ""
        return self.counted(text)

    def prompt(self) -> None:
        self.row(f'"type":"user","message":{{"role":"user","content":"{self.said(HUMAN)}"}}', 90)
        self.messages += 1

    def step(self) -> None:
        """Write a tool call and its result."""
        tool = self.chance.choices(TOOLS, weights=[tool.share for tool in TOOLS])[0]
        where = self.chance.choice(self.texts.words.paths)
        call = f"toolu_01{self.chance.getrandbits(120):030x}"
        asked = self.counted(self.texts.source.text(tool.asked.draw(self.chance)))
        fixed = self.counted(tool.fixed.replace("{path}", where))
        block = (
            f'{{"type":"tool_use","id":"{call}","name":"{tool.name}","input":{{"{tool.argument}":"{asked}",{fixed}}}}}'
        )
        line = self.answer(block, "tool_use")
        pool = self.texts.source if tool.name == "Read" else self.texts.output
        given = self.counted(pool.text(tool.given.draw(self.chance)))
        result = f'{{"tool_use_id":"{call}","type":"tool_result","content":"{given}","is_error":false}}'
        note = f'{{"stdout":"{given}","stderr":"","interrupted":false,"isImage":false}}'
        fields = f'"type":"user","message":{{"role":"user","content":[{result}]}},"toolUseResult":{note},'
        self.row(f'{fields}"sourceToolAssistantUUID":"{line}"', 2)
        self.messages += 1

    def answer(self, block: str, ends: str) -> str:
        """Write one answer; sometimes thinking and text precede its last block on separate lines."""
        blocks = [block]
        if ends == "tool_use" and self.chance.random() < 0.4:
            blocks.insert(0, f'{{"type":"text","text":"{self.said(AGENT)}"}}')
        if self.chance.random() < 0.43:
            thought = self.counted(self.texts.prose.text(THINKING.draw(self.chance)))
            signature = f"{self.chance.getrandbits(1_200):0300x}"
            blocks.insert(0, f'{{"type":"thinking","thinking":"{thought}","signature":"{signature}"}}')
        identity = f"msg_01{self.chance.getrandbits(88):022x}"
        self.messages += 1
        return [self.part(part, identity, ends) for part in blocks][-1]

    def part(self, block: str, identity: str, ends: str) -> str:
        usage = (
            '{"input_tokens":3,"cache_creation_input_tokens":900,"cache_read_input_tokens":41000,"output_tokens":180}'
        )
        return self.row(
            f'"message":{{"model":"claude-opus-4-6","id":"{identity}","type":"message","role":"assistant","content":[{block}],'
            f'"stop_reason":"{ends}","stop_sequence":null,"usage":{usage}}},"requestId":"req_{identity[4:]}","type":"assistant"',
            5,
        )


def planned(words: Words, messages: int) -> list[Plan]:
    """Plan sessions with this many messages in total, and assign one needle to as many as possible."""
    chance = words.chance
    projects = [f"{first}-{second}" for first, second in zip(words.all[300:][:PROJECTS], words.all[900:], strict=False)]
    plans: list[Plan] = []
    while messages > 0:
        size = max(2, min(SESSION.draw(chance), messages))
        start = FIRST_DAY + chance.random() * DAYS * 86_400
        plans.append(Plan(uuid(chance), words.zipf(projects, 1)[0], start, size))
        messages -= size
    pairs = chance.sample(list(combinations(words.reserved, 2)), NEEDLES)
    for pair, place in zip(pairs, chance.sample(range(len(plans)), min(NEEDLES, len(plans))), strict=False):
        plan = plans[place]
        plans[place] = plan._replace(needle=" ".join(pair), place=chance.randrange(plan.messages))
    return plans


def write_session(folder: Path, texts: Texts, plan: Plan) -> tuple[int, int, int]:
    """Write one file with the time of its last line; return its messages and the sizes of its text and the file."""
    target = folder / f"-home-dev-{plan.project}" / f"{plan.identity}.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="ascii", buffering=1 << 20) as file:
        writer = Writer(file, texts, plan)
        writer.write()
    os.utime(target, (writer.now, writer.now))
    return writer.messages, writer.text_bytes, target.stat().st_size


def write_corpus(folder: Path, messages: int, seed: int = 0) -> Facts:
    """Write about this many messages as `<folder>/<project>/<session>.jsonl`."""
    texts = prepared(seed)
    plans = planned(texts.words, messages)
    written = text = size = 0
    for plan in plans:
        one = write_session(folder, texts, plan)
        written, text, size = written + one[0], text + one[1], size + one[2]
    needles = [(plan.needle, plan.identity) for plan in plans if plan.needle]
    return Facts(len(plans), written, text, size, needles)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a corpus of sessions.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    facts = write_corpus(arguments.folder, arguments.messages, arguments.seed)
    seconds = time.perf_counter() - start
    print(f"{facts.files} files, {facts.messages} messages, {facts.text_bytes / 1e6:.0f} MB of text")
    print(
        f"{facts.file_bytes / 1e6:.0f} MB in {seconds:.0f} s; {len(facts.needles)} needles, such as {facts.needles[:1]}"
    )


if __name__ == "__main__":
    main()
