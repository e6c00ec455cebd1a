"""Decide whether a question is in another language than English, from its script and its stop words."""

import re

STOP_WORDS = {
    "en": "the a an and or of to in is was were are be it that this with for on at by from as not we i you my our "
    "how what why when where which did do does done had has have where who can could should would into about "
    "after before than then there their its only still instead",
    "de": "der die das den dem ein eine einen und oder nicht wir ich mit von für auf aus bei nach wegen warum wie "
    "wo wann wird wurde wurden war waren ist sind haben hat hatte kein keine beim zum zur im als statt unser "
    "unsere unseren",
    "fr": "le la les un une des du et ou ne pas nous je avec pour sur dans par comment pourquoi quand où est était "
    "sont avait avons ont que qui au aux seul plus notre nos cette ce ces fois chez sans",
    "es": "el la los las un una unos unas y o no nosotros con para por en sobre cómo como por qué cuándo dónde es "
    "era son estaba había hemos que de del al se lo su sus más vez nuestro nuestra sin",
    "it": "il lo la gli le un una e o non noi con per su di del della dei delle che come perché quando dove è era "
    "sono aveva abbiamo al alla nel nella più nostro nostra senza",
    "pt": "o os as um uma e ou não nós com para por em no na nos nas do da dos das que como porque quando onde é "
    "era são estava tinha temos ao mais nosso nossa sem",
    "nl": "de het een en of niet wij ik met van voor op uit bij naar waarom hoe waar wanneer wordt werd was waren "
    "is zijn heeft had geen onze als dat die",
    "pl": "i w na z do nie się jest był była było są jak dlaczego kiedy gdzie co który która które dla po przez bez "
    "nasz naszego to tego",
    "tr": "ve bir bu için ile de da ne nasıl neden nerede değil mi olan gibi çok daha sonra önce bizim",
}
"""Frequent words of the languages that the multilingual encoder knows, in Latin script."""
MIN_FOREIGN_SHARE = 0.3
"""Share of letters in another script from which a text is not English."""

_WORDS = {language: frozenset(words.split()) for language, words in STOP_WORDS.items()}
_LATIN_WORD = re.compile(r"(?<![^\s\"'(¿¡])[a-zà-žıß]+(?![^\s\"'),.;:?!])")
"""A word between spaces or punctuation; parts of a name such as `O_EXCL`, `e2e` or `os.Getwd` do not count."""


def is_foreign(text: str) -> bool:
    """Return whether a text is in another language than English. A text without stop words counts as English."""
    letters = [character for character in text if character.isalpha()]
    other_script = sum(ord(character) > 0x24F for character in letters)
    if other_script > MIN_FOREIGN_SHARE * max(len(letters), 1):
        return True
    words = _LATIN_WORD.findall(text.lower())
    # One word is enough only next to a letter that English lacks: "per" and "die" occur in English, too.
    least = max(sum(word in _WORDS["en"] for word in words), 1 if text.isascii() else 0)
    return any(sum(word in stop for word in words) > least for name, stop in _WORDS.items() if name != "en")
