"""Accuracy of the token estimator, speed of the counters, and calibration by the recorded usage of each model.

    python benchmarks/tokens.py [--data FOLDER] [--fit]

The texts are parts of recorded sessions, truncated to 4,000 characters, and generated texts for kinds that are missing
there (other scripts, base64, hex, minified JSON). Errors are relative to the exact o200k count (extra `exact`) on the
`report` half of the recordings. `--fit` computes the weights in `estimate.py` from the `tune` half: least squares of
the relative error with smaller weights for large errors (iterative reweighting), without a library.
"""

import argparse
import base64
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from time import process_time
from typing import NamedTuple

import thresher
from thresher import Session
from thresher.errors import ThresherError
from thresher.model import Summary, Text, Thinking, ToolCall, ToolResult, part_text
from thresher.model.tool_calls import describe_tool_call
from thresher.tokens import calibrate, default_token_weights, find_model, get_counter
from thresher.tokens.estimate import ASCII_WEIGHTS, NON_ASCII_WEIGHTS, count_features

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
LONGEST = 4000
SHORTEST = 200
MADE = 40
"""Generated texts of each kind."""
FITTED = 4000
"""Recorded texts used by a fit."""
REPEATS = 2000

# Ten sentences per language: the even ones for fitting, the odd ones for the report.
SENTENCES = {
    "Chinese": (
        "我们先读取配置文件，然后检查每一个字段是否有效。",
        "测试在昨天晚上全部通过了，但是今天早上又失败了两个。",
        "请把这个函数拆成两个较小的函数，并且为它们写上说明。",
        "服务器返回了错误代码，因为令牌已经过期。",
        "数据库里的记录太多，查询需要好几秒钟。",
        "用户点击按钮以后，页面没有任何反应。",
        "这段代码的内存占用比我们预想的高得多。",
        "下一步是更新文档，告诉大家新的安装方法。",
        "如果网络断开，程序会自动重新连接三次。",
        "他建议我们改用缓存，这样可以节省一半的时间。",
    ),
    "Japanese": (
        "まず設定ファイルを読み込んで、各項目が正しいかどうかを確認します。",
        "昨夜はすべてのテストが通りましたが、今朝は二つ失敗しました。",
        "この関数を二つの小さな関数に分けて、説明を書いてください。",
        "トークンの有効期限が切れたため、サーバーがエラーを返しました。",
        "データベースのレコードが多すぎて、検索に数秒かかります。",
        "ボタンを押しても、画面には何も表示されません。",
        "このコードのメモリ使用量は予想よりずっと多いです。",
        "次はドキュメントを更新して、新しいインストール方法を伝えます。",
        "ネットワークが切れた場合は、自動的に三回まで再接続します。",
        "キャッシュを使えば、時間を半分に減らせると彼は言いました。",
    ),
    "Korean": (
        "먼저 설정 파일을 읽고 각 항목이 올바른지 확인합니다.",
        "어젯밤에는 모든 테스트가 통과했지만 오늘 아침에는 두 개가 실패했습니다.",
        "이 함수를 두 개의 작은 함수로 나누고 설명을 써 주세요.",
        "토큰이 만료되어 서버가 오류를 반환했습니다.",
        "데이터베이스의 레코드가 너무 많아서 조회에 몇 초가 걸립니다.",
        "버튼을 눌러도 화면에 아무 변화가 없습니다.",
        "이 코드의 메모리 사용량은 예상보다 훨씬 많습니다.",
        "다음 단계는 문서를 고쳐서 새로운 설치 방법을 알리는 것입니다.",
        "네트워크가 끊어지면 프로그램이 자동으로 세 번 다시 연결합니다.",
        "그는 캐시를 쓰면 시간을 절반으로 줄일 수 있다고 했습니다.",
    ),
    "Russian": (
        "Сначала мы читаем файл настроек и проверяем каждое поле.",
        "Вчера вечером все тесты прошли, а сегодня утром два из них упали.",
        "Разделите эту функцию на две поменьше и напишите к ним пояснения.",
        "Сервер вернул ошибку, потому что срок действия токена истёк.",
        "В базе данных слишком много записей, и запрос занимает несколько секунд.",
        "После нажатия на кнопку на странице ничего не происходит.",
        "Этот код занимает гораздо больше памяти, чем мы ожидали.",
        "Следующий шаг: обновить документацию и описать новый способ установки.",
        "Если сеть пропадёт, программа трижды попробует подключиться снова.",
        "Он предложил хранить ответы в кэше, чтобы сберечь половину времени.",
    ),
    "Arabic": (
        "نقرأ ملف الإعدادات أولا ثم نتحقق من كل حقل فيه.",
        "نجحت جميع الاختبارات مساء أمس لكن اثنين منها فشلا هذا الصباح.",
        "قسم هذه الدالة إلى دالتين أصغر واكتب شرحا لكل منهما.",
        "أعاد الخادم خطأ لأن صلاحية الرمز قد انتهت.",
        "عدد السجلات في قاعدة البيانات كبير جدا ويستغرق الاستعلام عدة ثوان.",
        "لا يحدث أي شيء في الصفحة بعد الضغط على الزر.",
        "يستهلك هذا البرنامج ذاكرة أكثر بكثير مما توقعنا.",
        "الخطوة التالية هي تحديث الوثائق وشرح طريقة التثبيت الجديدة.",
        "إذا انقطعت الشبكة يحاول البرنامج الاتصال من جديد ثلاث مرات.",
        "اقترح أن نحفظ الردود في ذاكرة مؤقتة لنوفر نصف الوقت.",
    ),
    "Hindi": (
        "पहले हम सेटिंग की फ़ाइल पढ़ते हैं और हर मान की जाँच करते हैं।",
        "कल रात सभी परीक्षण सफल रहे, लेकिन आज सुबह दो विफल हो गए।",
        "इस फलन को दो छोटे भागों में बाँटिए और उनका विवरण लिखिए।",
        "सर्वर ने त्रुटि लौटाई क्योंकि टोकन की अवधि समाप्त हो गई थी।",
        "डेटाबेस में बहुत अधिक प्रविष्टियाँ हैं और खोज में कई सेकंड लगते हैं।",
        "बटन दबाने के बाद पृष्ठ पर कुछ भी नहीं होता।",
        "यह प्रोग्राम हमारी अपेक्षा से कहीं अधिक स्मृति लेता है।",
        "अगला कदम दस्तावेज़ को नया करना और स्थापना का तरीका बताना है।",
        "नेटवर्क टूटने पर प्रोग्राम तीन बार फिर से जुड़ने की कोशिश करता है।",
        "उसने कहा कि उत्तर सहेजकर रखने से आधा समय बच सकता है।",
    ),
    "Greek": (
        "Πρώτα διαβάζουμε το αρχείο ρυθμίσεων και ελέγχουμε κάθε πεδίο.",
        "Χθες το βράδυ πέρασαν όλες οι δοκιμές, αλλά σήμερα το πρωί απέτυχαν δύο.",
        "Χώρισε αυτή τη συνάρτηση σε δύο μικρότερες και γράψε μια εξήγηση.",
        "Ο διακομιστής επέστρεψε σφάλμα επειδή έληξε το διακριτικό.",
        "Η βάση έχει πάρα πολλές εγγραφές και η αναζήτηση αργεί.",
        "Μετά το πάτημα του κουμπιού δεν συμβαίνει τίποτα στη σελίδα.",
        "Το πρόγραμμα χρειάζεται πολύ περισσότερη μνήμη από όση περιμέναμε.",
        "Το επόμενο βήμα είναι να ενημερώσουμε τις οδηγίες εγκατάστασης.",
        "Αν πέσει το δίκτυο, γίνονται τρεις προσπάθειες σύνδεσης.",
        "Πρότεινε να κρατάμε τις απαντήσεις για να κερδίζουμε χρόνο.",
    ),
    "German": (
        "Zuerst lesen wir die Einstellungen ein und prüfen jedes Feld.",
        "Gestern Abend liefen alle Prüfungen durch, heute früh schlugen zwei fehl.",
        "Bitte teile diese Funktion in zwei kleinere auf und erkläre sie kurz.",
        "Der Server meldete einen Fehler, weil die Anmeldung abgelaufen war.",
        "In der Datenbank liegen zu viele Einträge, die Abfrage dauert mehrere Sekunden.",
        "Nach dem Drücken der Schaltfläche geschieht auf der Seite nichts.",
        "Das Programm braucht viel mehr Speicher, als wir erwartet hätten.",
        "Als Nächstes überarbeiten wir die Anleitung für die Einrichtung.",
        "Fällt das Netz aus, so wird die Verbindung dreimal neu aufgebaut.",
        "Er schlug vor, die Antworten zwischenzuspeichern, um Zeit zu sparen.",
    ),
    "French": (
        "Nous lisons d'abord le fichier de réglages, puis nous vérifions chaque champ.",
        "Hier soir tous les essais ont réussi, mais ce matin deux ont échoué.",
        "Sépare cette fonction en deux plus petites et ajoute une explication.",
        "Le serveur a renvoyé une erreur parce que le jeton était périmé.",
        "La base contient trop de lignes et la requête prend plusieurs secondes.",
        "Après un clic sur le bouton, rien ne se passe dans la page.",
        "Ce programme occupe beaucoup plus de mémoire que prévu.",
        "L'étape suivante consiste à mettre à jour la notice d'installation.",
        "Si le réseau tombe, le programme essaie trois fois de se reconnecter.",
        "Il a proposé de garder les réponses en mémoire pour gagner du temps.",
    ),
}
SYMBOLS = tuple("✅🚀❌🎉📦🔧→•…—─│├└✓✗█░“”’")
PHRASES = ("all tests passed", "build failed", "installed 3 packages", "the next step", "done in 12 s")


