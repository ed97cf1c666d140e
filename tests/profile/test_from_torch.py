"""Profiles of real PyTorch modules, and one clear line for every factory that gives none."""

import sys
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from mltswitch.documents import dump_yaml
from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.tagging.classes import Classes
from mltswitch.profile import (
    ModelProfile,
    bundled_profile,
    profile_from_torch,
    profile_of_module,
)

_NUMBERS = count()

MODELS = """
    import torch
    from torch import nn

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.head = nn.Linear(8, 50, bias=False)
            self.late = nn.LayerNorm(8)
            self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8, dtype=torch.bfloat16))
            self.attention = nn.MultiheadAttention(8, 2)
            self.embedding = nn.Embedding(50, 8)
            self.head.weight = self.embedding.weight
            self.frozen = nn.Linear(8, 8).requires_grad_(False)

        def forward(self, tokens):
            print("this must not reach our output")
            x = self.embedding(tokens)
            x, _ = self.attention(x, x, x)
            x = self.body[0](x * self.scale)
            x = self.body[2](x.to(torch.bfloat16)).float()
            return self.head(self.late(self.frozen(x)))

    def tied():
        return Tied()

    def tied_with_example():
        return Tied(), (torch.zeros(1, 3, dtype=torch.long),)

    def tied_with_names():
        return Tied(), {"tokens": torch.zeros(1, 3, dtype=torch.long)}

    def tied_with_bad_example():
        return Tied(), torch.zeros(1, 3, 4)

    def on_meta():
        with torch.device("meta"):
            return Tied()

    def linear():
        return nn.Linear(3, 4), torch.zeros(2, 3)

    def lazy():
        return nn.Sequential(nn.LazyLinear(5))

    def lazy_with_example():
        return nn.Sequential(nn.LazyLinear(5)), torch.zeros(2, 7)

    class Growing(nn.Module):
        # Makes a layer, a parameter and a part of a ModuleDict in its first pass.

        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"first part": nn.Linear(4, 4), "(root)": nn.LazyLinear(3)})
            self.lost = []

        def forward(self, x):
            if not hasattr(self, "made"):
                self.made = nn.utils.parametrizations.weight_norm(nn.Linear(x.shape[1], 4))
                self.scale = nn.Parameter(torch.ones(4))
                self.parts["line\\nend"] = nn.Linear(3, 2)
            x = self.parts["first part"](self.made(x)) * self.scale
            x = self.parts["line\\nend"](self.parts["(root)"](x))
            return [each(x) for each in self.lost] or x

    def growing():
        return Growing(), torch.zeros(2, 5)

    def listed():
        model = Growing()
        model.lost = [nn.Linear(2, 2, bias=False), nn.Linear(2, 2).requires_grad_(False)]
        return model, torch.zeros(2, 5)

    def in_a_list():
        model = nn.Sequential(nn.Linear(2, 2))
        model.tables = [nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(4))]
        model.forward = lambda x: model[0](x) @ model.tables[0]
        return model, torch.zeros(1, 2)

    def of_many():
        return nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(10_001))

    class Hiding(nn.Sequential):
        def named_modules(self, *args, **kwargs):
            return [each for each in super().named_modules(*args, **kwargs) if each[0] != "1"]

    def hiding():
        return Hiding(nn.Linear(2, 2), nn.Linear(2, 2, bias=False)), torch.zeros(1, 2)

    def empty():
        return nn.Linear(0, 3)

    def without_parameters():
        return nn.ReLU()

    def number():
        return 5

    def broken():
        raise RuntimeError("first line\\n  second line " + "x" * 5000)

    def leaves():
        raise SystemExit(0)

    class Models:
        make = staticmethod(linear)

    def residual_block():
        # A bottleneck of ResNet-50 as PyTorch users write it.
        class Bottleneck(nn.Module):
            def __init__(self, inputs, width):
                super().__init__()
                self.downsample = nn.Sequential(
                    nn.Conv2d(inputs, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
                )
                self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
                self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
                self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)

            def forward(self, x):
                y = self.bn1(self.conv1(x)).relu()
                y = self.bn2(self.conv2(y)).relu()
                return (self.bn3(self.conv3(y)) + self.downsample(x)).relu()

        with torch.device("meta"):
            return Bottleneck(64, 64), torch.zeros(2, 64, 8, 8)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in the current folder that makes the models above."""
    name = f"models_of_test_{next(_NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(dedent(MODELS))
    monkeypatch.chdir(tmp_path)
    return name


