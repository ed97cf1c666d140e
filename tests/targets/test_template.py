"""A user's templates: the same lines in other words, or one clear line and nothing written."""

import os
import shutil
from pathlib import Path

import pytest

from mltswitch.cli import main
from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan
from mltswitch.targets import SwitchState, sandbox, target_for, targets, user_templates
from mltswitch.targets.template import remember_last, render_template, used_templates, using_templates
from mltswitch.targets.user_templates import bundled_names, load_templates

OWN = Path(user_templates.__file__).parents[1] / "templates"
PLATFORMS = sorted({name.partition("/")[0] for name in bundled_names()} & set(targets()))
NAMES = [name for name in bundled_names() if name.partition("/")[0] in PLATFORMS]


def state_of(plan: Plan, platform: str) -> SwitchState:
    """The state of the mixed plan's first switch of this platform."""
    switch = next(switch for switch in plan.topology.switches if switch.platform == platform)
    return target_for(platform).quantise(plan, switch.name).state


def folder_with(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return folder


def refused(plan: Plan, folder: Path, platform: str) -> str:
    with pytest.raises(UserInputError) as caught, using_templates(load_templates(folder)):
        target_for(platform).render(state_of(plan, platform))
    line = str(caught.value)
    assert line.isprintable()
    return line


def comment_mark(plan: Plan, platform: str) -> str:
    """What a comment of this platform begins with, taken from what we render ourselves."""
    texts = target_for(platform).render(state_of(plan, platform)).values()
    marks = {line.split()[0] for text in texts for line in text.splitlines() if line[:1] in {"!", "#"}}
    [mark] = marks
    return mark


@pytest.fixture
def little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAXIMUM_SECONDS", 0.2)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_copy_of_our_templates_renders_the_same(mixed_plan: Plan, tmp_path: Path, platform: str) -> None:
    shutil.copytree(OWN / platform, tmp_path / platform)
    state = state_of(mixed_plan, platform)
    expected = target_for(platform).render(state)
    with using_templates(load_templates(tmp_path)):
        assert target_for(platform).render(state) == expected


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_template_may_add_comments(mixed_plan: Plan, tmp_path: Path, platform: str) -> None:
    name = next(name for name in NAMES if name.startswith(f"{platform}/") and "port.tc" not in name)
    mark = comment_mark(mixed_plan, platform)
    folder_with(tmp_path, name, f"{mark} rack 7, ask the network team\n" + (OWN / name).read_text())
    state = state_of(mixed_plan, platform)
    with using_templates(load_templates(tmp_path)):
        files = target_for(platform).render(state)
    [text] = [text for text in files.values() if text.startswith(f"{mark} rack 7")]
    assert text.endswith(target_for(platform).render(state)[_file_of(files, text)])
    assert target_for(platform).parse(files) == state


def _file_of(files: dict[str, str], text: str) -> str:
    return next(name for name, other in files.items() if other == text)


# What a template tries → a part of the line that refuses it, and the line of the template that it names.
HOSTILE = {
    "attribute": (
        "{{ ''.__class__.__mro__ }}",
        "access to attribute '__class__' of 'str' object is unsafe",
        2,
    ),
    "format": ("{{ '{0.__class__.__mro__}'.format(1) }}", "'__class__' of 'int' object is unsafe", 2),
    "globals": ("{{ cycler.__init__.__globals__.os.popen('id') }}", "is unsafe", 2),
    "include": ("{% include '/etc/passwd' %}", "reads another template: each stands alone", 2),
    "include of ours": ("{% include 'onyx/mltswitch.txt.j2' %}", "each stands alone", 2),
    "include that may be missing": ("{% include 'x' ignore missing %}", "each stands alone", 2),
    "traversal": ("{% import '../../../../etc/passwd' as passwd %}", "each stands alone", 2),
    "from": ("{% from '../secret' import key %}", "each stands alone", 2),
    "extends": ("{% extends '../secret' %}", "each stands alone", 2),
    "syntax": ("{% for %}", "Expected an expression", 2),
    "open": ("{% if true %}", "Unexpected end of template", None),
    "unknown filter": ("{{ 1 | nofilter }}", "No filter named 'nofilter'", 2),
    "random": ("{{ [1, 2] | random }}", "No filter named 'random'", 2),
    "lipsum": ("{{ lipsum() }}", "'lipsum' is undefined", 2),
    "undefined": ("{{ hostname }}", "'hostname' is undefined", 2),
    "no such attribute": ("{{ range.nothing }}", "has no attribute 'nothing'", 2),
    "division": ("{{ 1 / (1 - 1) }}", "ZeroDivisionError", None),
    "huge range": ("{% for i in range(10 ** 9) %}x{% endfor %}", "Range too big", 2),
    "memory": ("{{ 'x' * 10 ** 12 }}", " s and 512 MiB", None),
    "memory of a constant": ("{{ 'x' * 10 ** 10 }}", " s and 512 MiB", None),
    "memory at run time": ("{% set n = namespace(x=10) %}{{ 'x' * n.x ** 12 }}", " s and 512 MiB", None),
    "output": ("{% for i in range(99999) %}x{% endfor %}", "writes more than 50000 characters", 2),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}\n{{ f() }}", "calls itself too often", 2),
    "depth": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "", None),
    "command": ("reload now", "", None),
    "escape": ("{{ '\\x1b[2J' }}", "", None),
}
ENDLESS = {
    "loop without output": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loop over values": "{% set n = 'x' * 9999 %}" + "{% for c in n %}" * 5 + "{% endfor %}" * 5,
    "power": "{{ 9 ** (9 ** 9) }}",
    "power at run time": "{% set n = namespace(x=9) %}{{ n.x ** (9 ** n.x) }}",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_template(
    mixed_plan: Plan, tmp_path: Path, name: str, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_templates, "MAXIMUM_OUTPUT_CHARACTERS", 50_000)
    text, part, number = HOSTILE[attack]
    folder_with(tmp_path, name, f"\n{text}\n{(OWN / name).read_text()}")
    line = refused(mixed_plan, tmp_path, name.partition("/")[0])
    assert part in line
    assert line.startswith(f"{tmp_path / name}:{number}: " if number else f"{tmp_path / name}")


@pytest.mark.usefixtures("little_time")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attack", ENDLESS)
def test_a_template_that_does_not_end(mixed_plan: Plan, tmp_path: Path, name: str, attack: str) -> None:
    folder_with(tmp_path, name, ENDLESS[attack])
    line = refused(mixed_plan, tmp_path, name.partition("/")[0])
    assert line == f"{tmp_path / name}: did not end within 0.2 s"


LINES = [name for name in NAMES if not name.endswith(".yaml.j2")]


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("text", ["reload now", "{{ '\\r' }}", "no shutdown; reboot", "\u202ereload"])
def test_a_line_outside_the_grammar_is_found_in_its_template(
    mixed_plan: Plan, tmp_path: Path, name: str, text: str
) -> None:
    own = (OWN / name).read_text()
    folder_with(tmp_path, name, f"{own}{text}\n")
    line = refused(mixed_plan, tmp_path, name.partition("/")[0])
    assert line.startswith(f"{tmp_path / name}:{own.count(chr(10)) + 1}: writes what ")


@pytest.mark.parametrize("name", NAMES)
def test_a_template_that_says_something_else(mixed_plan: Plan, tmp_path: Path, name: str) -> None:
    """Nothing at all, or one value changed: every line is of the grammar, but not what the plan says."""
    folder_with(tmp_path, name, "")
    assert str(tmp_path / name) in refused(mixed_plan, tmp_path, name.partition("/")[0])


def test_what_a_template_is_compared_with_is_never_a_template_of_a_user(
    mixed_plan: Plan, tmp_path: Path
) -> None:
    """A line that no field of the state knows is missed all the same."""
    for platform, words in {
        "onyx": " no qos rewrite dscp",
        "icos": "exponential-weighting-constant 0",
    }.items():
        name = f"{platform}/mltswitch.txt.j2"
        lines = (OWN / name).read_text().splitlines(keepends=True)
        kept = [line for line in lines if words not in line]
        assert len(kept) < len(lines)
        folder_with(tmp_path / platform, name, "".join(kept))
        state = state_of(mixed_plan, platform)
        target_for(platform).render(state)
        assert str(tmp_path) in refused(mixed_plan, tmp_path / platform, platform)
        target_for(platform).render(state)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_links_are_not_followed(tmp_path: Path, platform: str) -> None:
    name = next(name for name in NAMES if name.startswith(f"{platform}/"))
    (tmp_path / "a" / platform).mkdir(parents=True)
    (tmp_path / "a" / name).symlink_to("/etc/passwd")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / platform).symlink_to(OWN / platform)
    for folder, link in (("a", name), ("b", platform)):
        with pytest.raises(UserInputError, match="is a link, which is not followed here") as caught:
            load_templates(tmp_path / folder)
        assert caught.value.where == str(tmp_path / folder / link)


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("sonic/mltswitch.json.j2", "", "replaces no template of mltswitch: 'sonic'"),
        ("onyx/mltswitch.j2", "", "replaces no template of mltswitch: 'onyx/mltswitch.j2'"),
        ("mltswitch.txt.j2", "", "replaces no template of mltswitch: 'mltswitch.txt.j2'"),
        ("onyx/README.md", "", "holds no template"),
        ("onyx/mltswitch.txt.j2", "x" * 300_000, "longer than 262144 characters"),
    ],
)
def test_a_folder_that_is_refused(tmp_path: Path, name: str, text: str, part: str) -> None:
    folder_with(tmp_path, name, text)
    with pytest.raises(UserInputError) as caught:
        load_templates(tmp_path)
    assert part in str(caught.value)
    assert caught.value.where.startswith(str(tmp_path))


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="cannot be read: No such file"):
        load_templates(tmp_path / "none")
    folder_with(tmp_path, "onyx/mltswitch.txt.j2", "").joinpath("onyx/mltswitch.txt.j2").write_bytes(b"\xff")
    with pytest.raises(UserInputError, match="is not UTF-8 text"):
        load_templates(tmp_path)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "onyx").mkdir()
    os.mkfifo(tmp_path / "onyx" / "mltswitch.txt.j2")
    with pytest.raises(UserInputError, match="is no regular file"):
        load_templates(tmp_path)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    shutil.copytree(OWN / "onyx", tmp_path / "onyx")
    folder_with(tmp_path, "onyx/.mltswitch.txt.j2.swp", "")
    folder_with(tmp_path, "onyx/notes.txt", "")
    folder_with(tmp_path, "README.md", "")
    assert "onyx/mltswitch.txt.j2" in load_templates(tmp_path)
    assert "linux/routes.ip.j2" not in load_templates(tmp_path)