class Sample(NamedTuple):
    """A text with its kind and its exact count."""

    kind: str
    text: str
    tokens: int


def main() -> None:
    """Fit the weights or report the errors."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, default=DATA, help="folder of recordings with index.jsonl")
    options.add_argument("--fit", action="store_true", help="fit the weights of the estimator and print them")
    selected = options.parse_args()
    if selected.fit:
        fit_weights(selected.data)
    else:
        report_errors(selected.data)
        report_usage(selected.data)


def recordings(data: Path, split: str = "") -> Iterator[Session]:
    """Yield every readable session of the index, from one half or both."""
    for line in (data / "index.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if split and row["split"] != split:
            continue
        try:
            yield from thresher.read_all(data / row["file"])
        except ThresherError:
            continue


def recorded(data: Path, split: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of every part that is long enough, without duplicates."""
    seen: set[str] = set()
    for session in recordings(data, split):
        reads = {
            part.id
            for message in session.messages()
            for part in message.calls
            if describe_tool_call(part).operation == "read"
        }
        for message in session.messages():
            for part in message.parts:
                text = part_text(part)
                if len(text) < SHORTEST or text in seen:
                    continue
                seen.add(text)
                match part:
                    case Text() | Summary() | Thinking():
                        kind = "prose"
                    case ToolCall():
                        kind = "tool calls"
                    case ToolResult() if text.lstrip()[:1] in ("{", "["):
                        kind = "JSON"
                    case ToolResult() if part.call_id in reads:
                        kind = "files read"
                    case _:
                        kind = "tool output"
                yield kind, text[:LONGEST]


