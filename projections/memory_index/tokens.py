"""Tokenizer of the search index: one for entries and queries, so that equal words always have equal lexemes.

    words      NFKC, case and accents folded, the stem and the word; the stemmer follows from the script of the word
    no spaces  Han, Kana, Hangul, Thai, Lao, Khmer, Myanmar: pairs of characters, and each Han character
    numbers    each group of digits, and the whole of dates, versions and decimals

A lexeme is stored as a hash of 64 bits, keyed by the installation's secret and the scope. So the table has no words of
encrypted content, and the postings of two scopes never meet.

Not chosen: a dictionary for each language (the language of an entry is not known), Postgres' own parser (it needs
plaintext), stop words (BM25 weighs them next to nothing).
Before: entries.py, reads.py. After: snowballstemmer.
"""

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from hashlib import blake2b

import snowballstemmer

from loomlog.connectors.crypto.installation_key import SecretKey

KEY_PURPOSE = "memory index"
"""What the key of the hashes is derived for."""
TEXT_BYTES_MAX = 64 * 1024
"""Bytes of a text that are read: as long as the longest value by default."""
TOKENS_MAX = 2_000
"""Tokens of a text that are read; it bounds the row of an entry to some 20 kB."""
WORD_CHARACTERS_MAX = 64
STEMS_CACHED = 65_536
HASH_BYTES = 8

HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
WITHOUT_SPACES = f"{HAN}\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\uac00-\ud7af"
"""Scripts whose words are not separated, as ranges of a character class."""
SCRIPTS: tuple[tuple[int, int, str], ...] = (
    (0x0061, 0x024F, "english"),
    (0x0370, 0x03FF, "greek"),
    (0x0400, 0x052F, "russian"),
    (0x0530, 0x058F, "armenian"),
    (0x0600, 0x06FF, "arabic"),
    (0x0900, 0x097F, "hindi"),
    (0x0B80, 0x0BFF, "tamil"),
    (0x1E00, 0x1EFF, "english"),
)
"""First and last code point of a script, and its stemmer."""
NUMBER = r"(?P<number>\d+(?:[.,:/-]\d+)+)"
ASCII_TOKENS = re.compile(rf"{NUMBER}|(?P<word>[a-z0-9]+(?:'[a-z0-9]+)*)", re.ASCII)
ACCENTS = re.compile("[\u0300-\u036f]")
ONE_HAN = re.compile(f"[{HAN}]")


def lexemes(text: str) -> Iterator[str]:
    """Yield the lexemes of a text in its order, with repetitions; of a long text those of its beginning."""
    text = normalized(text)
    pattern = ASCII_TOKENS if text.isascii() else _pattern()
    for number, token in enumerate(pattern.finditer(text)):
        if number >= TOKENS_MAX:
            return
        piece = token[0]
        match token.lastgroup:
            case "dense":
                yield from _pairs(piece)
            case "number":
                yield piece
                yield from re.findall(r"\d+", piece)
            case _:
                yield from _stems(piece[:WORD_CHARACTERS_MAX])


def count_lexemes(text: str) -> Counter[str]:
    """Return how often each lexeme is in a text."""
    return Counter(lexemes(text))


def normalized(text: str) -> str:
    """Return the beginning of a text in the form that is split: without case, accents and compatibility forms."""
    if len(text) > TEXT_BYTES_MAX or len(text) * 4 > TEXT_BYTES_MAX:
        text = text.encode(errors="replace")[:TEXT_BYTES_MAX].decode(errors="ignore")
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text.replace("’", "'").casefold())
    return unicodedata.normalize("NFKC", ACCENTS.sub("", plain))


@cache
def _pattern() -> re.Pattern[str]:
    """Return the pattern of tokens. Marks, such as vowel signs, belong to the word before them."""
    marks = "".join(
        chr(code)
        for code in range(0x0300, 0x1E950)
        if unicodedata.category(chr(code)) in ("Mn", "Mc") and not re.match(f"[{WITHOUT_SPACES}]", chr(code))
    )
    letters = rf"[^\W_{WITHOUT_SPACES}]+(?:[{marks}]+[^\W_{WITHOUT_SPACES}]*)*"
    return re.compile(rf"{NUMBER}|(?P<word>{letters}(?:'{letters})*)|(?P<dense>[{WITHOUT_SPACES}]+)")


def _pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
        return
    for start in range(len(run) - 1):
        yield run[start : start + 2]
    yield from ONE_HAN.findall(run)


@lru_cache(maxsize=STEMS_CACHED)
def _stems(word: str) -> tuple[str, ...]:
    """Return the stem of a word and the word."""
    name = next((name for first, last, name in SCRIPTS if first <= ord(word[0]) <= last), "")
    if not name:
        return (word,)
    stem = _stemmer(name).stemWord(word)
    return (word,) if stem == word or not stem else (sys.intern(stem), word)


@cache
def _stemmer(name: str) -> snowballstemmer.stemmer:
    return snowballstemmer.stemmer(name)


def index_key(secret: SecretKey | None) -> bytes:
    """Return the key of the hashes of an installation; empty without a secret key."""
    return b"" if secret is None else secret.derive_keys(KEY_PURPOSE)[0]


class LexemeHasher:
    """Makes numbers of the lexemes of a scope. `secret`: index_key of the installation; empty: hashes are not keyed.

    `check` tells keys apart: an index that was made with another one has to be made again.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.check = blake2b(b"check", digest_size=8, key=secret[:64]).hexdigest()
        self._scope_key = lru_cache(maxsize=1_000)(self._derive)

    def numbers(self, scope: str, counts: Mapping[str, int]) -> dict[int, int]:
        """Return the counts of lexemes by their hashes, signed 64-bit numbers. `scope`: full id of its aggregate."""
        key = self._scope_key(scope)
        return {
            int.from_bytes(
                blake2b(one.encode(errors="surrogatepass"), digest_size=HASH_BYTES, key=key).digest(), signed=True
            ): count
            for one, count in counts.items()
        }

    def text_key(self, owner: str, text: str) -> bytes:
        """Return the name under which the embedding of a text is cached. `owner`: id of the key that encrypts the
        text, or the tenant.
        """
        data = b"".join(len(part).to_bytes(8) + part for part in (owner.encode(), text.encode(errors="replace")))
        return blake2b(data, digest_size=16, key=self._secret[:64], person=b"embedding").digest()

    def _derive(self, scope: str) -> bytes:
        return blake2b(scope.encode(errors="surrogatepass"), digest_size=32, key=self._secret[:64]).digest()