def test_templates_end_with_their_block(tmp_path: Path) -> None:
    shutil.copytree(OWN / "onyx", tmp_path / "onyx")
    templates = load_templates(tmp_path)
    assert used_templates() is None
    with using_templates(templates):
        assert used_templates() is templates
        with using_templates(None):
            assert used_templates() is None
        assert used_templates() is templates
    assert used_templates() is None


def test_the_last_text_is_remembered_for_its_templates_only(tmp_path: Path) -> None:
    calls: list[SwitchState] = []

    def render(state: SwitchState) -> str:
        calls.append(state)
        return render_template("onyx/mltswitch.txt.j2", ports=(), routes=())

    shutil.copytree(OWN / "onyx", tmp_path / "onyx")
    folder_with(tmp_path, "onyx/mltswitch.txt.j2", "mine")
    remembered = remember_last(render)
    state = SwitchState((), ())
    ours = remembered(state)
    assert remembered(SwitchState((), ())) == ours
    assert len(calls) == 1
    with using_templates(load_templates(tmp_path)):
        assert remembered(state) == "mine"
    assert remembered(state) == ours


@pytest.fixture
def rendered_elsewhere(mixed_plan: Plan, tmp_path: Path) -> tuple[Path, Path, Path]:
    """(plan, templates, output)."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(dump_yaml(mixed_plan), encoding="utf-8")
    return plan, tmp_path / "templates", tmp_path / "out"


def test_the_command_line_writes_nothing_where_one_template_is_wrong(
    rendered_elsewhere: tuple[Path, Path, Path],
    mixed_inventory: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan, folder, out = rendered_elsewhere
    last = PLATFORMS[-1]
    name = next(name for name in NAMES if name.startswith(f"{last}/"))
    text = (OWN / name).read_text()
    command = ["render", str(plan), "-i", str(mixed_inventory), "-o", str(out), "--templates", str(folder)]
    folder_with(folder, name, text + "reload\n")
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith(f"mltswitch: {folder / name}:{text.count(chr(10)) + 1}: ")
    assert not out.exists()
    folder_with(folder, name, text)
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 0
    assert any(out.rglob("mltswitch.txt"))
