"""Scenarios of TestTableLevelReplicationScenarios: which tables a policy names, and policies that change."""

from __future__ import annotations

from typing import Any

from tests.integration.hives_suite.acid import ACID, INSERT_ONLY
from tests.integration.hives_suite.scenario import Action, Check, Scenario, Scene, Step

OUT = "the policy leaves it out"


def hive(*methods: str) -> tuple[str, ...]:
    return tuple(f"TestTableLevelReplicationScenarios.{method}" for method in methods)


def tables(*, plain: str = "", acid: str = "", mm: str = "") -> str:
    """Statements that make tables of one row each."""
    made = []
    for name in plain.split():
        made.append(f"CREATE EXTERNAL TABLE {{t}}{name} (a int);\nLOAD ROWS (1) INTO {{t}}{name}")
    for name in mm.split():
        made.append(f"CREATE TABLE {{t}}{name} (a int) {INSERT_ONLY};\nLOAD ROWS (1) INTO {{t}}{name}")
    for name in acid.split():
        made.append(f"CREATE TABLE {{t}}{name} (a int) {ACID};\nINSERT INTO {{t}}{name} VALUES (1)")
    return ";\n".join(made)


def renames(text: str) -> str:
    """``old:new old:new`` as statements, in that order; ``-name`` drops, ``+name`` inserts a second row."""
    made = []
    for word in text.split():
        if word[0] == "-":
            made.append(f"DROP TABLE {{t}}{word[1:]}")
        elif word[0] == "+":
            made.append(f"INSERT INTO {{t}}{word[1:]} VALUES (2)")
        else:
            old, _, new = word.partition(":")
            made.append(f"ALTER TABLE {{t}}{old} RENAME TO {{t}}{new}")
    return ";\n".join(made)


def only(names: str, rows: str = "1") -> Check:
    """The target has these tables and no others, each with these rows."""

    def check(scene: Scene) -> None:
        side = scene.target
        with side.pool.client() as client:
            there = {table.removeprefix(f"{scene.name}_") for table in client.list_tables(side.database)}
        assert there == set(names.split())
        for name in sorted(there):
            rows_read = scene.rows(f"SELECT a FROM {{t}}{name}", side)
            assert rows_read == [(value,) for value in rows.split()], f"{name}: {rows_read}"

    return check