def made(split: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of the generated texts, reproducibly."""
    chance = random.Random(split)
    for language, sentences in SENTENCES.items():
        half = sentences[0::2] if split == "tune" else sentences[1::2]
        joints = ("", "\n") if language in ("Chinese", "Japanese") else (" ", "\n")
        for _ in range(MADE):
            yield language, chance.choice(joints).join(chance.choices(half, k=chance.randint(4, 16)))
    for _ in range(MADE):
        yield "base64", base64.b64encode(chance.randbytes(chance.randint(200, 2000))).decode()
        size = chance.choice((4, 16, 20, 32))
        yield "hex", chance.choice("\n ").join(chance.randbytes(size).hex() for _ in range(chance.randint(10, 60)))
        yield "minified JSON", json.dumps([_row(chance) for _ in range(chance.randint(4, 30))], separators=(",", ":"))
        picked = chance.choices(SYMBOLS, k=chance.randint(5, 30))
        yield "symbols", " ".join(f"{symbol} {chance.choice(PHRASES)}" for symbol in picked)
        cells = [(chance.choice(PHRASES), chance.randint(1, 20), chance.randint(3, 30)) for _ in range(12)]
        yield "boxes", "\n".join(f"│ {text}{' ' * gap}│{'─' * rule}" for text, gap, rule in cells)


def _row(chance: random.Random) -> dict[str, object]:
    return {
        "id": chance.randint(1, 10**6),
        "name": f"item_{chance.randint(1, 999)}",
        "price": round(chance.random() * 100, 2),
        "ok": chance.random() < 0.5,
        "tags": chance.sample(["red", "blue", "large", "small", "new"], 2),
        "at": f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}T{chance.randint(0, 23):02}:00:00Z",
    }


def samples(data: Path, split: str, most: int) -> list[Sample]:
    """Return a sample of the recorded texts and all generated ones, with exact counts."""
    exact = get_counter("exact")
    texts = sorted(recorded(data, split))
    picked = random.Random(split).sample(texts, min(most, len(texts)))
    return [Sample(kind, text, exact(text)) for kind, text in [*picked, *made(split)]]


def fit_weights(data: Path) -> None:
    """Print the weights that fit the tune half best."""
    selected = samples(data, "tune", FITTED)
    weights = fit([count_features(sample.text) for sample in selected], [sample.tokens for sample in selected])
    print(f"LENGTH = {weights[0]:.3f}")
    for run, weight in zip([*ASCII_WEIGHTS, *NON_ASCII_WEIGHTS], weights[1:], strict=True):
        print(f"    {json.dumps(run, ensure_ascii=False)}: {weight:.3f},")


def fit(rows: Sequence[Sequence[int]], counts: Sequence[int], *, rounds: int = 6, core: float = 0.08) -> list[float]:
    """Return the weights with the least relative error; errors beyond `core` count linearly instead of squared."""
    trust = [1.0] * len(rows)
    weights: list[float] = []
    for _ in range(rounds):
        size = len(rows[0])
        matrix = [[1e-3 * (i == j) for j in range(size)] + [0.0] for i in range(size)]
        for row, count, share in zip(rows, counts, trust, strict=True):
            scaled = [(place, value / count) for place, value in enumerate(row) if value]
            for i, left in scaled:
                line = matrix[i]
                line[size] += share * left
                for j, right in scaled:
                    line[j] += share * left * right
        weights = solve(matrix)
        trust = [1 / max(core, abs(_dot(weights, row) / count - 1)) for row, count in zip(rows, counts, strict=True)]
    return weights


def solve(matrix: list[list[float]]) -> list[float]:
    """Solve a square system by Gauss-Jordan elimination; the last column is the right-hand side."""
    size = len(matrix)
    for i in range(size):
        best = max(range(i, size), key=lambda row: abs(matrix[row][i]))
        matrix[i], matrix[best] = matrix[best], matrix[i]
        for row in range(size):
            if row != i and matrix[row][i]:
                ratio = matrix[row][i] / matrix[i][i]
                matrix[row] = [a - ratio * b for a, b in zip(matrix[row], matrix[i], strict=True)]
    return [matrix[i][size] / matrix[i][i] for i in range(size)]


def _dot(weights: Sequence[float], row: Sequence[int]) -> float:
    return sum(weight * value for weight, value in zip(weights, row, strict=True))


def report_errors(data: Path) -> None:
    """Print the errors of the estimator and of bytes / 4 per kind on the report half, then the speeds."""
    selected = samples(data, "report", 10**9)
    kinds: dict[str, list[Sample]] = defaultdict(list)
    for sample in selected:
        kinds[sample.kind].append(sample)
    made_kinds = {kind for kind, _ in made("report")}
    everything = [sample for sample in selected if sample.kind not in made_kinds]
    print(f"{'kind of text':16}{'texts':>7}   {'estimator':>24}   {'bytes / 4':>24}")
    print(f"{'':23}   {'median':>8}{'p95':>8}{'bias':>8}   {'median':>8}{'p95':>8}{'bias':>8}")
    for kind, group in [("all recorded", everything), *sorted(kinds.items())]:
        print(f"{kind:16}{len(group):7,}   {_errors(group, get_counter('estimate'))}   {_errors(group, _quarter)}")
    print()
    for name, count in (("estimator", get_counter("estimate")), ("exact o200k", get_counter("exact"))):
        print(f"{name:16}{_speed(everything[:REPEATS], count):7.0f} MB/s on recorded texts, one core")


def _quarter(text: str) -> int:
    return max(1, len(text.encode("utf-8", "surrogatepass")) // 4)


def _errors(group: Sequence[Sample], count: Callable[[str], int]) -> str:
    counts = [count(sample.text) for sample in group]
    errors = sorted(abs(found / sample.tokens - 1) for found, sample in zip(counts, group, strict=True))
    bias = sum(counts) / sum(sample.tokens for sample in group) - 1
    return f"{median(errors):8.1%}{errors[len(errors) * 95 // 100]:8.1%}{bias:+8.1%}"


def _speed(group: Sequence[Sample], count: Callable[[str], int]) -> float:
    size = sum(len(sample.text.encode("utf-8", "surrogatepass")) for sample in group)
    best = float("inf")
    for _ in range(3):
        start = process_time()
        for sample in group:
            count(sample.text)
        best = min(best, process_time() - start)
    return size / best / 1e6


def report_usage(data: Path) -> None:
    """Print the calibration by recorded usage per model: against o200k, and against the model's own weights."""
    found: dict[str, list[tuple[float, float, int, int, float]]] = defaultdict(list)
    for session in recordings(data):
        models = [message.model for message in session.messages() if message.usage and message.model]
        model = find_model(max(set(models), key=models.count)) if models else None
        if model is None:
            continue
        plain = calibrate(session, default_token_weights())
        own = calibrate(session, default_token_weights(model.name))
        if plain.turns and own.turns:
            found[model.name].append((plain.factor, own.factor, own.base, own.turns, own.error))
    print(f"\n{'reported tokens':22}{'sessions':>9}{'turns':>7}{'per o200k':>11}{'per own':>9}{'base':>8}{'error':>7}")
    for name, rows in sorted(found.items(), key=lambda item: -len(item[1])):
        plain_factor, own_factor, base, _, error = (median(column) for column in zip(*rows, strict=True))
        turns = sum(row[3] for row in rows)
        print(f"{name:22}{len(rows):9}{turns:7,}{plain_factor:11.2f}{own_factor:9.2f}{base:8,.0f}{error:7.1%}")


if __name__ == "__main__":
    main()
