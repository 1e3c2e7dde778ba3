import pytest
import re2

from loomlog.connectors.models.mock.findings import (
    CHECKS,
    ReviewFinding,
    combine_patterns,
    is_source,
    kinds_of,
    longest_function,
    mask_quotes,
    parse_findings,
    quoted_lines,
    reraising_lines,
)


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("    except:", ["except"]),
        ("except Exception:", ["except"]),
        ("    except BaseException as error:  # why", ["except"]),
        ("    except ValueError:", []),
        ("    except (Exception, ValueError):", []),
        ("x = eval(text)", ["eval"]),
        ("exec(code)", ["eval"]),
        ("model.eval()", []),
        ("literal_eval(text)", []),
        ("run(command, shell=True)", ["shell"]),
        ("os.system(f'rm {path}')", ["shell"]),
        ("run(command, shell=False)", []),
        ("pickle.loads(data)", ["deserialise"]),
        ("yaml.load(stream)", ["deserialise"]),
        ("yaml.safe_load(stream)", []),
        ("get(url, verify=False)", ["tls"]),
        ("def f(a, b=[]):", ["default"]),
        ("def f(a={}, b=1):", ["default"]),
        ("def f(a=(), b=None):", []),
        ("time.sleep(1)", ["sleep"]),
        ("await asyncio.sleep(1)", []),
        ("    print(x)", ["print"]),
        ("pprint(x)", []),
        ('password = "hunter2hunter2"', ["secret"]),
        ('API_KEY: "sk-0123456789"', ["secret"]),
        ('"auth_token": "abcdefgh12"', ["secret"]),
        ('password = ""', []),
        ("password = read_password()", []),
        ("key = 'AKIAIOSFODNN7EXAMPLE'", ["secret"]),
        ("x = 1  # TODO: more", ["todo"]),
        ("    FIXME this", ["todo"]),
        ('pattern = "TODO"', []),
        ("# print(x) and eval(y)", []),
        ('text = "eval(x) shell=True"', []),
        ('say("a # b"); eval(x)', ["eval"]),
    ],
)
def test_what_a_python_line_is(line: str, kinds: list[str]) -> None:
    assert kinds_of("a/b.py", line) == kinds


def test_in_other_languages_only_markers_and_secrets_are_looked_for() -> None:
    assert kinds_of("a.js", "// TODO eval(x); print(y)") == ["todo"]
    assert kinds_of("a.ts", 'const apiKey = "0123456789"') == ["secret"]


def test_what_is_usual_in_a_place_is_not_reported_there() -> None:
    assert kinds_of("services/cli/main.py", "print(x)") == []
    assert kinds_of("tests/test_a.py", "time.sleep(1)") == []
    assert kinds_of("tests/test_a.py", "except:") == ["except"]


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        ("a.py", True),
        ("src/a.tsx", True),
        ("readme.md", False),
        (".venv/lib/a.py", False),
        ("web/node_modules/x/a.js", False),
        ("x.egg-info/a.py", False),
        ("environment/a.py", True),
    ],
)
def test_what_counts_as_source(path: str, ours: bool) -> None:
    assert is_source(path) is ours


def test_findings_are_read_from_matching_lines_only_and_each_once() -> None:
    answer = (
        "a.py:12:    except:\na.py-13-        pass\n--\na.py:12:    except:\nb.md:1:TODO\n"
        "dir/c:d.py:7:eval(x)\nno matches\n[the first 400; there are more]"
    )
    assert parse_findings([answer, "", "a.py:2:# TODO"]) == [
        ReviewFinding(kind="todo", path="a.py", line=2, text="# TODO"),
        ReviewFinding(kind="except", path="a.py", line=12, text="    except:"),
        ReviewFinding(kind="eval", path="dir/c:d.py", line=7, text="eval(x)"),
    ]


def test_every_pattern_is_re2_too() -> None:
    for check in CHECKS:
        assert re2.compile(check.pattern)
    for python_only in (True, False):
        assert re2.compile(combine_patterns([check for check in CHECKS if check.python_only == python_only]))


def test_lines_in_triple_quotes_are_known() -> None:
    source = '"""One.\n\neval(x)\n"""\neval(y)\nz = \'\'\'a """ b\neval\n\'\'\'\n"""one line"""\ncode'
    assert quoted_lines(source) == {2, 3, 4, 7, 8}


def test_handlers_that_raise_again_are_known() -> None:
    source = (
        "try:\n    f()\nexcept Exception:\n    log()\n    raise\ntry:\n    g()\nexcept Exception:\n    pass\nraise X\n"
    )
    assert reraising_lines(source) == {3}


def test_the_longest_function_is_measured_by_indentation() -> None:
    first = "def a():\n    one\n\n    two\n\n\n"
    second = "class C:\n    async def b(self):\n        x\n        y\n        z\n        w\n\nx = 1\n"
    source = first + second
    assert longest_function(source) == ("b", 5)
    assert longest_function("x = 1\n") == ("", 0)


def test_a_secret_is_not_repeated() -> None:
    assert mask_quotes("password = 'hunter2hunter2'") == "password = 'hu...'"