class Policies:
    """Steps of one scenario, whose tables' names it begins.

    :param name: of the scenario.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def step(self, run: Action, names: str, *, include: str = "", exclude: str = "", rows: str = "1") -> Step:
        """A cycle with a policy."""
        policy: dict[str, Any] = {
            "include_tables": f"{self._name}_(?:{include})" if include else "",
            "exclude_tables": f"{self._name}_(?:{exclude})" if exclude else "",
        }
        return Step(run, checks=[only(names, rows)], policy=policy)

    def scenario(self, methods: tuple[str, ...], *steps: Step, out: str = "") -> Scenario:
        differs = dict.fromkeys(out.split(), OUT)
        return Scenario(name=self._name, hive=methods, properties="", steps=steps, differs=differs)


def included() -> Scenario:
    policies = Policies("included")
    return policies.scenario(
        hive("testBasicBootstrapWithIncludeList", "testBasicReplaceReplPolicy"),
        policies.step(tables(plain="t1 t2", acid="t3 t4", mm="t5"), "t1 t4 t5", include="(t1)|(t4)|(t5)"),
        # Exclude t4 and t5, include t3 and t6.
        policies.step(tables(mm="t6"), "t1 t3 t6", include="t1|t3|t6"),
        policies.step("", "t1 t2 t3 t4 t5 t6"),
        policies.step("", "t1 t2 t6", include=".*?", exclude="t[3-5]+"),
        out="t3 t4 t5",
    )


def excluded() -> Scenario:
    policies = Policies("excluded")
    return policies.scenario(
        hive(
            "testBasicBootstrapWithIncludeAndExcludeList",
            "testBasicIncrementalWithIncludeAndExcludeList",
            "testFullDbBootstrapReplicationWithDifferentReplPolicyFormats",
        ),
        policies.step(tables(plain="t1 t11 t2 t3 t100"), "t1 t11 t3", include="(t1*)|(t3)", exclude="t100"),
        policies.step(tables(plain="t111"), "t1 t111 t2", include="(t1+)|(t2)", exclude="t11|t3"),
        policies.step("", "t1 t11 t111 t2 t3 t100", include=".*?"),
    )


def incremental() -> Scenario:
    policies = Policies("narrowed")
    return policies.scenario(
        hive("testBasicIncrementalWithIncludeList"),
        policies.step("", ""),
        policies.step(tables(plain="t1 t2", acid="t3", mm="t5"), "t1 t5", include="t1|t5"),
        out="t2 t3",
    )


def letters() -> Scenario:
    policies = Policies("letters")
    return policies.scenario(
        hive("testCaseInSensitiveNatureOfReplPolicy"),
        policies.step(
            tables(plain="a1 aA11 B2 Cc3"),
            "a1 cc3",
            include="(.*a1+)|(cc3)|(B2)",
            exclude="(AA1+)|(b2)",
        ),
        policies.step("", "a1 b2 cc3", include="(.*a1+)|(cc3)|(B2)", exclude="AA1+"),
        out="aa11",
    )


def kinds() -> Scenario:
    """Hive leaves kinds of tables out by options; here a policy names the tables."""
    policies = Policies("kinds")
    return policies.scenario(
        hive(
            "testBootstrapAcidTablesIncrementalPhaseWithIncludeAndExcludeList",
            "testBootstrapExternalTablesWithIncludeAndExcludeList",
            "testBootstrapExternalTablesIncrementalPhaseWithIncludeAndExcludeList",
            "testReplacePolicyOnBootstrapAcidTablesIncrementalPhase",
            "testReplacePolicyOnBootstrapExternalTablesIncrementalPhase",
            "testReplacePolicyWhenAcidTablesDisabledForRepl",
        ),
        policies.step(
            tables(plain="a1 b1 c1", acid="a2 b2", mm="a3 a4"),
            "a1",
            include="(a[0-9]+)|(b[0-9]+)",
            exclude="b1|a2|b2|a3|a4",
        ),
        policies.step("", "a1 a2 a4 b2 c1", include="[a-z]+[0-9]+", exclude="(a3)|(b1)"),
        out="a3 b1",
    )


def renamed() -> Scenario:
    policies = Policies("filter")
    chosen = {"include": "in[0-9]+", "exclude": "out[0-9]+"}
    return policies.scenario(
        hive("testRenameTableScenariosBasic", "testRenameTableScenariosExternalTable"),
        policies.step("", "", **chosen),
        policies.step(tables(plain="in1 in2 out3 out4 out5 out6"), "in1 in2", **chosen),
        policies.step(renames("out3:in3 out4:in4 out5:in5"), "in1 in2 in3 in4 in5", **chosen),
        policies.step(renames("in3:in7 in7:in8 in4:out9 in5:out10 out10:in11"), "in1 in2 in8 in11", **chosen),
        policies.step(
            renames("in8:in12 out9:in13 in13:in14 in2:out200 out200:in200 in1:out100 out100:in100 -in100"),
            "in200 in12 in11 in14",
            **chosen,
        ),
        out="out6",
    )


def renamed_and_written() -> Scenario:
    policies = Policies("written")
    chosen = {"include": "in[0-9]+", "exclude": "out[0-9]+"}
    return policies.scenario(
        hive("testRenameTableScenariosWithDmlOperations", "testRenameTableScenariosAcidTable"),
        policies.step("", "", **chosen),
        policies.step(tables(plain="in100", acid="in1", mm="out3"), "in1 in100", **chosen),
        policies.step(
            renames("in1:out1 +out1 out1:in4 in100:out100 +out100 out100:in400 out3:in3 +in3"),
            "in4 in400 in3",
            rows="1 2",
            **chosen,
        ),
    )


def renamed_with_another_policy() -> Scenario:
    policies = Policies("another")
    return policies.scenario(
        hive(
            "testRenameTableScenariosWithReplacePolicyDMLOperattion",
            "testRenameTableScenariosWithReplaceExternalTable",
            "testRenameTableScenariosUpgrade",
        ),
        policies.step(
            tables(plain="in400 out500 in100 in2", acid="in1 in300 out3", mm="in200 out3000 out4"),
            "in1 in2 in300 in400",
            include="(in[0-9]+)|(out5000)|(out5001)",
            exclude="(in100)|(in200)|(in305)",
        ),
        policies.step(
            renames(
                "in200:in2000 in400:out400 out500:in500 out3000:in3000 in1:out7 in300:in301 in301:in305 "
                "out3:in8 out4:in9 -in9 +in100 +in8 +in305 +in3000 +in2000 +in500"
            ),
            "in100 in2000 in8 in305 in500 in3000",
            include="(in[0-9]+)|(out3000)",
            exclude="in2",
            rows="1 2",
        ),
        policies.step(
            renames(
                "in100:in12 in2000:out12 out400:in400 out7:in1 in305:in301 in301:in300 in8:out3 "
                "+in2 +in1 +in400 -out3"
            ),
            "in12 in400 in1 in300 out12 in500 in3000 in2",
            rows="1 2",
        ),
    )


SCENARIOS = (
    included(),
    excluded(),
    incremental(),
    letters(),
    kinds(),
    renamed(),
    renamed_and_written(),
    renamed_with_another_policy(),
)