def tables(profile: ModelProfile) -> list[tuple[str, list[tuple[str, tuple[int, ...], int]]]]:
    return [
        (layer.name, [(tensor.name, tensor.shape, tensor.element_bytes) for tensor in layer.tensors])
        for layer in profile.layers
    ]


def names(profile: ModelProfile) -> list[str]:
    return [layer.name for layer in profile.layers]


@pytest.mark.parametrize(
    "factory",
    [
        "",
        "models",
        "models:",
        ":make",
        "models:make()",
        "models.py:1",
        "models/x:make",
        "a b:c",
        "a/models.py:make",
    ],
)
def test_bad_factory_names(factory: str) -> None:
    with pytest.raises(UserInputError, match=r"names no factory \(expected package.module:factory\)") as bad:
        profile_from_torch(factory)
    assert str(bad.value).endswith("Write a.models:make") == (factory == "a/models.py:make")


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MachineError, match=r"`pip install 'mltswitch\[torch\]'"):
        profile_from_torch("models:make")


@pytest.mark.torch
class TestWithTorch:
    """What needs a real torch."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        pytest.importorskip("torch", reason="torch is not installed: pip install 'mltswitch[torch]'")

    def test_layers_in_order_of_registration(self, module: str) -> None:
        profile = profile_from_torch(f"{module}:tied")
        assert tables(profile) == [
            ("(root)", [("scale", (), 4)]),
            ("head", [("head.weight", (50, 8), 4)]),
            ("late", [("late.weight", (8,), 4), ("late.bias", (8,), 4)]),
            ("body.0", [("body.0.weight", (16, 8), 4), ("body.0.bias", (16,), 4)]),
            ("body.2", [("body.2.weight", (8, 16), 2), ("body.2.bias", (8,), 2)]),
            (
                "attention",
                [("attention.in_proj_weight", (24, 8), 4), ("attention.in_proj_bias", (24,), 4)],
            ),
            (
                "attention.out_proj",
                [("attention.out_proj.weight", (8, 8), 4), ("attention.out_proj.bias", (8,), 4)],
            ),
        ]
        assert "2 frozen tensors" in profile.parameter_convention
        assert profile.sensitivity.is_default

    @pytest.mark.parametrize("factory", ["tied_with_example", "tied_with_names"])
    def test_layers_in_order_of_execution(
        self, module: str, factory: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        profile = profile_from_torch(f"{module}:{factory}")
        # The tied weight is first used by the embedding; out_proj is never called as a module.
        expected = ["(root)", "head", "attention", "attention.out_proj", "body.0", "body.2", "late"]
        assert names(profile) == expected
        assert "order of one forward pass" in profile.parameter_convention
        assert capsys.readouterr().out == ""

    def test_counts_what_torch_counts(self, module: str) -> None:
        import importlib

        profile = profile_from_torch(f"{module}:tied")
        parameters = [p for p in importlib.import_module(module).tied().parameters() if p.requires_grad]
        assert profile.total_parameters == sum(parameter.numel() for parameter in parameters)
        assert profile.total_bytes == sum(p.numel() * p.element_size() for p in parameters)

    def test_meta_device(self, module: str) -> None:
        assert tables(profile_from_torch(f"{module}:on_meta")) == tables(profile_from_torch(f"{module}:tied"))

    def test_same_result_and_path_twice(self, module: str) -> None:
        before = list(sys.path)
        first = dump_yaml(profile_from_torch(f"{module}:tied_with_example"))
        assert dump_yaml(profile_from_torch(f"{module}:tied_with_example")) == first
        assert sys.path == before

    def test_module_without_children(self, module: str) -> None:
        assert tables(profile_from_torch(f"{module}:Models.make")) == [
            ("(root)", [("weight", (4, 3), 4), ("bias", (4,), 4)])
        ]

    def test_lazy_layers_get_shapes_from_the_example(self, module: str) -> None:
        profile = profile_from_torch(f"{module}:lazy_with_example")
        assert tables(profile) == [("0", [("0.weight", (5, 7), 4), ("0.bias", (5,), 4)])]

    def test_what_the_first_pass_makes_is_listed(self, module: str) -> None:
        import importlib

        profile = profile_from_torch(f"{module}:growing")
        assert names(profile) == [
            "(root)",
            "made",
            "made.parametrizations.weight",
            "parts.first part",
            "parts.(root)",
            "parts.line\\nend",
        ]
        model, example = importlib.import_module(module).growing()
        model(example)
        assert profile.total_parameters == sum(parameter.numel() for parameter in model.parameters())
        assert ModelProfile.model_validate(yaml.safe_load(dump_yaml(profile))) == profile

    def test_names_may_be_what_torch_allows(self) -> None:
        from torch import nn

        keys = [
            "two words",
            "(root)",
            "tab\t",
            "\x1b[2J",
            "a\nb",
            "a\\nb",
            "\udcff",
            "[bold]",
            "ä",
            "x" * 500,
        ]
        model = nn.ModuleDict({key: nn.Linear(1, 1, bias=False) for key in keys})
        model.weights = nn.ParameterDict(
            {key: nn.Parameter(model[keys[0]].weight.detach()) for key in keys[:3]}
        )
        model.own = nn.Parameter(model[keys[0]].weight.detach())
        profile = profile_of_module("model", model)
        assert len(names(profile)) == 2 + len(keys)
        assert profile.total_parameters == sum(parameter.numel() for parameter in model.parameters())
        assert all(name.isprintable() for name in names(profile))
        assert (
            Classes(control_dscp=0, gradient_dscp=(1,), names=dict.fromkeys(names(profile), 1)).layer_number(
                "\x1b[2J"
            )
            == 1
        )

    def test_bottleneck_equals_the_bundled_derivation(self, module: str) -> None:
        built = profile_from_torch(f"{module}:residual_block")
        bundled = [
            (name.removeprefix("layer1.0."), [tensor[1:] for tensor in tensors])
            for name, tensors in tables(bundled_profile("resnet50"))
            if name.startswith("layer1.0.")
        ]
        assert [(name, [tensor[1:] for tensor in tensors]) for name, tensors in tables(built)] == bundled

    @pytest.mark.parametrize(
        ("factory", "expected"),
        [
            ("numbr", "has no attribute 'numbr', did you mean number?"),
            ("number", "returned a value of type int (expected a torch.nn.Module"),
            ("broken", "RuntimeError: first line second line"),
            ("leaves", "SystemExit: 0"),
            ("without_parameters", "the module has no trainable parameters"),
            ("lazy", "0.weight: has no elements. Where a layer is lazy"),
            ("empty", "weight: has no elements. Freeze it"),
            ("listed", "1 trainable parameters that are none of the model's: weight of a Linear. Register"),
            ("hiding", "uses 1 trainable parameters that are none of the model's: weight of a Linear"),
            ("in_a_list", "uses 1 trainable parameters that are none of the model's: one of shape (2, 3)"),
            ("of_many", "(root): tensors: must have at most 10000 items"),
            ("tied_with_bad_example", "RuntimeError: "),
        ],
    )
    def test_one_line_for_each_failure(self, module: str, factory: str, expected: str) -> None:
        with pytest.raises(UserInputError) as caught:
            profile_from_torch(f"{module}:{factory}")
        line = str(caught.value)
        assert line.startswith(f"{module}:{factory}: ")
        assert expected in line
        assert "\n" not in line
        assert len(line) < 500

    def test_module_that_does_not_exist(self) -> None:
        with pytest.raises(
            UserInputError, match="ModuleNotFoundError: No module named 'nowhere_at_all', searched in /"
        ):
            profile_from_torch("nowhere_at_all:make")

    @pytest.mark.parametrize("width", [8, 9])
    def test_a_pass_to_look_changes_nothing(self, width: int) -> None:
        """Also one that fails, with a width of 9, behind the layers that have statistics."""
        import torch
        from torch import nn

        def replace(module: nn.Module, _: object, result: torch.Tensor) -> None:
            module.mean = 0.9 * module.mean + 0.1 * result.mean(0)

        averaging = nn.Linear(8, 8)
        averaging.register_buffer("mean", torch.zeros(8))
        averaging.register_buffer("fixed", torch.eye(8).to_sparse())
        averaging.register_forward_hook(replace)
        model = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), averaging, nn.Dropout(), nn.Linear(width, 3)
        )
        buffers = [*model.buffers()]
        before = [value.to_dense().clone() for value in buffers]
        torch.manual_seed(5)
        with nullcontext() if width == 8 else pytest.raises(UserInputError):
            profile_of_module("model", model, lambda: model(torch.randn(16, 4)))
        drawn = torch.rand(3)
        torch.manual_seed(5)
        assert torch.equal(drawn, torch.rand(3))
        for after, buffer, value in zip(model.buffers(), buffers, before, strict=True):
            assert after is buffer
            assert torch.equal(after.to_dense(), value)
